# SPDX-License-Identifier: Apache-2.0
"""Kernels as sm_70 machine code: compiles a .cu with the toolkit of cmake/volta_toolkit.sh and reads what ptxas and
nvdisasm print. sass_gate.py holds the result to limits, bench/v100_model/sass_table.py keeps it for the time model."""

import dataclasses
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class GateError(Exception):
    """Why nothing can be said about the kernels, in one sentence."""


# ---- the compiler's report


@dataclasses.dataclass
class Resources:
    registers: int = 0
    shared: int = 0
    spills: int = 0  # bytes of stores and loads
    stack: int = 0  # bytes


def parse_resources(report):
    """Resources of each kernel, by mangled name, from what ptxas -v prints."""
    kernels, current = {}, None
    for line in report.splitlines():
        if found := re.search(r"Compiling entry function '(.+)' for 'sm_70'", line):
            current = kernels.setdefault(found[1], Resources())
        elif current is None:
            continue
        # A function that a kernel calls has a line of its own, before the kernel's registers.
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current.stack = max(current.stack, int(found[1]))
            current.spills += int(found[2]) + int(found[3])
        elif found := re.search(r"Used (\d+) registers", line):
            current.registers = int(found[1])
            shared = re.search(r"(\d+) bytes smem", line)
            current.shared = int(shared[1]) if shared else 0
    return kernels


# ---- machine code


@dataclasses.dataclass
class Instruction:
    opcode: str  # with its suffixes: HMMA.884.F32.F32.STEP0
    operands: str
    predicate: str | None
    stall: int  # cycles until the next instruction of the warp may issue
    labels: list[str]  # that point here


# Each instruction takes two lines, which end in the two 64-bit words of its code.
INSTRUCTION = re.compile(
    r"\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?P[0-9T])\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/"
)
CONTROL = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")


def parse_sass(text):
    """Instructions of each function, by mangled name, from `nvdisasm -c -hex`."""
    functions, code, labels = {}, None, []
    for line in text.splitlines():
        if found := re.match(r"\.text\.(\S+):$", line):
            code, labels = functions.setdefault(found[1], []), []
        elif found := re.match(r"(\.L\S*):$", line):
            labels.append(found[1])
        elif found := INSTRUCTION.match(line):
            if code is None or int(found[1], 16) != 16 * len(code):
                raise GateError(f"the output of nvdisasm has instructions out of order, here: {line.strip()}")
            code.append(Instruction(found[3], found[4], found[2], 0, labels))
            labels = []
        elif found := CONTROL.match(line):
            code[-1].stall = int(found[1], 16) >> 41 & 15
        elif re.match(r"\s+/\*[0-9a-f]{4,}\*/", line):
            raise GateError(f"the output of nvdisasm has a line of a form that is not known: {line.strip()}")
    return functions


def target(instruction):
    found = re.search(r"`\((\.L[^)]*)\)", instruction.operands)
    return found[1] if found else None


def successors(code):
    """Where control may go from each instruction in a warp that has not diverged, as positions in the code."""
    position = {label: at for at, instruction in enumerate(code) for label in instruction.labels}
    reconvergence = {}  # barrier register -> where BSSY says that its threads meet
    for instruction in code:
        if instruction.opcode == "BSSY":
            reconvergence.setdefault(instruction.operands.split(",")[0], set()).add(position.get(target(instruction)))

    result = []
    for at, instruction in enumerate(code):
        opcode, following = instruction.opcode.split(".")[0], {at + 1} if at + 1 < len(code) else set()
        always = instruction.predicate is None
        if instruction.opcode == "BRA.DIV":  # taken by a diverged warp only; BRA.CONV by any other
            goes = following
        elif opcode == "BRA":
            always = always and instruction.operands.startswith("`")  # BRA has conditions of its own, too
            goes = {position[target(instruction)]}
        elif opcode == "BSYNC":
            meets = reconvergence.get(instruction.operands.split(",")[0], set()) - {None}
            goes = following if following & meets else meets
        elif opcode in ("EXIT", "RET", "BRX", "JMX", "KILL"):  # the targets of BRX and JMX are not in the code
            goes = set()
        else:
            goes, always = following, True
        result.append(goes if always else goes | following)
    return result


def loops(code):
    """The natural loops, as sets of positions. Loops that share their first instruction are one."""
    next_of = successors(code)
    previous, reached, pending = [set() for _ in code], set(), [0]
    while pending:
        at = pending.pop()
        if at not in reached:
            reached.add(at)
            pending += next_of[at]
            for to in next_of[at]:
                previous[to].add(at)

    bodies = {}
    for latch in sorted(reached):
        for header in next_of[latch]:
            if header > latch:
                continue
            body, pending = {header}, [latch]
            while pending:
                at = pending.pop()
                if at not in body:
                    body.add(at)
                    pending += previous[at]
            # One that is entered past its first instruction reaches back to the start of the code: no loop, only a
            # jump back from code that was moved to the end.
            if header == 0 or 0 not in body:
                bodies.setdefault(header, set()).update(body)
    return list(bodies.values())


def count(code, opcode):
    return sum(instruction.opcode.split(".")[0] == opcode for instruction in code)


def sums_in(code, body):
    """The parts of a loop that a branch may leave out and that add but do not multiply, load or store: what is done once
    for many turns. As sets of positions."""
    next_of, parts = successors(code), []
    for at in sorted(body):
        if code[at].opcode != "BRA" or code[at].predicate is None:
            continue
        for to in next_of[at]:
            part = set(range(at + 1, to))
            opcodes = {code[position].opcode.split(".")[0] for position in part}
            if part < body and "FADD" in opcodes and not opcodes & {"HMMA", "FFMA", "LDG", "STG", "LDS", "STS"}:
                parts.append(part)
    return parts


def main_loop(code):
    """The instructions of the main loop without the sums in it, in the order of the code; and the longest of those sums.
    Empty where no loop multiplies. A kernel multiplies with HMMA, or if it has none with FFMA."""
    product = "HMMA" if count(code, "HMMA") else "FFMA"
    bodies = [body for body in loops(code) if any(code[at].opcode.startswith(product) for at in body)]
    innermost = [body for body in bodies if not any(other < body for other in bodies)]

    def rank(body):
        loop = [code[at] for at in body]
        wide = sum(re.match(r"LDG\..*\b128\b", instruction.opcode) is not None for instruction in loop)
        return count(loop, product), wide, -len(loop)

    body = max(innermost, key=rank, default=set())
    sums = sums_in(code, body)
    in_order = lambda positions: [code[at] for at in sorted(positions)]  # noqa: E731
    return in_order(body.difference(*sums)), in_order(max(sums, key=len, default=set()))


# ---- kernels


@dataclasses.dataclass
class Kernel:
    name: str
    resources: Resources
    loop: list[Instruction]
    sums: list[Instruction] = dataclasses.field(default_factory=list)
    weights: int = 0
    per_weight: float = 0.0


def short_name(demangled):
    """qpn::gemm_kernel<qpn::config<(bool)1>>(int) -> gemm_kernel<config<1>>"""
    name = re.sub(r"\((unsigned |signed )?(bool|char|short|int|long|long long)\)(?=-?\d)", "", demangled)
    name = re.sub(r"(\w+|<unnamed>|\(anonymous namespace\))::", "", name)
    depth = 0  # of template arguments: the parameters begin at the first ( outside of them
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0:
            name = name[:at]
            break
    return re.sub(r"^void ", "", name)


# ---- running the tools


def toolkit_folder():
    command = ["bash", str(ROOT / "cmake" / "volta_toolkit.sh")]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # its messages go where ours go
    if found.returncode != 0:
        raise GateError("there is no CUDA toolkit for sm_70, for the reason above.")
    return Path(found.stdout.strip())


def output_of(command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        print(done.stdout + done.stderr, end="")
        raise GateError(f"{Path(command[0]).name} failed, see above.")
    return done.stdout, done.stderr


def read_kernels(source, sass_file=None):
    """Compiles and disassembles: the kernels, in the order of their names."""
    tools = toolkit_folder() / "bin"
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        architecture = ["-gencode", "arch=compute_70,code=sm_70"]
        command = [tools / "nvcc", "-std=c++17", "-O3", *architecture, "-Xptxas", "-v,-warn-spills"]
        _, report = output_of([*command, f"-I{ROOT / 'include'}", "-cubin", "-o", cubin, source])
        sass, _ = output_of([tools / "nvdisasm", "-c", "-hex", cubin])
    if sass_file:
        Path(sass_file).write_text(sass)

    resources, functions = parse_resources(report), parse_sass(sass)
    if not resources or not set(resources) <= set(functions):
        raise GateError(f"ptxas and nvdisasm do not name the same kernels in {source}.")
    names, _ = output_of([tools / "cu++filt"], input="\n".join(resources) + "\n")
    kernels = [
        Kernel(short_name(name), resources[mangled], *main_loop(functions[mangled]))
        for mangled, name in zip(resources, names.splitlines())
    ]
    return sorted(kernels, key=lambda kernel: kernel.name)
