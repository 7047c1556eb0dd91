#!/usr/bin/env bash
# What reviewers miss: lint.sh RULE [ROOT] prints every offending line of the tree and exits 1 if there is one.
# Rules: banned, macros, layout, text, machine, size, shell, coverage, format.
set -u
rule=${1:?usage: lint.sh RULE [ROOT]}
root=$(cd "${2:-$(dirname "$0")/../..}" && pwd) || exit 2
cd "$root" || exit 2

# Tracked files and those that could be; without git, all but build folders.
all_files() {
  if [ -e .git ] && command -v git > /dev/null && git rev-parse > /dev/null 2>&1; then
    git ls-files -co --exclude-standard
  else
    find . -name .git -prune -o -path ./build -prune -o -type f -print | sed 's,^\./,,'
  fi | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done | sort
}

# files REGEX: the paths that match it.
files() { all_files | grep -P "$1"; }

# forbid PATHS REGEX REASON: prints path:line of each match in the files that match PATHS.
forbid() {
  local found
  found=$(files "$1" | xargs -r -d '\n' grep -nIPH "$2" --)
  [ -n "$found" ] || return 0
  printf '%s\n' "$found" | sed "s|\$|   <- $3|"
  failed=1
}

code='\.(hpp|cpp|cuh|cu)$'
header='\.(hpp|cuh)$'
failed=0

case $rule in
  banned)
    library='^include/.*\.(hpp|cuh)$'
    forbid "$library" '\bstd::(cout|cerr|clog)\b|\b(printf|fprintf|puts|putchar)\s*\(' 'the library prints nothing'
    forbid "$library" '\b(std::)?(_?exit|abort|quick_exit|terminate)\s*\(' 'the library ends no process'
    forbid "$library" '(?<![_\w])assert\s*\(|<cassert>' 'the library returns qpn::status instead of asserting'
    forbid "$library" 'cuda(Device|Stream)Synchronize' 'the library never synchronises'
    forbid "$library" '#\s*include\s*<(iostream|sstream|functional|thrust/.*|cub/cub\.cuh|cuda/std/.*)>' 'too heavy for a header'
    forbid '^include/.*\.hpp$' '#\s*include\s*[<"].*(cuda|\.cuh)' 'a .hpp needs no CUDA'
    forbid '^include/qpn/(?!arch/|config\.hpp)' '__CUDA_ARCH__' 'belongs to include/qpn/arch or config.hpp'
    forbid "$header" '^using namespace' 'at namespace scope in a header'
    forbid '^examples/qwen38_server/(text|checkpoint|api|http|engine|cli)/' '#\s*include\s*[<"](cuda|.*\.cuh)' 'this folder is free of CUDA'
    ;;
  macros)
    forbid '^include/.*\.(hpp|cuh)$' '^\s*#\s*define\s+(?!QPN_)' 'macros of the library start with QPN_'
    forbid '^(examples|test|bench)/.*\.(hpp|cuh)$' '^\s*#\s*define\s+(?!(QPN|QWEN38)_)' 'macros start with QPN_ or QWEN38_'
    ;;
  layout)
    files "$code" | xargs -r -d '\n' awk '
      FNR == 1 && !/SPDX-License-Identifier: Apache-2.0/ { print FILENAME ":1: expected the SPDX licence line"; bad = 1 }
      FNR == 801 { print FILENAME ": more than 800 lines"; bad = 1 }
      END { exit bad }' || failed=1
    files "$header" | xargs -r -d '\n' grep -L '^#pragma once' | grep . && { echo '   <- #pragma once is missing'; failed=1; }
    ;;
  text)
    own='\.(hpp|cpp|cuh|cu|cmake|sh|py|md|awk|in|yml)$|CMakeLists\.txt$|\.ci/run$'
    forbid "$own" '[ \t\r]+$' 'space at the end of the line'
    forbid "$own" '^(<<<<<<<|>>>>>>>) ' 'left by a merge'
    for file in $(files "$own"); do
      [ -z "$(tail -c 1 "$file")" ] || { echo "$file: no newline at the end"; failed=1; }
    done
    ;;
  machine)  # written so that the patterns do not match themselves
    forbid '.' '/w[o]rk/|/r[o]ot/|/h[o]me/[a-z]|/tmp/[a-z]' 'path of one machine'
    forbid '.' '(d[e]b|security|snapshot)\.debian|registry\.n[p]mjs|archive\.u[b]untu' 'host of a package archive'
    ;;
  size)  # a shard of the demo checkpoint may be larger
    all_files | grep -v '^examples/qwen38_server/demo_model/.*\.safetensors$' | xargs -r -d '\n' stat -c '%s %n' |
      awk '$1 > 4 * 1024 * 1024 { print $2 ": " $1 " bytes, at most 4 MiB are allowed"; bad = 1 } END { exit bad }' || failed=1
    ;;
  shell)
    for file in $(files '\.sh$|^\.ci/run$'); do
      bash -n "$file" || failed=1
      head -n 1 "$file" | grep -q '^#!/usr/bin/env bash$' || { echo "$file:1: expected #!/usr/bin/env bash"; failed=1; }
    done
    ;;
  coverage)  # each `suite.case` (or `suite.*`, or part of a case's name before *) of the page is a test of the tree
    page=docs/bug-coverage.md
    [ -f "$page" ] || exit 0
    tests=$(files '_test\.(cpp|py)$' | xargs -r -d '\n' perl -0777 -ne '
      print "$1.$2\n" while /^TEST(?:_P|_F)?\(\s*(\w+),\s*(\w+)\s*\)/mg;
      my $suite = "";
      for (split /\n/) { $suite = $1 if /^class (\w+)/; print "$suite.$1\n" if /^\s+def (test_\w+)\(/ }')
    for name in $(grep -oP '`\K\w+\.[\w*]+(?=`)' "$page" | sort -u); do
      printf '%s\n' "$tests" | grep -qE "^$(printf '%s' "$name" | sed 's/\./\\./; s/\*/.*/')\$" ||
        { grep -n -F "$name" "$page" | sed "s|^\([0-9]*\):.*|$page:\1: no test is called $name|"; failed=1; }
    done
    ;;
  format)  # version 14: others format differently
    files "$code" | xargs -r -d '\n' "${CLANG_FORMAT:-clang-format-14}" --dry-run --Werror -- || failed=1
    ;;
  *)
    echo "lint.sh: no rule is called '$rule'"
    exit 2
    ;;
esac
exit "$failed"
