# SPDX-License-Identifier: Apache-2.0
"""gemm_roofline, gemm_chain and gemm_tune as programs, with no GPU to be seen:

    python3 program_test.py PROGRAM
"""

import os
import subprocess
import sys
import unittest

PROGRAM = None


def run(*arguments):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


class ProgramTest(unittest.TestCase):
    def test_without_a_gpu_it_says_so_in_one_sentence(self):
        done = run("--m", "1")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\A\w+: this benchmark needs a GPU, and CUDA finds none \(cuda\w+\)\n\Z")

    def test_a_wrong_argument_is_one_sentence(self):
        done = run("--no-such-thing")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\A\w+: unknown argument --no-such-thing, see --help\n\Z")

    def test_help_needs_no_gpu(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--json FILE", done.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
