# SPDX-License-Identifier: Apache-2.0
"""Made-up weights, from memory and from a directory that `synth` wrote.

usage: synthetic_test.py SERVER_BINARY [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

SERVER = sys.argv[1]


def run(*arguments):
    return subprocess.run([SERVER, *arguments], capture_output=True, timeout=120)


def generate(*flags):
    done = run("generate", "--prompt", "hello", "--max-tokens", "24", "--lanes", "1", "--context", "512", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Synthetic(unittest.TestCase):
    def test_memory_and_directory_give_the_same_text_at_every_depth(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made")
            written = run("synth", path, "--preset", "tiny", "--shard-bytes", "300000")
            self.assertEqual(written.returncode, 0, written.stderr)
            self.assertIn(b"tensors", written.stdout)
            self.assertEqual(run("inspect", path).returncode, 0)
            texts = {generate("--model", "synth:tiny", "--k", k) for k in ("0", "3", "15")}
            texts.add(generate("--model", path, "--chat-template", "qwen3.8"))
            self.assertEqual(len(texts), 1)
            again = run("synth", path, "--preset", "tiny")
            self.assertEqual(again.returncode, 2)
            self.assertIn(b"is there already", again.stderr)

    def test_unknown_preset(self):
        refused = run("generate", "--model", "synth:28b", "--prompt", "hello")
        self.assertEqual(refused.returncode, 2)
        self.assertIn(b'there is no synthetic model "28b": expected 27b, small or tiny', refused.stderr)

    def test_nothing_is_left_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SERVER, "generate", "--model", "synth:tiny", "--prompt", "a", "--max-tokens", "1",
                                   "--lanes", "1", "--context", "512"],
                                  capture_output=True, timeout=120, env={**os.environ, "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
