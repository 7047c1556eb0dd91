# SPDX-License-Identifier: Apache-2.0
"""The table of the sm_70 kernels' main loops that the time model reads:

    python3 sass_table.py            compiles the kernels with CUDA 12.4 and writes sm70_sass.txt
    python3 sass_table.py --check    does the same and compares; exits 1 where they differ
    python3 sass_table.py --fresh    compares only the hash of the sources, which takes no compiler

Lines of the table, `key value`, where # starts a comment:
    compiler            release of nvcc
    source FILE         a file that the kernels are compiled from; the headers follow from its #include lines
    sources_sha256      over the names and the bytes of all of them, in the order of the lines `source`
    kernel NAME         the lines that follow, up to the next such line, are its
    registers, spills, stack, shared       per thread; bytes; bytes; static bytes
    loop_bytes          of the main loop's code
    instructions        of the main loop, one warp
    alu, fma, fp16, xu, tensor, lsu, control     how many of them each pipe takes; tensor counts HMMA steps
    ldg, lds, sts       of them
    stall_cycles        that a warp needs at least to issue the loop once, as the compiler wrote them
    sums                instructions of the sums in the loop that are left out in most turns, each time that they are
                        not; no other line counts them
    weights             that a lane handles in one turn of the loop
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "sass"))

from sass_code import GateError, count, output_of, read_kernels, toolkit_folder  # noqa: E402

SOURCE = "test/sass/gemm_kernels.cu"
TABLE = Path(__file__).resolve().parent / "sm70_sass.txt"
REMEDY = "run python3 bench/v100_model/sass_table.py"
INSTRUCTION_BYTES = 16

# Which pipe of a Volta multiprocessor takes an opcode.
PIPES = {
    "alu": "BMSK FMNMX FSEL FSETP IABS IADD3 IMNMX ISETP LEA LOP3 MOV P2R PLOP3 PRMT R2P SEL SGXT SHF",
    "fma": "FADD FFMA FMUL IMAD",
    "fp16": "HADD2 HFMA2 HMUL2 HSETP2",
    "xu": "F2F F2I FRND I2F MUFU POPC S2R",
    "tensor": "HMMA",
    "lsu": "ATOM ATOMG ATOMS LD LDC LDG LDL LDS RED SHFL ST STG STL STS",
    "control": "BAR BMOV BRA BSSY BSYNC CS2R DEPBAR ERRBAR EXIT MEMBAR NOP RET VOTE WARPSYNC YIELD",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes.split()}


def pipe_counts(kernel):
    counts = dict.fromkeys(PIPES, 0)
    for instruction in kernel.loop:
        opcode = instruction.opcode.split(".")[0]
        if opcode not in PIPE_OF:
            raise GateError(f"{kernel.name} has {opcode} in its main loop: PIPES in sass_table.py must name its pipe.")
        counts[PIPE_OF[opcode]] += 1
    return counts


def rows_of(kernel):
    """Lines of one kernel. A lane's m8n8k4 takes 4 weights, and each row tile repeats it."""
    row_tiles = re.search(r", (\d+)>$", kernel.name)
    products = sum(bool(re.match(r"HMMA\.884\..*STEP0$", instruction.opcode)) for instruction in kernel.loop)
    if not row_tiles or not products or products % int(row_tiles[1]):
        raise GateError(f"{kernel.name} has {products} m8n8k4 in its main loop: expected a multiple of its row tiles, "
                        "the last template argument.")
    resources = kernel.resources
    return [
        ("registers", resources.registers),
        ("spills", resources.spills),
        ("stack", resources.stack),
        ("shared", resources.shared),
        ("loop_bytes", INSTRUCTION_BYTES * len(kernel.loop)),
        ("instructions", len(kernel.loop)),
        *pipe_counts(kernel).items(),
        *((opcode.lower(), count(kernel.loop, opcode)) for opcode in ("LDG", "LDS", "STS")),
        ("stall_cycles", sum(max(1, instruction.stall) for instruction in kernel.loop)),
        ("sums", len(kernel.sums)),
        ("weights", 4 * products // int(row_tiles[1])),
    ]


def sources_of(source, root=ROOT):
    """The source and what it includes of include/qpn, by name from the root: the source first, then in order of name."""
    found, pending = set(), [source]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        try:
            text = (root / name).read_text()
        except OSError as error:
            raise GateError(f"{name}, which the kernels are compiled from, cannot be read: {error.strerror}.")
        pending += ["include/" + header for header in re.findall(r'^\s*#\s*include\s*["<](qpn/[^">]+)[">]', text, re.M)]
    return [source, *sorted(found - {source})]


def digest(names, root=ROOT):
    total = hashlib.sha256()
    for name in names:
        body = (root / name).read_bytes()
        total.update(f"{name} {len(body)}\n".encode() + body)
    return total.hexdigest()


def identity_lines(root=ROOT):
    names = sources_of(SOURCE, root)
    return [f"source {name}" for name in names] + [f"sources_sha256 {digest(names, root)}"]


def table_of(kernels, release, identity):
    lines = ["# Main loops of the sm_70 kernels, written by sass_table.py, which says what the lines mean."]
    lines += [f"compiler {release}", *identity]
    for kernel in kernels:
        lines += ["", f"kernel {kernel.name}", *(f"  {key} {value}" for key, value in rows_of(kernel))]
    return "\n".join(lines) + "\n"


def compiler_release():
    text, _ = output_of([toolkit_folder() / "bin" / "nvcc", "--version"])
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    if not found:
        raise GateError("nvcc --version names no release.")
    return found[1]


def fresh(committed, identity):
    """Why the committed table does not belong to these sources, a sentence each."""
    lines = committed.splitlines()
    if [line for line in lines if line.startswith(("source ", "sources_sha256 "))] != identity:
        yield f"{TABLE.name} is stale: the sources of the kernels are not those it was made from; {REMEDY}."


def differences(committed, made):
    """What differs, a sentence each; nothing where the texts are equal."""
    if committed == made:
        return
    kernel = "the head"
    old, new = committed.splitlines(), made.splitlines()
    for before, after in zip(old, new):
        if after.startswith("kernel "):
            kernel = after
        if before != after:
            yield f"{TABLE.name} differs in {kernel}: it has `{before.strip()}`, the compiler makes `{after.strip()}`; {REMEDY}."
            return
    yield f"{TABLE.name} has {len(old)} lines, {len(new)} were made; {REMEDY}."


def main():
    arguments = argparse.ArgumentParser(description="Writes or checks the table of the sm_70 main loops.")
    mode = arguments.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--fresh", action="store_true")
    options = arguments.parse_args()
    try:
        identity = identity_lines()
        if options.fresh:
            sentences = list(fresh(TABLE.read_text(), identity))
        else:
            made = table_of(read_kernels(ROOT / SOURCE), compiler_release(), identity)
            sentences = list(differences(TABLE.read_text(), made)) if options.check else []
            if not options.check:
                TABLE.write_text(made)
    except (GateError, OSError) as error:
        sentences = [str(error)]
    for sentence in sentences:
        print(f"sass table: {sentence}")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
