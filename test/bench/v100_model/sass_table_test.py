# SPDX-License-Identifier: Apache-2.0
"""python3 sass_table_test.py: what sass_table.py makes of texts and of the tree; needs no toolkit"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "bench" / "v100_model"
sys.path.insert(0, str(FOLDER))

import sass_table  # noqa: E402
from sass_code import GateError, Instruction, Kernel, Resources  # noqa: E402


def kernel_of(opcodes, name="f<g, 1>"):
    loop = [Instruction(opcode, "", None, 2, []) for opcode in opcodes.split()]
    return Kernel(name, Resources(64, 1024, 0, 0), loop)


PRODUCT = " ".join(f"HMMA.884.F32.F32.STEP{step}" for step in range(4))


class rows(unittest.TestCase):
    def test_each_instruction_has_a_pipe(self):
        made = dict(sass_table.rows_of(kernel_of(f"LDG.E.128.SYS LDS.U.128 STS.128 LOP3.LUT IMAD.SHL.U32 HMUL2 F2F.F16.F32 BRA {PRODUCT}")))
        expected = {"alu": 1, "fma": 1, "fp16": 1, "xu": 1, "tensor": 4, "lsu": 3, "control": 1}
        self.assertEqual({key: made[key] for key in expected}, expected)
        self.assertEqual((made["ldg"], made["lds"], made["sts"]), (1, 1, 1))
        self.assertEqual((made["instructions"], made["loop_bytes"], made["stall_cycles"]), (12, 192, 24))
        self.assertEqual((made["registers"], made["shared"], made["spills"]), (64, 1024, 0))

    def test_row_tiles_share_the_weights(self):
        self.assertEqual(dict(sass_table.rows_of(kernel_of(f"{PRODUCT} {PRODUCT}")))["weights"], 8)
        self.assertEqual(dict(sass_table.rows_of(kernel_of(f"{PRODUCT} {PRODUCT}", "f<g, 2>")))["weights"], 4)

    def test_what_cannot_be_counted_is_an_error(self):
        with self.assertRaisesRegex(GateError, "has FROB in its main loop"):
            sass_table.rows_of(kernel_of(f"{PRODUCT} FROB.X"))
        for opcodes, name in (("NOP", "f<g, 1>"), (PRODUCT, "f<g, 2>"), (PRODUCT, "f<g>")):
            with self.assertRaisesRegex(GateError, "expected a multiple of its row tiles"):
                sass_table.rows_of(kernel_of(opcodes, name))


class sources(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        (self.root / "include" / "qpn").mkdir(parents=True)
        self.write("a.cu", '#include <cstdint>\n#include "qpn/b.hpp"\n  # include <qpn/a.cuh>\n')
        self.write("include/qpn/b.hpp", '#include "qpn/c.hpp"\n')
        self.write("include/qpn/a.cuh", '#include "qpn/b.hpp"\n')
        self.write("include/qpn/c.hpp", "int c;\n")
        self.write("include/qpn/unused.hpp", "int d;\n")

    def write(self, name, text):
        (self.root / name).write_text(text)

    def digest(self):
        return sass_table.digest(sass_table.sources_of("a.cu", self.root), self.root)

    def test_what_is_included_counts_and_the_order_is_fixed(self):
        names = ["a.cu", "include/qpn/a.cuh", "include/qpn/b.hpp", "include/qpn/c.hpp"]
        self.assertEqual(sass_table.sources_of("a.cu", self.root), names)

    def test_every_byte_of_it_counts(self):
        before = self.digest()
        self.write("include/qpn/unused.hpp", "int e;\n")
        self.assertEqual(self.digest(), before)
        self.write("include/qpn/c.hpp", "int d;\n")
        self.assertNotEqual(self.digest(), before)

    def test_a_header_that_is_missing_is_named(self):
        (self.root / "include/qpn/c.hpp").unlink()
        with self.assertRaisesRegex(GateError, "include/qpn/c.hpp, which the kernels are compiled from"):
            self.digest()


class comparison(unittest.TestCase):
    head = ["source a.cu", "sources_sha256 12"]

    def table(self, **changed):
        resources = Resources(64, 0, 0, 0)
        kernels = [kernel_of(PRODUCT, "f<1>"), kernel_of(f"{PRODUCT} {changed.get('more', 'NOP')}", "f<g, 1>")]
        kernels[0].name, kernels[0].resources = "e<g, 1>", resources
        return sass_table.table_of(kernels, changed.get("release", "12.4"), changed.get("head", self.head))

    def test_equal_tables_say_nothing(self):
        self.assertEqual(list(sass_table.differences(self.table(), self.table())), [])
        self.assertEqual(list(sass_table.fresh(self.table(), self.head)), [])

    def test_the_first_difference_is_a_sentence_with_its_kernel(self):
        sentences = list(sass_table.differences(self.table(), self.table(more="MOV")))
        self.assertEqual(len(sentences), 1)
        self.assertRegex(sentences[0], r"kernel f<g, 1>: it has `alu 0`, the compiler makes `alu 1`; run python3")
        self.assertRegex(next(sass_table.differences(self.table(), self.table(release="12.5"))), "compiler 12.4")
        self.assertRegex(next(sass_table.differences(self.table(), self.table() + "x\n")), "lines, .* were made")

    def test_a_stale_hash_is_one_sentence(self):
        for head in (["source a.cu", "sources_sha256 13"], ["source b.cu", "sources_sha256 12"], self.head[1:]):
            sentences = list(sass_table.fresh(self.table(), head))
            self.assertEqual(len(sentences), 1)
            self.assertRegex(sentences[0], "is stale: .* run python3 bench/v100_model/sass_table.py")


class tree(unittest.TestCase):
    def test_the_committed_table_is_of_these_sources(self):
        command = [sys.executable, "-B", FOLDER / "sass_table.py", "--fresh"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
