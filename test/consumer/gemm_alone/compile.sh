#!/usr/bin/env bash
# Compiles gemm.cu against an installed tree with nothing but nvcc:
#   bash compile.sh PREFIX NVCC|volta ARCHITECTURE     volta: the toolkit of cmake/volta_toolkit.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 nvcc=$2 architecture=$3
if [ "$nvcc" = volta ]; then
  toolkit=$(bash "$here/../../../cmake/volta_toolkit.sh" | tail -1)
  nvcc=$toolkit/bin/nvcc
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$nvcc" -std=c++17 -arch="$architecture" -Werror all-warnings -Xcompiler=-Wall,-Wextra -I "$prefix/include" \
  -cubin -o "$out/gemm.cubin" "$here/gemm.cu"
echo "qpn/gemm.cuh compiles for $architecture with $("$nvcc" --version | grep -o 'release [0-9.]*')"
