# SPDX-License-Identifier: Apache-2.0
"""The load client on the demo checkpoint: its counts against the server's own.

usage: serving_bench_demo_test.py SERVER_BINARY BENCH_BINARY MODEL_DIRECTORY CORPUS
"""

import json
import re
import subprocess
import sys
import unittest
import urllib.request

SERVER, BENCH, MODEL, CORPUS = sys.argv[1:5]


class ServingBench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([SERVER, "serve", "--model", MODEL, "--port", "0", "--lanes", "4"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = cls.server.stdout.readline()
        cls.port = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line).group(1)

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        code = cls.server.wait(timeout=30)
        cls.server.stdout.close()
        assert code == 0, f"exit code {code} after SIGTERM"

    def run_bench(self, *flags, code=0):
        done = subprocess.run([BENCH, "--port", self.port, "--corpus", CORPUS, *flags],
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def counters(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as page:
            lines = page.read().decode("utf-8").splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def test_the_corpus_has_all_kinds_and_each_dialogue_is_one_that_the_server_takes(self):
        with open(CORPUS, encoding="utf-8") as file:
            dialogues = [json.loads(line) for line in file]
        self.assertEqual({one["kind"] for one in dialogues},
                         {"code", "prose", "translation", "json", "math", "long", "tools"})
        self.assertEqual(len({one["id"] for one in dialogues}), len(dialogues))
        for one in dialogues:
            body = json.dumps({"messages": one["messages"]}).encode("utf-8")
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/tokenize", body) as reply:
                self.assertLess(json.load(reply)["count"], 6000, one["id"])

    def test_client_and_server_count_the_same(self):
        before = self.counters()
        report = json.loads(self.run_bench("--kind", "json", "--num-prompts", "6", "--max-tokens", "8", "--ignore-eos",
                                           "--max-concurrency", "4", "--k", "3", "--goodput", "ttft:600000", "e2el:600000",
                                           "--json").stdout)
        after = self.counters()
        self.assertEqual(report["completed"], 6)
        self.assertEqual(report["failed"], 0)
        self.assertEqual(report["total_output_tokens"], 8 * 6)
        self.assertEqual(report["request_goodput"], report["request_throughput"])

        def grown(name):
            return after["qwen38_" + name] - before["qwen38_" + name]

        self.assertEqual(grown("generation_tokens_total"), report["total_output_tokens"])
        self.assertEqual(grown("prompt_tokens_total"), report["total_input_tokens"])
        self.assertEqual(grown("prefix_cache_hits_total"), report["total_cached_tokens"])
        self.assertEqual(grown("spec_decode_num_drafts_total"), report["spec_decode_num_drafts"])
        self.assertEqual(grown("spec_decode_num_accepted_tokens_total"), report["spec_decode_accepted_tokens"])
        self.assertAlmostEqual(report["spec_decode_acceptance_length"],
                               1 + report["spec_decode_accepted_tokens"] / report["spec_decode_num_drafts"])
        self.assertGreater(report["mean_ttft_ms"], 0)
        self.assertGreaterEqual(report["p99_e2el_ms"], report["median_e2el_ms"])

    def test_the_table_has_the_titles_that_people_know(self):
        said = self.run_bench("--kind", "tools", "--max-tokens", "4", "--max-concurrency", "1").stdout
        for title in ("Successful requests:", "Request throughput (req/s):", "Output token throughput (tok/s):",
                      "Mean TTFT (ms):", "Median TPOT (ms):", "P99 ITL (ms):", "P90 E2EL (ms):"):
            self.assertIn(title, said)

    def test_failures_are_told_and_are_the_exit_code(self):
        done = self.run_bench("--model", "another", "--num-prompts", "2", "--json", code=1)
        self.assertEqual(json.loads(done.stdout)["failed"], 2)
        self.assertIn("status 404", done.stderr)
        self.assertIn("nothing of that kind", self.run_bench("--kind", "none", code=1).stderr)
        self.assertIn("--goodput", self.run_bench("--goodput", "tpit:3", code=1).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
