#!/usr/bin/env bash
# Checks the rules of lint.sh: each must pass a clean tree and find what is planted.
set -u
lint=$(cd "$(dirname "$0")" && pwd)/lint.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0
header='// SPDX-License-Identifier: Apache-2.0\n#pragma once\n'

expect() {  # expect RULE EXIT_CODE WHAT
  local output code
  output=$(bash "$lint" "$1" "$tree" 2>&1)
  code=$?
  if [ "$code" -ne "$2" ]; then
    echo "rule $1, $3: exit code $code, expected $2"
    printf '%s\n' "$output"
    failed=1
  fi
}

reset() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/include/qpn" "$tree/examples/qwen38_server/text" "$tree/test"
  printf "${header}constexpr int sum(int a, int b) { return a + b; }\nstatic_assert(sum(1, 1) == 2);\n" > "$tree/include/qpn/sum.hpp"
}

plant() {  # plant RULE FILE LINE: the rule must fail for it
  reset
  mkdir -p "$(dirname "$tree/$2")"
  printf "$header%b" "$3" > "$tree/$2"
  expect "$1" 1 "planted in $2: $3"
}

reset
for rule in banned macros layout text machine size shell coverage; do expect "$rule" 0 "clean tree"; done
expect no_such_rule 2 "unknown rule"

plant banned include/qpn/a.hpp 'inline void f() { std::cout << 1; }\n'
plant banned include/qpn/a.hpp 'inline void f() { std::printf("1"); }\n'
plant banned include/qpn/a.hpp 'inline void f() { abort(); }\n'
plant banned include/qpn/a.hpp 'inline void f(int i) { assert(i > 0); }\n'
plant banned include/qpn/a.cuh 'inline void f() { cudaDeviceSynchronize(); }\n'
plant banned include/qpn/a.hpp '#include <iostream>\n'
plant banned include/qpn/a.hpp '#include <cuda_fp16.h>\n'
plant banned include/qpn/a.hpp '#if __CUDA_ARCH__ >= 800\n#endif\n'
plant banned examples/qwen38_server/text/a.hpp 'using namespace std;\n'
plant banned examples/qwen38_server/text/a.cpp '#include <cuda_runtime.h>\n'
plant macros include/qpn/a.hpp '#define HELPER 1\n'
plant macros include/qpn/a.hpp '#  define HELPER 1\n'
plant macros test/a.hpp '#define HELPER 1\n'
plant text include/qpn/a.hpp 'int f(); \n'
plant text include/qpn/a.hpp 'int f();'
plant text include/qpn/a.hpp '<<<<<<< ours\n'
plant machine test/a.hpp '// see /r''oot/notes\n'
plant machine test/a.hpp '// see /tm''p/notes\n'
plant shell test/a.sh 'if true; then\n'
mention() {  # mention EXIT_CODE NAME: the page names a test; the tree has sum.is_exact and Sums.test_all
  reset
  mkdir -p "$tree/docs"
  printf 'TEST(sum, is_exact) {\n}\n' > "$tree/test/sum_test.cpp"
  printf 'class Sums(unittest.TestCase):\n    def test_all(self):\n' > "$tree/test/sum_test.py"
  printf '| row | `%s` |\n' "$2" > "$tree/docs/bug-coverage.md"
  expect coverage "$1" "the page names $2"
}
for name in sum.is_exact 'sum.*' 'sum.is_*' Sums.test_all; do mention 0 "$name"; done
for name in sum.is_exac sum.is_exact_too summ.is_exact Sums.test_none; do mention 1 "$name"; done

plant layout include/qpn/long.hpp "$(printf 'int f();\\n%.0s' $(seq 800))"

reset
printf 'int f();\n' > "$tree/include/qpn/a.hpp"
expect layout 1 "neither licence line nor include guard"
reset
head -c 4194305 /dev/zero > "$tree/test/blob.bin"
expect size 1 "a file of 4 MiB and one byte"
if command -v "${CLANG_FORMAT:-clang-format-14}" > /dev/null; then
  plant format test/a.cpp 'int   f( );\n'
fi

exit "$failed"
