# SPDX-License-Identifier: Apache-2.0
"""python3 sass_gate_test.py text        what the gate makes of texts; needs no toolkit
python3 sass_gate_test.py samples     the gate on kernels in sample/ that keep their limits and that do not"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from sass_code import GateError, Kernel, Resources, count, main_loop, parse_resources, parse_sass, short_name
from sass_gate import parse_limits, verdict

HERE = Path(__file__).resolve().parent


def disassembly(program, stall=4):
    """As nvdisasm -c -hex prints a function f, from `label: instruction; instruction`; MMA is an m8n8k4."""
    program = re.sub(r"\bMMA\b", "; ".join(f"HMMA.884.F32.F32.STEP{step} R0, R2, R4, R0" for step in range(4)), program)
    text, address = ".text.f:\n", 0
    for statement in program.split("; "):
        *labels, instruction = statement.split(": ")
        text += "".join(f"{label}:\n" for label in labels)
        text += f"        /*{address:04x}*/   {instruction} ;   /* 0x{0:016x} */\n"
        text += f"            /* 0x{stall << 41:016x} */\n"
        address += 16
    return text


def loop_of(program):
    return [instruction.opcode for instruction in main_loop(parse_sass(disassembly(program))["f"])[0]]


class text(unittest.TestCase):
    def test_the_loop_is_from_the_label_to_the_branch_back(self):
        loop = loop_of("MOV R1, R2; .L_1: LDG.E R4, [R2]; MMA; @P0 BRA `(.L_1); EXIT; .L_2: BRA `(.L_2)")
        self.assertEqual(loop, ["LDG.E"] + [f"HMMA.884.F32.F32.STEP{i}" for i in range(4)] + ["BRA"])

    def test_the_inner_loop_is_taken(self):
        loop = loop_of(".L_1: NOP; .L_2: MMA; @!P0 BRA `(.L_2); STG.E [R2], R1; @P1 BRA `(.L_1); EXIT")
        self.assertEqual(len(loop), 5)

    def test_sums_that_a_branch_leaves_out_are_apart(self):
        def parts_of(left_out):
            text = f".L_1: MMA; @P0 BRA `(.L_2); {left_out}; .L_2: NOP; @P1 BRA `(.L_1); EXIT"
            return tuple(map(len, main_loop(parse_sass(disassembly(text))["f"])))

        self.assertEqual(parts_of("FADD R1, R1, R2; FADD R3, R3, R4"), (7, 2))
        for other in "MOV R1, R2", "FADD R1, R1, R2; LDS R3, [R4]", "FADD R1, R1, R2; MMA":
            loop, sums = parts_of(other)
            self.assertEqual((loop > 7, sums), (True, 0))

    def test_an_inner_loop_without_hmma_belongs_to_the_loop(self):
        loop = loop_of(".L_1: MOV R1, R2; .L_2: NOP; @P0 BRA `(.L_2); MMA; @P1 BRA `(.L_1); EXIT")
        self.assertEqual(len(loop), 8)

    def test_the_unrolled_loop_is_taken_not_its_remainder(self):
        loop = loop_of(".L_1: MMA; MMA; @P0 BRA `(.L_1); .L_2: MMA; NOP; NOP; @P1 BRA `(.L_2); EXIT")
        self.assertEqual(len(loop), 9)

    def test_a_kernel_without_hmma_multiplies_with_ffma(self):
        multiply, scale = "FFMA R1, R2, R3, R1", ".L_2: FFMA R4, R5, R6, R4; @P1 BRA `(.L_2)"
        loop = loop_of(f".L_1: LDG.E R2, [R8]; {multiply}; {multiply}; @P0 BRA `(.L_1); {scale}; EXIT")
        self.assertEqual(loop, ["LDG.E", "FFMA", "FFMA", "BRA"])
        loop = loop_of(f".L_1: NOP; MMA; @P0 BRA `(.L_1); {scale}; EXIT")
        self.assertEqual(len(loop), 6)

    def test_code_behind_the_exit_belongs_to_the_loop_that_jumps_there(self):
        loop = loop_of(".L_1: @P2 BRA `(.L_3); .L_2: MMA; @P0 BRA `(.L_1); EXIT; .L_3: NOP; BRA `(.L_2)")
        self.assertEqual(len(loop), 8)

    def test_a_way_out_of_the_loop_does_not_belong_to_it(self):
        loop = loop_of(".L_1: MMA; @P0 BRA `(.L_2); STG.E [R2], R1; EXIT; .L_2: BRA `(.L_1)")
        self.assertEqual(len(loop), 6)

    def test_a_jump_back_from_moved_code_is_no_loop(self):
        self.assertEqual(loop_of("@P0 BRA `(.L_2); NOP; .L_1: MMA; EXIT; .L_2: NOP; BRA `(.L_1)"), [])

    def test_threads_that_meet_stay_in_the_loop(self):
        meet = "BSSY B0, `(.L_2); @P0 BRA `(.L_3); NOP; .L_2: MMA"
        loop = loop_of(f".L_1: {meet}; @P1 BRA `(.L_1); EXIT; .L_3: MOV R1, R2; BSYNC B0")
        self.assertEqual(len(loop), 10)
        self.assertIn("BSYNC", loop)

    def test_the_loop_for_edges_is_not_taken(self):
        words, elements = "LDG.E.128.SYS R4, [R2]", "LDG.E.U16.SYS R4, [R2]"
        loop = loop_of(f".L_1: {elements}; MMA; @P0 BRA `(.L_1); .L_2: {words}; NOP; MMA; @P1 BRA `(.L_2); EXIT")
        self.assertEqual(len(loop), 7)
        loop = loop_of(".L_1: MMA; @P0 BRA `(.L_1); .L_2: NOP; MMA; @P1 BRA `(.L_2); EXIT")
        self.assertEqual(len(loop), 5)

    def test_what_only_a_diverged_warp_does_is_left_out(self):
        loop = loop_of("NOP; .L_1: BRA.CONV `(.L_2); MOV R8, R9; CALL.REL.NOINC `($f); .L_2: MMA; @P0 BRA `(.L_1); EXIT")
        self.assertEqual(len(loop), 6)
        loop = loop_of("NOP; .L_1: BRA.DIV `(.L_3); .L_2: MMA; @P0 BRA `(.L_1); EXIT; .L_3: NOP; BRA `(.L_2)")
        self.assertEqual(len(loop), 6)

    def test_stall_cycles_are_read_from_the_second_word(self):
        code = parse_sass(disassembly("NOP; EXIT", stall=13))["f"]
        self.assertEqual([instruction.stall for instruction in code], [13, 13])

    def test_an_instruction_that_is_not_understood_is_an_error(self):
        with self.assertRaisesRegex(GateError, "not known"):
            parse_sass(".text.f:\n        /*0000*/   { FADD R1, R2, R3\n")
        with self.assertRaisesRegex(GateError, "out of order"):
            parse_sass(disassembly("NOP; EXIT").replace("/*0010*/", "/*0020*/"))

    def test_resources(self):
        report = (
            "ptxas info    : Compiling entry function '_Z1fv' for 'sm_70'\n"
            "ptxas info    : Function properties for _Z1fv\n"
            "    40 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads\n"
            "ptxas info    : Used 64 registers, 5120 bytes smem, 380 bytes cmem[0]\n"
            "ptxas info    : Compiling entry function '_Z1gv' for 'sm_70'\n"
            "ptxas info    : Function properties for _Z1gv\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used 8 registers, 352 bytes cmem[0]\n"
        )
        kernels = parse_resources(report)
        self.assertEqual(kernels, {"_Z1fv": Resources(64, 5120, 36, 40), "_Z1gv": Resources(8, 0, 0, 0)})

    def test_names(self):
        for demangled, name in {
            "void qpn::a::gemm<qpn::config<qpn::fp8, (int)2>>(const uint4 *, int)": "gemm<config<fp8, 2>>",
            "void qpn::f<(qpn::format_id)1, (bool)0>(float *)": "f<(format_id)1, 0>",
            "<unnamed>::f(void (*)(int))": "f",
            "void f<void (*)(int)>(int)": "f<void (*)(int)>",
        }.items():
            self.assertEqual(short_name(demangled), name)

    def test_limits(self):
        lines = "# comment\n\nf<*, 1> | 128 | 3.5 | row_tiles 2 # why\ng|64|-|-\nh | 1 | - | lane 8\n"
        first, second, third = parse_limits(lines)
        self.assertTrue(first.matches("f<nvfp4, 1>"))
        self.assertFalse(first.matches("f<nvfp4, 1>x") or first.matches("f<nvfp4, 16>"))
        self.assertEqual((first.registers, first.per_weight, first.row_tiles), (128, 3.5, 2))
        self.assertEqual((second.registers, second.per_weight, second.row_tiles), (64, None, None))
        self.assertEqual((second.lane_weights, third.lane_weights), (None, 8))
        for line in ("f | 1 | 3", "f | many | 3 | lane 8", "f | 1 | 3 | -", "f | 1 | 3 | tiles 2", "f | 1 | 2 | - | 4"):
            with self.assertRaisesRegex(GateError, "line 1 of the limits"):
                parse_limits(line)

    def test_weights_follow_from_the_row_tiles(self):
        code = parse_sass(disassembly(".L_1: MMA; MMA; @P0 BRA `(.L_1); EXIT"))["f"]
        for weights, expected in (("row_tiles 1", 8), ("row_tiles 2", 4), ("lane 16", 16)):
            kernel = Kernel("f", Resources(64), *main_loop(code))
            self.assertEqual(verdict([kernel], parse_limits(f"f | 64 | 9 | {weights}")), [])
            self.assertEqual((kernel.weights, kernel.per_weight), (expected, 9 / expected))
        self.assertEqual(count(code, "HMMA"), 8)

    def test_without_a_toolkit_the_gate_fails_with_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            for program in ("bash", "awk", "cat", "cut", "dirname", "grep", "mkdir", "readlink"):
                os.symlink(shutil.which(program), Path(folder) / program)
            environment = {"PATH": folder, "QPN_VOLTA_TOOLKIT": f"{folder}/none"}
            code, output = run_gate("passing", environment)
        self.assertEqual(code, 1)
        self.assertRegex(output, "volta toolkit: .* set QPN_VOLTA_TOOLKIT")
        self.assertIn("sass gate: there is no CUDA toolkit for sm_70, for the reason above.", output)
        self.assertNotIn("Traceback", output)


def run_gate(sample, environment=None):
    command = [sys.executable, "-B", HERE / "sass_gate.py", HERE / "sample" / f"{sample}_limits.txt"]
    done = subprocess.run(
        [*command, HERE / "sample" / f"{sample}.cu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


class samples(unittest.TestCase):
    def test_what_keeps_its_limits_passes(self):
        code, output = run_gate("passing")
        self.assertEqual(code, 0, output)
        self.assertNotIn("sass gate:", output)
        rows = {row[0]: row[1:] for row in (re.split("  +", line) for line in output.splitlines() if "<" in line)}
        self.assertEqual(sorted(rows), ["gemm_kernel<config<1>>", "gemm_kernel<config<2>>"])
        for tiles in 1, 2:
            hmma, ffma, ldg, lds, sts, weights = map(int, rows[f"gemm_kernel<config<{tiles}>>"][5:11])
            self.assertEqual((hmma, ffma, ldg, lds, sts, weights), (8 * tiles, 0, 1 + 2 * tiles, 0, 0, 8))

    def test_what_does_not_fails_with_a_sentence_each(self):
        code, output = run_gate("failing")
        self.assertEqual(code, 1, output)
        sentences = [re.sub(r"[\d.]*\d", "N", line) for line in output.splitlines() if line.startswith("sass gate: ")]
        self.assertEqual(
            sentences,
            [
                "sass gate: ambiguous_kernel matches N lines of the limits, it must match one.",
                "sass gate: calling_kernel calls a function in its main loop, whose instructions are not counted.",
                "sass gate: greedy_kernel uses N registers, N are allowed.",
                "sass gate: indexing_kernel keeps N bytes in local memory: an array is indexed at run time.",
                "sass gate: loopless_kernel has no loop with HMMA or FFMA, so its instructions per weight cannot be counted.",
                "sass gate: odd_kernel has N mNnNkN in its main loop, no multiple of N row tiles.",
                "sass gate: spilling_kernel spills: N bytes of stores and loads.",
                "sass gate: unknown_kernel matches no line of the limits.",
                "sass gate: wasteful_kernel needs N instructions per weight, N are allowed.",
                "sass gate: no kernel matches gemm_kernel<*>, a line of the limits.",
            ],
        )

    def test_a_source_that_does_not_compile_fails_with_the_compilers_words(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "broken.cu"
            source.write_text("__global__ void f() { undeclared(); }\n")
            limits = HERE / "sample" / "passing_limits.txt"
            done = subprocess.run(
                [sys.executable, "-B", HERE / "sass_gate.py", limits, source], stdout=subprocess.PIPE, text=True
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("undeclared", done.stdout)
        self.assertIn("sass gate: nvcc failed, see above.", done.stdout)


if __name__ == "__main__":
    unittest.main()
