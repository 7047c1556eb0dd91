# SPDX-License-Identifier: Apache-2.0
"""Trains the demo tokenizer: Qwen3.8's byte-level BPE pipeline with a small vocabulary.

Same normaliser, pre-tokeniser and added tokens as Qwen3.8, ids 0..4043 for bytes and merges, then its 33 added tokens.
The training text is cut so that no merge joins a letter to a blank or a punctuation mark before it: a word then has the
same pieces wherever it stands, which makes copying from a document easy for a small model.

    python3 tokenizer.py OUT_DIR      writes tokenizer.json and tokenizer_config.json   (needs the tokenizers package)
"""
import json
import re
import sys
from pathlib import Path

from documents import Generator

BASE_VOCABULARY = 4044
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
ADDED = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
         "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
         "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
         "<tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> "
         "<tts_text_eod> <tts_text_bos_single> <|audio_pad|>").split()
NOT_SPECIAL = set(ADDED[14:26])  # printed even where special tokens are skipped
ADDED_IDS = {token: BASE_VOCABULARY + i for i, token in enumerate(ADDED)}


def training_pieces(documents):
    """Texts of generated conversations, cut before each word."""
    generator = Generator("train", "tokenizer")
    control = re.compile("|".join(map(re.escape, ADDED)))
    for _ in range(documents):
        for text in generator.text_pair():
            for part in control.split(text):
                yield from re.split(r"(?<=[^\w'])(?=[^\W\d_])", part)


def train(out_dir, documents=30000):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=BASE_VOCABULARY, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_pieces(documents), trainer)
    if tokenizer.get_vocab_size() != BASE_VOCABULARY:
        raise RuntimeError(f"{tokenizer.get_vocab_size()} tokens learned, expected {BASE_VOCABULARY}")
    for token in ADDED:
        added = AddedToken(token, normalized=False, special=token not in NOT_SPECIAL)
        (tokenizer.add_tokens if token in NOT_SPECIAL else tokenizer.add_special_tokens)([added])
    for token, expected in ADDED_IDS.items():
        if tokenizer.token_to_id(token) != expected:
            raise RuntimeError(f"{token} has id {tokenizer.token_to_id(token)}, expected {expected}")
    tokenizer.save(str(Path(out_dir) / "tokenizer.json"))
    config = {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": token not in NOT_SPECIAL} for token, i in ADDED_IDS.items()},
        "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 262144, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    (Path(out_dir) / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return tokenizer


if __name__ == "__main__":
    train(sys.argv[1])
