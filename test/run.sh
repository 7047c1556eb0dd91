#!/usr/bin/env bash
# Installs what is missing, builds and runs all host tests, and the GPU tests where there is a GPU:
#   bash test/run.sh [--preset dev|asan|tsan] [--quick]
# --quick leaves out the packaging and lint tests. Works from any folder.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. cmake/stages.sh

preset=dev
quick=
expected_skips=2  # device_group_of_gpus, which needs several GPUs; wide passes of cuda_engine, which take minutes emulated
gpu_programs=9  # all of them are skipped where there is no GPU, none where there is one
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs one of dev, asan, tsan}; shift ;;
    --quick) quick=1 ;;
    -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (known: --preset NAME, --quick)" >&2; exit 2 ;;
  esac
  shift
done
case $preset in dev | asan | tsan) ;; *) echo "run.sh: no test preset is called $preset" >&2; exit 2 ;; esac

reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
jobs=$(nproc)

sum() { grep -hoP "$1" "$reports"/*.xml | awk '{ total += $1 } END { print total + 0 }'; }

run_tests() {
  local options=(--preset "$preset" -L host -j "$jobs") code=0 cases failed skipped
  [ -z "$quick" ] || options+=(-LE 'package|lint')
  # ctest counts programs; each GoogleTest program leaves the counts of its cases.
  GTEST_OUTPUT="xml:$reports/" ctest "${options[@]}" 2>&1 | tee "$reports/ctest.log" || code=$?

  cases=$(sum '<testsuites tests="\K[0-9]+')
  failed=$(sum '<testsuites .*failures="\K[0-9]+')
  skipped=$(($(sum '<testsuites .*disabled="\K[0-9]+') + $(cat "$reports"/*.xml | grep -c 'result="skipped"' || true) +
    $(grep -cE '\*\*\*(Skipped|Not Run)' "$reports/ctest.log" || true)))
  printf '\nGoogleTest cases: %d passed, %d failed, %d skipped\n' $((cases - failed - skipped)) "$failed" "$skipped"
  if [ "$skipped" -ne "$expected_skips" ]; then
    echo "$skipped tests were skipped, expected $expected_skips: each skip must be known to test/run.sh." >&2
    code=1
  fi
  return "$code"
}

run_gpu_tests() {
  local code=0 programs skipped expected=0
  programs=$(ctest --preset "$preset" -L gpu -N | sed -n 's/^Total Tests: //p')
  if [ "$programs" -eq 0 ]; then
    echo 'No nvcc: the programs that need a GPU are not built.'
    return
  fi
  ctest --preset "$preset" -L gpu 2>&1 | tee "$reports/gpu.log" || code=$?
  skipped=$(grep -c '\*\*\*Skipped' "$reports/gpu.log" || true)
  compgen -G '/dev/nvidia[0-9]*' > /dev/null || expected=$gpu_programs
  echo "GPU programs: $programs, $skipped skipped"
  if [ "$skipped" -ne "$expected" ]; then
    echo "$skipped GPU programs were skipped, expected $expected." >&2
    code=1
  fi
  return "$code"
}

stage set-up bash cmake/setup.sh build test
stage configure cmake --preset "$preset"
stage build cmake --build --preset "$preset" -j "$jobs"
stage test run_tests
stage 'GPU tests' run_gpu_tests
stage_table
