#!/usr/bin/env bash
# Runs the programs that need a GPU under compute-sanitizer, each tool over all of them:
#   bash test/sanitize.sh [--build DIR] [--jobs N] [--all-races] [memcheck|racecheck|synccheck|initcheck ...]
# Without a tool all four run. DIR is a build of the preset cuda (default build/cuda). racecheck slows a launch down a
# thousand times: of the GEMM's tests it runs those that have every kernel once on small shapes; with --all-races all
# but those that repeat one launch often.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/cuda
jobs=6
all_races=false
tools=()
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --all-races) all_races=true ;;
    memcheck | racecheck | synccheck | initcheck) tools+=("$1") ;;
    -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
    *) echo "sanitize.sh: unknown argument $1 (known: --build DIR, --jobs N, --all-races and the four tools)" >&2; exit 2 ;;
  esac
  shift
done
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck synccheck initcheck)
PATH=$PATH:/usr/local/cuda/bin
command -v compute-sanitizer > /dev/null || { echo 'sanitize.sh: compute-sanitizer is not on the PATH; it comes with the CUDA toolkit' >&2; exit 2; }

# Tests that ask for a device that does not exist, for more memory than there is, or for a capture that cannot end (the
# sanitizer reports the error that they expect), or for an idle GPU. Whole models run the kernels that the operations' tests run, only longer, and read files.
everywhere=-gpu_device_info.a_device_that_is_not_there*:cuda_memory.what_does_not_fit*:captures_of_two_streams.are_refused*:idle_gpu.*:cuda_model.*:cuda_round.*:cuda_engine.*:cuda_demo.*:*cuda_long_prompt.*:cuda_ranks.*
# What repeats one launch often is left to the other tools.
repeats=gpu_gemm_launch.gives_the_same_bits_every_time:gpu_gemm_launch.*stream*:gpu/gpu_gemm_projection.*:*cuda_attention.long_contexts*

races='*gpu_gemm_every_kernel.*:gpu_candidates.of_shards_merge*'

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

check() { # TOOL PROGRAM SHARD SHARDS
  local log="$logs/$1.$(basename "$2").$3" filter=$everywhere
  if [ "$1" = racecheck ]; then
    local -x QPN_TEST_FEW_SEEDS=1  # tests that draw many random cases draw few
    case $2/$all_races in
      */gpu_gemm_test/false) filter=$races ;;
      *) filter+=:$repeats ;;
    esac
  fi
  if GTEST_TOTAL_SHARDS=$4 GTEST_SHARD_INDEX=$3 compute-sanitizer --tool "$1" --error-exitcode 9 "$2" "--gtest_filter=$filter" > "$log" 2>&1; then
    : > "$log.passed"
  fi
  printf '%s %s %d/%d: %s\n' "$1" "$(basename "$2")" $(($3 + 1)) "$4" "$(grep -hoE '[0-9]+ tests?\.$|SUMMARY: .*' "$log" | tr '\n' ' ')"
}

programs=(examples/01_gemm_nvfp4/example_gemm_nvfp4 examples/03_cuda_graph/example_cuda_graph test/gpu/gpu_prepack_test test/gpu/gpu_gemm_test
  examples/qwen38_server/test/ops/qwen38_cuda_test examples/qwen38_server/test/ops/qwen38_cuda_ranks_test)
for program in "${programs[@]}"; do
  [ -x "$build/$program" ] || { echo "sanitize.sh: $build/$program is not there: build the preset cuda first" >&2; exit 2; }
done
for tool in "${tools[@]}"; do
  for program in "${programs[@]}"; do
    shards=1
    case $program in *_test) shards=$jobs ;; esac
    for ((shard = 0; shard < shards; shard++)); do
      while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
      check "$tool" "$build/$program" "$shard" "$shards" &
    done
  done
done
wait

failed=0
for log in "$logs"/*; do
  case $log in *.passed) continue ;; esac
  [ -e "$log.passed" ] || { failed=$((failed + 1)); echo "--- $(basename "$log")"; tail -40 "$log"; }
done
total=$(find "$logs" -type f ! -name '*.passed' | wc -l)
echo "$((total - failed)) of $total runs clean"
[ "$failed" -eq 0 ] && [ "$total" -gt 0 ]
