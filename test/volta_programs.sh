#!/usr/bin/env bash
# What a build of the preset volta has made, on a machine with or without a GPU:
#   bash test/volta_programs.sh BUILD_FOLDER CUDA_FOLDER
# Fails unless every program that launches kernels holds machine code for sm_70 and no other, the server needs nothing
# but the system's own libraries, it runs a model on the CPU, and where there is no GPU says so in one sentence.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${1:?usage: volta_programs.sh BUILD_FOLDER CUDA_FOLDER}")
cuda=${2:?usage: volta_programs.sh BUILD_FOLDER CUDA_FOLDER}
server=$build/examples/qwen38_server/qwen38_server
model=$root/examples/qwen38_server/demo_model
failed=0

complain() {
  echo "volta_programs.sh: $*" >&2
  failed=1
}

for program in "$server" "$build"/bench/gemm_{roofline,chain} \
    "$build"/examples/qwen38_server/bench/qwen38_{gpu_ops_bench,reduction_latency}; do
  [ -x "$program" ] || { complain "$program was not built."; continue; }
  codes=$("$cuda/bin/cuobjdump" --list-elf "$program" 2> /dev/null | grep -o 'sm_[0-9a-z]*' | sort -u | tr '\n' ' ') || true
  echo "$(basename "$program"): machine code for ${codes:-nothing}"
  [ "$codes" = 'sm_70 ' ] || complain "$program has code for '$codes', expected sm_70 alone."
done

own='linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+'
foreign=$(ldd "$server" | grep -vE "^\s*(/\S*/)?($own)\.so" || true)
[ -z "$foreign" ] || complain "the server needs libraries that not every system has:"$'\n'"$foreign"

version=$("$server" --version)
grep -qxE '[0-9]+\.[0-9]+\.[0-9]+' <<< "$version" || complain "--version says '$version'."
"$server" inspect "$model" > /dev/null || complain 'inspect fails on the demo model.'
said=$("$server" generate --model "$model" --device cpu --no-thinking --max-tokens 8 --prompt hello 2> /dev/null) ||
  complain 'generate fails on the CPU.'
[ -n "$said" ] || complain 'generate says nothing on the CPU.'

if ! compgen -G '/dev/nvidia[0-9]*' > /dev/null; then
  code=0
  said=$("$server" generate --model "$model" --device cuda --max-tokens 4 --prompt hello 2>&1 > /dev/null) || code=$?
  echo "without a GPU, exit code $code: $said"
  [ "$code" -ne 0 ] || complain '--device cuda succeeds without a GPU.'
  [ "$(wc -l <<< "$said")" -eq 1 ] && grep -qE '^qwen38_server: .*(GPU|CUDA).*\.?$' <<< "$said" ||
    complain "--device cuda says '$said' where there is no GPU, expected one sentence about it."
fi
exit "$failed"
