#!/usr/bin/env bash
# Sourced by scripts that run in stages: times each one and prints a table at the end, also after a failure.
#   stage NAME COMMAND...    stage_table
stage_rows=()

stage() {
  local name=$1 begin=$EPOCHREALTIME code=0
  shift
  printf '\n== %s\n' "$name"
  # Not `if` or `||`: either would switch off `set -e` inside a function that is run.
  set +e
  (set -e; "$@")
  code=$?
  set -e
  local ms=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000))
  local outcome=ok
  [ "$code" -eq 0 ] || outcome="failed ($code)"
  stage_rows+=("$(printf '%-24s %4d.%02d  %s' "$name" $((ms / 60000)) $((ms % 60000 / 600)) "$outcome")")
  [ "$code" -eq 0 ] && return
  stage_table
  printf '\nStage "%s" failed (exit code %d); its output is above.\n' "$name" "$code" >&2
  exit 1
}

stage_table() {
  printf '\n%-24s %7s\n' stage minutes
  printf '%s\n' "${stage_rows[@]}"
}
