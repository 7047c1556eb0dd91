#!/usr/bin/env bash
# Checks that what a part of qpn needs is on this machine, and installs what is missing:
#   bash cmake/setup.sh PART...      parts: build, test, demo, clients, lint, volta
# As root with apt it installs; otherwise it prints the command and exits 1. QPN_NO_SETUP=1 skips everything, for
# machines where the needs are met in another way. This list is the only place that names packages to install;
# volta also gets a CUDA toolkit for sm_70, in a folder of its own (cmake/volta_toolkit.sh).
set -u

# part | what is checked | what it is called in messages | Debian and Ubuntu package
needs='
build | compiler                                | a C++20 compiler (g++ 11 or newer)   | g++
build | version cmake 3.25                      | CMake 3.25 or newer                  | cmake
build | program ninja                           | Ninja                                | ninja-build
build | header boost/version.hpp 108100         | the headers of Boost 1.81 or newer   | BOOST
build | header nlohmann/json.hpp                | nlohmann-json                        | nlohmann-json3-dev
build | header CLI/CLI.hpp                      | CLI11                                | libcli11-dev
build | header spdlog/spdlog.h                  | spdlog                               | libspdlog-dev
build | header utf8proc.h                       | utf8proc                             | libutf8proc-dev
test  | header gtest/gtest.h                    | GoogleTest                           | libgtest-dev
test  | header benchmark/benchmark.h            | Google Benchmark                     | libbenchmark-dev
test  | header pcre2posix.h                     | PCRE2                                | libpcre2-dev
test  | program python3                         | Python 3                             | python3
demo  | program curl                            | curl                                 | curl
demo  | program jq                              | jq                                   | jq
clients | program node                       | Node.js                              | nodejs
clients | program npm                        | npm                                  | npm
lint  | program clang-format-14                 | clang-format 14                      | clang-format-14
lint  | program clang-tidy-14                   | clang-tidy 14                        | clang-tidy-14
volta | cuda_compiler                           | a g++ of release 9 to 13             | CUDA_GXX
volta | program python3                         | Python 3                             | python3
'

say() { printf 'set-up: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

# probe SOURCE: whether the compiler takes these lines.
probe() { printf '%s\n' "$@" | "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - > /dev/null 2>&1; }

compiler() { probe '#include <ranges>' '#if __cplusplus < 202002L' '#error' '#endif'; }
cuda_compiler() {
  local version
  version=$(g++ -dumpversion 2> /dev/null | cut -d. -f1)
  { [ "${version:-0}" -ge 9 ] && [ "$version" -le 13 ]; } || program g++-13
}
program() { type -P "$1" > /dev/null; }
version() {  # version PROGRAM LOWEST
  local have
  have=$("$1" --version 2> /dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  [ -n "$have" ] && [ "$(printf '%s\n' "$2" "$have" | sort -V | head -n 1)" = "$2" ]
}
header() {  # header PATH [LOWEST_BOOST_VERSION]
  if [ $# -eq 1 ]; then
    probe "#if !__has_include(<$1>)" '#error' '#endif'
  else
    probe "#include <$1>" "#if BOOST_VERSION < $2" '#error' '#endif'
  fi
}

# Debian 12's libboost-dev is 1.74 and has a newer sibling; elsewhere (Debian 13, Ubuntu 24.04: 1.83) it is new enough.
# Its g++ is 12; Debian 13's is too new for CUDA 12.4.
package_name() {
  local bookworm=
  ! grep -q bookworm /etc/os-release 2> /dev/null || bookworm=1
  case $1 in
    BOOST) echo "libboost${bookworm:+1.81}-dev" ;;
    CUDA_GXX) [ -n "$bookworm" ] && echo g++ || echo g++-13 ;;
    *) echo "$1" ;;
  esac
}

# missing PART...: sets missing_names and missing_packages.
missing() {
  local part check name package
  missing_names=()
  missing_packages=()
  while IFS='|' read -r part check name package; do
    part=${part// /}
    [ -n "$part" ] && [[ " $* " == *" $part "* ]] || continue
    $check && continue  # unquoted: a function and its arguments
    name=$(echo $name)
    missing_names+=("$name")
    missing_packages+=("$(package_name ${package// /})")
  done <<< "$needs"
}

join() { local IFS=,; echo "$*" | sed 's/,/, /g'; }

# apt_get ARGUMENT...: apt-get without questions, tried three times, since mirrors and locks pass.
apt_get() {
  local try
  for try in 1 2 3; do
    DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" < /dev/null && return
    [ "$try" -eq 3 ] || sleep $((5 * try))
  done
  return 1
}

install_packages() {
  local package known=()
  missing "$@"
  [ ${#missing_packages[@]} -gt 0 ] || { say "nothing is missing for: $*"; return; }
  program apt-get || fail "missing: $(join "${missing_names[@]}"). Install them with this system's package manager."
  if [ "$(id -u)" -ne 0 ]; then
    fail "missing: $(join "${missing_names[@]}"). Run: sudo apt-get update && sudo apt-get install -y" \
         "--no-install-recommends ${missing_packages[*]}"
  fi

  say "installing ${missing_packages[*]}"
  apt_get update > /dev/null || say 'apt-get update failed in part; going on with the lists at hand'
  # Only lint may go without: newer systems have no clang 14.
  if [ "$*" = lint ]; then
    for package in "${missing_packages[@]}"; do
      apt-cache show "$package" > /dev/null 2>&1 || { say "left out: apt knows no $package"; continue; }
      known+=("$package")
    done
    [ ${#known[@]} -gt 0 ] || return 0
    missing_packages=("${known[@]}")
  fi
  # --no-remove: an older Boost that somebody installed is theirs to remove.
  apt_get install -y --no-install-recommends --no-remove "${missing_packages[@]}" > /dev/null ||
    fail "apt-get could not install ${missing_packages[*]}; its reason is above."
  missing "$@"
  [ ${#missing_packages[@]} -eq 0 ] || [ "$*" = lint ] ||
    fail "installed, but still not good enough: $(join "${missing_names[@]}"). This system's packages are too old."
  say "everything is there for: $*"
}

main() {
  local part toolkit
  for part in "$@"; do
    case $part in
      build | test | demo | clients | lint | volta) ;;
      *) fail "no part is called '$part' (build, test, demo, clients, lint, volta)" ;;
    esac
  done
  [ $# -gt 0 ] || fail 'say what for: build, test, demo, clients, lint, volta'
  [ -z "${QPN_NO_SETUP:-}" ] || { say 'skipped (QPN_NO_SETUP)'; return; }

  install_packages "$@"
  if [[ " $* " == *' volta '* ]]; then
    toolkit=$(bash "$(dirname "$0")/volta_toolkit.sh") || exit 1
    say "CUDA for sm_70 is in $toolkit"
  fi
}

main "$@"
