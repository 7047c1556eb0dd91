# SPDX-License-Identifier: Apache-2.0
"""python3 program_test.py V100_MODEL: the program as its user sees it, and the page that it writes"""

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "bench" / "v100_model"
sys.path.insert(0, str(FOLDER))

import page  # noqa: E402

PROGRAM = sys.argv.pop(1)


def run(*arguments):
    done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, done.stderr


class program(unittest.TestCase):
    def test_json_is_an_array_of_rows(self):
        rows = json.loads(run("--json", "--no-limits")[1])
        keys = {"shape", "format", "n", "k", "m", "us", "read_us", "gb_s", "registers", "spills", "instr_per_weight"}
        for row in rows:
            self.assertEqual(set(row), keys)
            self.assertEqual(row["shape"], f"{row['n']}x{row['k']}")
            self.assertGreater(row["us"], row["read_us"])
            self.assertLess(row["gb_s"], 879)
        found = {(row["format"], row["n"], row["k"], row["m"]) for row in rows}
        self.assertEqual(len(found), len(rows))
        for m in 1, 2, 4, 8, 16, 32, 64, 96:
            for shape in ("nvfp4", 8704, 5120), ("nvfp4", 5120, 4352), ("nvfp4", 62080, 5120):
                self.assertIn((*shape, m), found)
            for shape in ("fp8", 4096, 5120), ("fp8", 5120, 1536), ("fp8", 3584, 5120):
                self.assertIn((*shape, m), found)

    def test_the_exit_code_says_whether_limits_are_missed(self):
        code, text, errors = run()
        missed = [line[2:] for line in text.splitlines() if line.startswith("- ")]
        self.assertEqual(code, 1 if missed else 0)
        self.assertEqual(errors.splitlines(), [f"v100_model: {line}" for line in missed])
        code, same, errors = run("--no-limits", "--markdown")
        self.assertEqual((code, same, errors), (0, text, ""))

    def test_rounds_are_an_array_beside_the_predecessors(self):
        code, text, errors = run("--round", "--json")
        rounds = json.loads(text)
        parts = {"products_ms", "head_ms", "attention_ms", "gdn_ms", "rows_ms", "exchange_ms", "gaps_ms", "host_ms"}
        for one in rounds:
            self.assertEqual(set(one), parts | {"drafts", "context", "launches", "round_ms", "predecessor_ms"})
            self.assertAlmostEqual(one["round_ms"], sum(one[part] for part in parts), places=3)
        short = {one["drafts"]: one for one in rounds if one["context"] == 512}
        measured = {drafts: one["predecessor_ms"] for drafts, one in short.items()}
        self.assertEqual(measured, {0: 11.5875, 3: 20.4, 7: 24.9, 15: 37})
        self.assertEqual(code, 0 if short[7]["round_ms"] <= 16 else 1)
        self.assertEqual(len(errors.splitlines()), code)

    def test_what_is_not_understood_ends_with_2(self):
        for arguments in (["--frob"], ["--json", "--svg", "x"], ["--svg"], ["--svg", "/none/at/all.svg"],
                          ["--round", "--fit"], ["--round", "--svg", "x"]):
            code, output, errors = run(*arguments)
            self.assertEqual((code, output, len(errors.splitlines())), (2, "", 1), arguments)
            self.assertRegex(errors, "^v100_model: ")
        self.assertEqual(run("--help")[0], 0)

    def test_the_chart_is_svg_and_says_that_it_is_modelled(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "chart.svg"
            self.assertEqual(run("--svg", str(file), "--no-limits")[0], 0)
            root = xml.etree.ElementTree.fromstring(file.read_text())
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertIn("modelled, not measured", " ".join(root.itertext()))


class the_page(unittest.TestCase):
    def test_its_figures_are_what_the_program_prints(self):
        self.assertEqual(list(page.differences(PROGRAM)), [])

    def test_another_figure_is_one_sentence(self):
        text = page.PAGE.read_text()
        for name, arguments in page.BLOCKS.items():
            made = run(*arguments, "--no-limits")[1]
            self.assertEqual(page.with_block(text, name, made), text)
            self.assertNotEqual(page.with_block(text, name, made + "x\n"), text)
            with self.assertRaisesRegex(page.PageError, f"needs the lines.*{name} begin"):
                page.with_block(text.replace(page.marks(name)[0], ""), name, made)


if __name__ == "__main__":
    unittest.main()
