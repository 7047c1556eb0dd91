# SPDX-License-Identifier: Apache-2.0
"""Compiles a .cu for sm_70, reads the machine code and holds each kernel to limits:

    python3 sass_gate.py LIMITS SOURCE [--sass FILE]

Prints a table of the kernels, then a sentence for every limit that is not kept, and exits 1 if there is one. No GPU is
needed. --sass keeps the disassembly.

The compiler is that of cmake/volta_toolkit.sh, which fetches CUDA 12.4 where no toolkit for sm_70 is at hand. If it
cannot, its sentence is printed and the exit code is 1, never a skip: ctest runs the gate only if the build asked for it
(QPN_SASS_GATE=ON), and then wants an answer.

Columns of the table:
    registers     per thread
    shared        static shared memory of a CTA, bytes; what a launch adds is not known here
    spills        bytes of the instructions that store and reload registers
    stack         local memory of a thread, bytes: spilled registers and arrays that are indexed at run time
    loop          instructions of the main loop: of the innermost loops with HMMA (in a kernel without: with FFMA) the
                  one with most of them, then with most loads of 16 bytes a lane, then the shortest (its like serve the
                  edges of a matrix). All count, also those that a branch or a predicate may leave out, but not what
                  only a diverged warp does, nor sums that a branch leaves out in most turns
    HMMA FFMA LDG LDS STS      of the main loop
    weights       that a lane handles in one iteration. A warp's m8n8k4 multiplies 32 weight rows and 4 k, which is 4
                  weights a lane, and each row tile repeats it: 4 * (m8n8k4 in the loop) / (row tiles)
    /weight       loop / weights: thread-instructions per weight
    stalls        cycles that one warp needs at least to issue the loop once: the sum of the waits that the compiler
                  wrote into the instructions. Modelled, not measured

Lines of a limits file, where # starts a comment:
    KERNEL | REGISTERS | INSTRUCTIONS PER WEIGHT | WEIGHTS
KERNEL is the name as the table shows it (no namespaces, no parameters), where * stands for any text. Every kernel must
match one line and every line a kernel. INSTRUCTIONS PER WEIGHT may be -: no limit. WEIGHTS is `row_tiles N`, or
`lane N` for N weights per lane and iteration, or - for a kernel that needs no such loop. Spills and local memory
are never allowed.
"""

import argparse
import dataclasses
import re
import sys
from pathlib import Path

from sass_code import GateError, count, read_kernels


# ---- limits


@dataclasses.dataclass(frozen=True)
class Limit:
    pattern: str
    registers: int
    per_weight: float | None
    row_tiles: int | None  # at most one of these two
    lane_weights: int | None

    def matches(self, name):
        return re.fullmatch(".*".join(map(re.escape, self.pattern.split("*"))), name) is not None


def parse_limits(text):
    limits = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        try:
            pattern, registers, per_weight, weights = (field.strip() for field in line.split("|"))
            kind, count = ("-", "0") if weights == "-" else weights.split()
            if kind not in ("-", "row_tiles", "lane") or (kind == "-" and per_weight != "-"):
                raise ValueError
            limits.append(
                Limit(
                    pattern,
                    int(registers),
                    None if per_weight == "-" else float(per_weight),
                    int(count) if kind == "row_tiles" else None,
                    int(count) if kind == "lane" else None,
                )
            )
        except ValueError:
            raise GateError(f"line {number} of the limits is not `KERNEL | REGISTERS | PER WEIGHT | WEIGHTS`: {line}")
    return limits


# ---- the verdict


def judge(kernel, limit):
    """What the kernel does not keep, a sentence each. Sets its weights."""
    resources, loop = kernel.resources, kernel.loop
    if resources.registers > limit.registers:
        yield f"{kernel.name} uses {resources.registers} registers, {limit.registers} are allowed."
    if resources.spills:
        yield f"{kernel.name} spills: {resources.spills} bytes of stores and loads."
    elif resources.stack:
        yield f"{kernel.name} keeps {resources.stack} bytes in local memory: an array is indexed at run time."
    if limit.row_tiles is None and limit.lane_weights is None:
        return

    if not loop:
        yield f"{kernel.name} has no loop with HMMA or FFMA, so its instructions per weight cannot be counted."
        return
    if count(loop, "CALL"):
        yield f"{kernel.name} calls a function in its main loop, whose instructions are not counted."
    if limit.row_tiles is None:
        kernel.weights = limit.lane_weights
    else:
        products = sum(bool(re.match(r"HMMA\.884\..*STEP0$", instruction.opcode)) for instruction in loop)
        if products == 0 or products % limit.row_tiles:
            yield f"{kernel.name} has {products} m8n8k4 in its main loop, no multiple of {limit.row_tiles} row tiles."
            return
        kernel.weights = 4 * products // limit.row_tiles
    kernel.per_weight = len(loop) / kernel.weights
    if limit.per_weight is not None and kernel.per_weight > limit.per_weight:
        yield f"{kernel.name} needs {kernel.per_weight:.2f} instructions per weight, {limit.per_weight:g} are allowed."


def verdict(kernels, limits):
    """All sentences about these kernels; sets their weights."""
    sentences, matched = [], set()
    for kernel in kernels:
        fitting = [limit for limit in limits if limit.matches(kernel.name)]
        matched.update(fitting)
        if len(fitting) == 1:
            sentences += judge(kernel, fitting[0])
        elif fitting:
            sentences.append(f"{kernel.name} matches {len(fitting)} lines of the limits, it must match one.")
        else:
            sentences.append(f"{kernel.name} matches no line of the limits.")
    for limit in limits:
        if limit not in matched:
            sentences.append(f"no kernel matches {limit.pattern}, a line of the limits.")
    return sentences


def table(kernels):
    rows = ["kernel registers shared spills stack loop HMMA FFMA LDG LDS STS weights /weight stalls".split()]
    for kernel in kernels:
        resources, loop = kernel.resources, kernel.loop
        rows.append(
            (kernel.name, resources.registers, resources.shared, resources.spills, resources.stack, len(loop))
            + tuple(count(loop, opcode) for opcode in ("HMMA", "FFMA", "LDG", "LDS", "STS"))
            + (kernel.weights or "-", f"{kernel.per_weight:.2f}" if kernel.weights else "-")
            + (sum(max(1, instruction.stall) for instruction in loop),)
        )
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join([str(row[0]).ljust(widths[0])] + [str(cell).rjust(width) for cell, width in zip(row[1:], widths[1:])])
        for row in rows
    )


def main():
    arguments = argparse.ArgumentParser(description="Holds the sm_70 machine code of kernels to limits.")
    arguments.add_argument("limits")
    arguments.add_argument("source")
    arguments.add_argument("--sass", metavar="FILE")
    options = arguments.parse_args()
    try:
        limits = parse_limits(Path(options.limits).read_text())
        kernels = read_kernels(options.source, options.sass)
        sentences = verdict(kernels, limits)
        print(table(kernels))
    except (GateError, OSError) as error:
        sentences = [str(error)]
    for sentence in sentences:
        print(f"sass gate: {sentence}")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
