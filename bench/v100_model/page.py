# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/benchmarks.md, which the program v100_model prints:

    python3 page.py V100_MODEL            writes the blocks between the marks, and docs/v100_model.svg
    python3 page.py V100_MODEL --check    compares; exits 1 where they differ
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
CHART = DOCS / "v100_model.svg"
BLOCKS = {"v100_model": ("--markdown",), "v100_round": ("--round", "--markdown")}


class PageError(Exception):
    """Why the page has no place for the figures, in one sentence."""


def marks(name):
    return f"<!-- {name} begin -->", f"<!-- {name} end -->"


def with_block(text, name, made):
    """The page with these tables between the marks of a block."""
    begin, end = marks(name)
    lines = text.splitlines()
    if lines.count(begin) != 1 or lines.count(end) != 1 or lines.index(begin) > lines.index(end):
        raise PageError(f"{PAGE.name} needs the lines `{begin}` and `{end}`, once each and in this order.")
    before, after = lines[: lines.index(begin) + 1], lines[lines.index(end) :]
    return "\n".join([*before, "", made.rstrip("\n"), "", *after]) + "\n"


def output_of(program, *arguments):
    command = [program, *arguments, "--no-limits"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def made_by(program):
    """Page and chart as this program makes them."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "chart.svg"
        output_of(program, "--svg", str(chart))
        text = PAGE.read_text()
        for name, arguments in BLOCKS.items():
            text = with_block(text, name, output_of(program, *arguments))
        return text, chart.read_text()


def differences(program):
    for file, made in zip((PAGE, CHART), made_by(program)):
        if not file.exists() or file.read_text() != made:
            yield f"{file.name} has other figures than v100_model: run python3 bench/v100_model/page.py V100_MODEL."


def main():
    arguments = argparse.ArgumentParser(description="Writes or checks the figures of docs/benchmarks.md.")
    arguments.add_argument("program", metavar="V100_MODEL")
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    try:
        sentences = list(differences(options.program)) if options.check else []
        if not options.check:
            page, chart = made_by(options.program)
            PAGE.write_text(page)
            CHART.write_text(chart)
    except (PageError, OSError, subprocess.CalledProcessError) as error:
        sentences = [str(error)]
    for sentence in sentences:
        print(f"page: {sentence}")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
