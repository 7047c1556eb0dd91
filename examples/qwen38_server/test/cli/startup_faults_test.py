# SPDX-License-Identifier: Apache-2.0
"""What must not be served ends the start: the built server, doctored copies of the demo checkpoint.

usage: startup_faults_test.py SERVER_BINARY MODEL_DIRECTORY [unittest arguments]
"""

import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

SERVER, MODEL = sys.argv[1:3]


def read_shard(path):
    """{name: (header entry, bytes)} of a safetensors file."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry, data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_shard(path, tensors):
    header, data = {}, b""
    for name, (entry, content) in tensors.items():
        header[name] = {**entry, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Checkpoint:
    """A copy of the demo checkpoint whose tensors and JSON files may be changed."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "doctored")
        shutil.copytree(MODEL, self.path, ignore=shutil.ignore_patterns("*.py", "eval", "README.md"))
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def edit_json(self, name, change):
        path = os.path.join(self.path, name)
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        change(value)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)

    def edit_tensors(self, change):
        """`change` gets {name: (entry, bytes)} of each shard."""
        shards = sorted(name for name in os.listdir(self.path) if name.endswith(".safetensors"))
        weight_map = {}
        for shard in shards:
            path = os.path.join(self.path, shard)
            tensors = read_shard(path)
            change(tensors)
            write_shard(path, tensors)
            weight_map.update({name: shard for name in tensors})
        self.edit_json("model.safetensors.index.json", lambda index: index.update(weight_map=weight_map))


def start(*flags, model=MODEL):
    """Exit code and log of a server that is expected to end by itself."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        done = subprocess.run([SERVER, "serve", "--model", model, "--port", "0", "--lanes", "1", "--context", "512",
                               "--report", report, *flags],
                              capture_output=True, text=True, timeout=120)
        text = None
        if os.path.exists(report):
            with open(report, encoding="utf-8") as file:
                text = json.load(file)
        return done.returncode, done.stdout, done.stderr, text


class StartupFaults(unittest.TestCase):
    def expect_refusal(self, sentence, *flags, model=MODEL, reported=True):
        code, out, log, report = start(*flags, model=model)
        self.assertNotEqual(code, 0, log)
        self.assertNotIn("listening", out)
        last = log.strip().splitlines()[-1]
        self.assertRegex(last, sentence)
        self.assertEqual(report is not None, reported)
        if reported:
            self.assertEqual(report["verdict"], "refused")
            self.assertIn(report["surprise"], last)

    def test_forced_fallback(self):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            has_avx2 = "avx2" in file.read()
        self.assertTrue(has_avx2, "a CPU without AVX2 has nothing to fall back from: run this elsewhere")
        self.expect_refusal(r"start-up: products took cpu/scalar/\w+.*: expected none that falls back",
                            "--force-fallback")

    def test_depth_that_cannot_be_served(self):
        with Checkpoint() as doctored:
            def drop_mtp(tensors):
                for name in [name for name in tensors if name.startswith("mtp.")]:
                    del tensors[name]

            def no_mtp(config):
                (config.get("text_config") or config)["mtp_num_hidden_layers"] = 0

            doctored.edit_tensors(drop_mtp)
            doctored.edit_json("config.json", no_mtp)
            self.expect_refusal(r"--k 3 is asked for, but the checkpoint has no MTP layer: expected --k 0", "--k", "3",
                                model=doctored.path)

    def test_logits_that_are_no_numbers(self):
        with Checkpoint() as doctored:
            def blow_up(tensors):
                name = "model.language_model.norm.weight"
                if name in tensors:
                    entry, content = tensors[name]
                    self.assertEqual(entry["dtype"], "BF16")
                    tensors[name] = (entry, struct.pack("<H", 0x7F7F) * (len(content) // 2))  # 3.4e38, finite

            doctored.edit_tensors(blow_up)
            self.expect_refusal(r"start-up: the warm-up failed: .*finite", model=doctored.path)

    def test_tensor_that_nothing_uses(self):
        with Checkpoint() as doctored:
            def add(tensors):
                name = "model.language_model.norm.weight"
                if name in tensors:
                    tensors["model.language_model.layers.0.mlp.extra_proj.weight"] = tensors[name]

            doctored.edit_tensors(add)
            self.expect_refusal(r"extra_proj", model=doctored.path, reported=False)

    def test_report_says_what_is_served(self):
        server = subprocess.Popen([SERVER, "serve", "--model", MODEL, "--port", "0", "--lanes", "1", "--context", "512",
                                   "--k", "3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = int(re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", server.stdout.readline()).group(1))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/v1/internal/report")
            reply = connection.getresponse()
            self.assertEqual(reply.status, 200)
            report = json.loads(reply.read())
            connection.close()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
            server.stdout.close()
        self.assertEqual(report["verdict"], "serves")
        self.assertEqual(report["checkpoint"]["known_as"], "the demo model of this repository")
        self.assertEqual(report["checkpoint"]["known_by"], "structure")
        round_ms = report["speculation"].pop("round_ms")
        self.assertEqual(report["speculation"], {"asked": 3, "served": 3, "mtp": True})
        self.assertEqual(list(round_ms), ["0", "1", "3", "7", "15"])
        for cost in round_ms.values():
            self.assertTrue(all(ms > 0 for _, ms in cost["lanes_ms"]))
        self.assertEqual(report["kv_cache"]["dtype"], "f16")
        self.assertEqual(report["fallback_routes"], [])
        (rank,) = report["ranks"]
        self.assertIsNone(rank["numa"])  # on the CPU
        self.assertTrue(rank["head"]["own_codes"])
        for counts in rank["modules"].values():
            self.assertEqual(counts["stored"], counts["on_packed_routes"])
        self.assertGreaterEqual(len(rank["self_check"]), 10)
        self.assertTrue(all(0 <= check["error_of_bound"] < 1 for check in rank["self_check"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
