# SPDX-License-Identifier: Apache-2.0
"""`bench` and `plan` on made-up weights, and the suites on the demo model.

usage: bench_test.py SERVER_BINARY DEMO_MODEL [unittest arguments]
"""

import json
import subprocess
import sys
import unittest

SERVER, DEMO = sys.argv[1:3]


def run(*arguments, timeout=300):
    return subprocess.run([SERVER, *arguments], capture_output=True, timeout=timeout)


def bench(*arguments):
    done = run("bench", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Rounds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = bench("--model", "synth:tiny", "--device", "cpu", "--k", "0,3,7", "--live", "256,1024",
                           "--prefill", "192,384", "--declared", "1024,4096", "--lanes-list", "1,2", "--side-live",
                           "256", "--rounds", "2", "--profile-round", "--prefill-pass", "128")

    def test_every_kind_of_round_is_there_once(self):
        kinds = [(one["live"], one["k"], one["accepted"]) for one in self.report["rounds"]]
        per_live = [(0, 0), (3, 0), (3, 3), (7, 0), (7, 3), (7, 7)]
        self.assertEqual(kinds, [(live, *rest) for live in (256, 1024) for rest in per_live])
        self.assertEqual([one["declared"] for one in self.report["declared"]], [1024, 4096])
        lanes = {(one["k"], one["lanes"]) for one in self.report["lanes"]}
        self.assertEqual(lanes, {(k, lanes) for k in (0, 3, 7) for lanes in (1, 2)})

    def test_figures_belong_together(self):
        ceiling = self.report["read_gb_s"]
        self.assertGreater(ceiling, 0)
        for one in self.report["rounds"] + self.report["lanes"] + self.report["declared"]:
            self.assertGreater(one["round_ms"], 0)
            self.assertAlmostEqual(one["read_gb_s"], one["bytes"] / one["round_ms"] / 1e6, delta=one["read_gb_s"] / 1e6)
            self.assertAlmostEqual(one["fraction"], one["read_gb_s"] / ceiling, delta=one["fraction"] / 1e6)
        self.assertEqual(sorted(self.report["prefill_tok_s"]), ["192", "384"])
        self.assertIn("ms_per_verify_row", self.report)
        self.assertIn("ms_per_draft_step", self.report)

    def test_bytes_grow_by_what_is_read_more(self):
        sizes = self.report["bytes_of"]
        of = {(one["live"], one["k"]): one["bytes"] for one in self.report["rounds"]}
        self.assertEqual(of[256, 0], sizes["verify_weights"] + 2 * 256 * sizes["kv_of_token_and_layer"]
                         + 2 * sizes["state_of_lane"])
        self.assertEqual(of[1024, 0] - of[256, 0], 2 * 768 * sizes["kv_of_token_and_layer"])
        self.assertEqual(of[256, 7] - of[256, 3], 4 * (sizes["draft_weights"] + 256 * sizes["kv_of_token_and_layer"]))

    def test_contexts_beyond_what_was_prefilled_say_so(self):
        filled = {one["live"]: one["filled"] for one in self.report["rounds"]}
        self.assertEqual(filled, {256: "prefill", 1024: "zeros"})

    def test_the_breakdown_adds_up(self):
        with_parts = [one for one in self.report["rounds"] if "breakdown" in one]
        self.assertEqual(len(with_parts), 6)
        for one in with_parts:
            parts = one["breakdown"]
            self.assertAlmostEqual(sum(parts.values()), one["round_ms"], places=6)
            for name in ("gemm", "head", "attention", "gdn", "norm", "rows"):
                self.assertGreater(parts[name], 0, name)
            self.assertEqual(parts["keep"] > 0, one["k"] > 0)

    def test_the_last_prefill_pass_is_broken_down(self):
        self.assertEqual(self.report["prefill_pass"], 128)
        self.assertEqual(sorted(self.report["prefill_breakdown"]), ["192", "384"])
        for parts in self.report["prefill_breakdown"].values():
            whole = parts.pop("pass_ms")
            self.assertAlmostEqual(sum(parts.values()), whole, places=6)
            for name in ("gemm", "attention", "gdn", "norm", "rows"):
                self.assertGreater(parts[name], 0, name)

    def test_wrong_flags_are_named(self):
        for flag, value in (("--accept", "all"), ("--live", "64"), ("--k", "3,auto"), ("--k", "16"),
                            ("--prefill-pass", "100")):
            done = run("bench", "--model", "synth:tiny", flag, value)
            self.assertEqual(done.returncode, 2)
            self.assertIn(flag.encode(), done.stderr)

    def test_a_round_over_gpus_is_not_taken_apart(self):
        done = run("bench", "--model", "synth:tiny", "--device", "cuda", "--tp", "2", "--profile-round")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"expected --tp 1", done.stderr)


class Suites(unittest.TestCase):
    def test_domain_on_the_demo_model(self):
        report = bench("--suite", "domain", "--model", DEMO, "--k", "0,3,auto", "--answer-tokens", "160", "--seeds", "2",
                       "--context", "512", "--lanes", "1")
        cells = {(one["cell"], one["k"]): one for one in report["cells"]}
        self.assertEqual(len(cells), 21)
        self.assertEqual({name for name, _ in cells}, {"invoice_json", "log_json", "json_records", "mergesort", "code",
                                                       "math_thinking", "prose"})
        for k in (0, 3, "auto"):
            self.assertEqual(cells["invoice_json", k]["right"], 1)
            self.assertEqual(cells["prose", k]["tok_s"]["count"], 2)
            self.assertEqual(cells["code", k]["tok_s"]["count"], 1)
            self.assertEqual(set(cells["code", k]["sampling"]),
                             {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty",
                              "presence_penalty"})
        self.assertGreater(cells["invoice_json", 3]["tokens_per_round"]["mean"], 1.5)
        for name in ("invoice_json", "prose"):  # a depth changes no text
            self.assertEqual(cells[name, 0]["tokens"], cells[name, 3]["tokens"])
            self.assertEqual(cells[name, 0]["tokens"], cells[name, "auto"]["tokens"])
        self.assertGreater(sum(cells["prose", "auto"]["chosen_depths"].values()), 0)
        self.assertNotIn("chosen_depths", cells["prose", 3])

    def test_aime_runs_every_seed(self):
        report = bench("--suite", "aime", "--model", DEMO, "--k", "3", "--tasks", "2", "--answer-tokens", "12",
                       "--context", "512", "--lanes", "1")
        (cell,) = report["cells"]
        self.assertEqual(cell["answers"], 10)
        self.assertEqual(cell["sampling"]["presence_penalty"], 1.0)


class Plan(unittest.TestCase):
    def test_fits_or_not(self):
        flags = ("plan", "--model", "synth:27b", "--tp", "4", "--context", "262144", "--lanes", "1")
        done = run(*flags, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertTrue(plan["fits"])
        self.assertEqual(len(plan["ranks"]), 4)
        done = run(*flags, "--card-memory", "10GB")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"does not fit", done.stdout)
        self.assertIn(b"--kv-tokens", done.stderr)
        done = run(*flags, "--gpu-memory-fraction", "0.5")
        self.assertEqual(done.returncode, 1)

    def test_unknown_card(self):
        self.assertEqual(run("plan", "--model", "synth:tiny", "--card", "k80").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
