#!/usr/bin/env bash
# clang-tidy over the host sources of a build folder that has compile_commands.json: tidy.sh BUILD [PATH_REGEX]
# Generated units and what nvcc compiles are left out.
set -u
build=${1:?usage: tidy.sh BUILD [PATH_REGEX]}
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
sources=$(grep -oP '"file": "\K[^"]*\.cpp' "$build/compile_commands.json" | sort -u |
  grep -F "$root/" | grep -vF "$(cd "$build" && pwd)/" | grep -E "${2:-.}")
[ -n "$sources" ] || { echo "tidy.sh: $build/compile_commands.json holds no source of $root"; exit 2; }
count=$(printf '%s\n' "$sources" | wc -l)
printf '%s\n' "$sources" |
  xargs -d '\n' -n 1 -P "$(nproc)" "${CLANG_TIDY:-clang-tidy-14}" -p "$build" --quiet ||
  { echo "clang-tidy: findings in $count sources, see above"; exit 1; }
echo "clang-tidy: $count sources, no findings"
