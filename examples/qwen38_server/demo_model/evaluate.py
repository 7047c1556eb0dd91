# SPDX-License-Identifier: Apache-2.0
"""Measures exact JSON and the length of speculative rounds, greedy, in fp32 or in the dtype of the weights given.

    python3 evaluate.py CHECKPOINT_DIR dev|held_out|second [COUNT]
"""
import json
import sys
import time
from pathlib import Path

import torch

from documents import evaluation_set
from model import Config, Model, Rows, linear
from prompt import render
from tokenizer import ADDED_IDS

VALID_IDS = max(ADDED_IDS.values()) + 1
END = ADDED_IDS["<|im_end|>"]


def rows_of(sequences, device):
    """One sequence a row, padded to a multiple of 64."""
    length = -(-max(map(len, sequences)) // 64) * 64
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    document = torch.full((len(sequences), length), -1)
    for i, s in enumerate(sequences):
        ids[i, :len(s)] = torch.tensor(s)
        document[i, :len(s)] = 0
    return Rows(ids.to(device), document.to(device))


def best_ids(params, hidden):
    """Greedy ids at every position; padding rows of the head are never chosen."""
    return linear(hidden, params["lm_head.weight"])[..., :VALID_IDS].float().argmax(-1)


@torch.no_grad()
def greedy(model, params, prompts, guesses, max_tokens=600, group=100, passes=None, seconds=1e9):
    """Greedy continuations of the prompts (lists of ids), END included.

    A guess only saves time: each pass checks it in one forward, corrects its first wrong token, and repeats. With a limit of
    passes or seconds a text may come back unfinished.
    """
    device = params["norm.weight"].device
    texts = [list(g) for g in guesses]
    pending = list(range(len(prompts)))
    began = time.time()
    while pending and passes != 0 and time.time() - began < seconds:
        passes = passes and passes - 1
        todo, still = pending, []
        for at in range(0, len(todo), group):
            part = todo[at:at + group]
            best = best_ids(params, model.hidden(params, rows_of([prompts[i] + texts[i] for i in part], device))).tolist()
            for i, row in zip(part, best):
                predicted = row[len(prompts[i]) - 1:len(prompts[i]) + len(texts[i])]
                wrong = next((j for j, t in enumerate(texts[i]) if predicted[j] != t), None)
                if wrong is not None:
                    texts[i][wrong] = predicted[wrong]
                    if predicted[wrong] == END:
                        del texts[i][wrong + 1:]
                        continue
                elif texts[i][-1:] == [END] or len(texts[i]) >= max_tokens:
                    continue
                else:
                    texts[i].append(predicted[len(texts[i])])
                    if texts[i][-1] == END:
                        continue
                still.append(i)
        pending = still
    return texts


@torch.no_grad()
def round_lengths(model, params, prompts, texts, depths=(3, 7), group=50):
    """{k: (tokens emitted in verify rounds, rounds)} of greedy speculation at each depth k."""
    device = params["norm.weight"].device
    totals = {k: [0, 0] for k in depths}
    for at in range(0, len(prompts), group):
        sequences = [p + t for p, t in zip(prompts[at:at + group], texts[at:at + group])]
        rows = rows_of(sequences, device)
        hidden = model.hidden(params, rows)
        drafts = [best_ids(params, m).tolist() for m in model.drafts(params, rows, hidden, max(depths))]
        for i, s in enumerate(sequences):
            for k in depths:
                anchor = len(prompts[at + i])  # the token that the prompt's own pass has emitted
                while anchor < len(s) - 1:
                    accepted = 0
                    while accepted < min(k, len(s) - 2 - anchor) and drafts[accepted][i][anchor - 1 + accepted] == s[anchor + 1 + accepted]:
                        accepted += 1
                    anchor += accepted + 1
                    totals[k][0] += accepted + 1
                    totals[k][1] += 1
    return totals


def evaluate(model, params, tokenizer, rows, report_failures=0, decode=True, seconds=60):
    """A dict of results over rows of `evaluation_set`; decode=False stops at the first token that differs from the expected text."""
    prompts, guesses = [], []
    for row in rows:
        messages = ([{"role": "system", "content": row["system"]}] if row["system"] else []) + [{"role": "user", "content": row["user"]}]
        prompts.append(tokenizer.encode(render(messages, row["enable_thinking"], row["reasoning_effort"]), add_special_tokens=False).ids)
        guesses.append(tokenizer.encode(row["completion"], add_special_tokens=False).ids)
    texts = greedy(model, params, prompts, guesses, passes=None if decode else 1, seconds=seconds)
    exact, by_task, failures = 0, {}, []
    for row, ids in zip(rows, texts):
        text = tokenizer.decode(ids[:-1] if ids[-1] == END else ids, skip_special_tokens=False)
        try:
            right = json.loads(text.split("</think>")[-1]) == row["expected"] and ids[-1] == END
        except ValueError:
            right = False
        exact += right
        seen = by_task.setdefault(row["task"], [0, 0])
        seen[0] += right
        seen[1] += 1
        if not right:
            failures.append({"id": row["id"], "task": row["task"], "user": row["user"], "expected": row["expected"], "got": text})
    lengths = round_lengths(model, params, prompts, texts)
    return {"documents": len(rows), "exact": exact / len(rows), "by_task": by_task, "same_text": sum(a == b for a, b in zip(texts, guesses)) / len(rows),
            "tau": {k: emitted / rounds for k, (emitted, rounds) in lengths.items()},
            "mean_prompt": sum(map(len, prompts)) / len(rows), "mean_answer": sum(map(len, texts)) / len(rows), "failures": failures[:report_failures]}


def main():
    from tokenizers import Tokenizer

    from export import load_checkpoint
    directory, split = Path(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    device = "cuda" if torch.cuda.is_available() else "cpu"
    params = {name: w.to(device) for name, w in load_checkpoint(directory).items()}
    result = evaluate(Model(Config()), params, Tokenizer.from_file(str(directory / "tokenizer.json")), evaluation_set(split, count), 5)
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
