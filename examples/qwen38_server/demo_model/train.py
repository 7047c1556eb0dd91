# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model by the clock: the schedule follows the time that is left, not a number of steps.

    python3 train.py --work DIR --deadline UNIX_TIME [--start 0.0] [--stop 1.0] [--init CHECKPOINT_DIR] [--export OUT_DIR]

DIR holds tokenizer.json; state.pt in it is resumed if there, else the weights of `--init`. `--start` and `--stop` say which part of the schedule this
run covers, so that one training can be cut into several runs. Documents are generated, tokenised and packed into rows by
worker processes. The model and its MTP layer are trained together; the last third of the schedule runs on fake-quantised
weights. Needs torch with CUDA, tokenizers and safetensors.
"""
import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from documents import Generator, evaluation_set
from evaluate import evaluate
from model import Config, Model, Rows, initial_parameters, linear
from quantize import ROUNDED, dequantized, weight_class
from tokenizer import ADDED_IDS

ROWS, LENGTH, GAP = 40, 768, 3       # a batch; GAP padding tokens let the convolution forget the document before
MTP_ROWS, MTP_DEPTH, MTP_WEIGHT = 5, 7, 0.4
PROMPT_WEIGHT = 0.05                 # loss weight of prompt tokens; answers have 1
PEAK_RATE, WARM_UP, DECAY, QUANTIZED_FROM = 2e-3, 0.01, 0.05, 0.65
PAD = ADDED_IDS["<|endoftext|>"]


class PackedDocuments(torch.utils.data.IterableDataset):
    """Endless batches (ids, document number or -1, 0 padding / 1 prompt / 2 answer), each [ROWS, LENGTH]."""

    def __init__(self, tokenizer_file, seed):
        self.tokenizer_file, self.seed = tokenizer_file, seed

    def __iter__(self):
        from tokenizers import Tokenizer
        worker = torch.utils.data.get_worker_info()
        tokenizer = Tokenizer.from_file(self.tokenizer_file)
        tokens = sorted(token for token in tokenizer.get_vocab() if token.isascii() and token.isalpha())
        generator = Generator("train", f"{self.seed}-{worker.id if worker else 0}", tokens)
        pool = []
        while True:
            ids = torch.full((ROWS, LENGTH), PAD, dtype=torch.int32)
            document = torch.full((ROWS, LENGTH), -1, dtype=torch.int32)
            kind = torch.zeros((ROWS, LENGTH), dtype=torch.uint8)
            for row in range(ROWS):
                at = number = 0
                while True:
                    if len(pool) < 64:
                        pairs = [generator.text_pair() for _ in range(64)]
                        encoded = tokenizer.encode_batch([text for pair in pairs for text in pair], add_special_tokens=False)
                        pool += [(p.ids, c.ids) for p, c in zip(encoded[0::2], encoded[1::2]) if len(p.ids) + len(c.ids) <= LENGTH]
                    # A random document first, then always the longest that still fits.
                    fitting = [0] if at == 0 else [i for i, (p, c) in enumerate(pool) if len(p) + len(c) <= LENGTH - at]
                    if not fitting:
                        break
                    p, c = pool.pop(max(fitting, key=lambda i: len(pool[i][0]) + len(pool[i][1])))
                    end = at + len(p) + len(c)
                    ids[row, at:end] = torch.tensor(p + c, dtype=torch.int32)
                    document[row, at:end] = number
                    kind[row, at:at + len(p)] = 1
                    kind[row, at + len(p):end] = 2
                    at, number = end + GAP, number + 1
            yield ids, document, kind


def weighted_loss(hidden, head, targets, weights):
    losses = F.cross_entropy(linear(hidden, head).float().flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def ahead(x, by):
    """x[b, t + by] at [b, t]; the end wraps around and must carry no weight."""
    return x.roll(-by, 1)


def working_weights(params, quantized, rounded):
    """The weights a step runs on: bf16 matrices, of the checkpoint's values in the quantised phase, gradients passed through."""
    out = {}
    for name, w in params.items():
        value = w
        if quantized:
            with torch.no_grad():
                change = rounded[weight_class(name)](w) - w
            value = w + change
        out[name] = value.bfloat16() if w.dim() == 2 else value
    return out


def rate(progress):
    if progress < WARM_UP:
        return PEAK_RATE * progress / WARM_UP
    return PEAK_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))))


class Trainer:
    def __init__(self, compiled=True, device="cuda"):
        self.config, self.device = Config(), device
        wrap = torch.compile if compiled else (lambda f: f)
        self.model, self.loss = Model(self.config, wrap), wrap(weighted_loss)
        self.rounded = {kind: f if kind == "bf16" else wrap(f) for kind, f in ROUNDED.items()}
        self.params = {name: w.requires_grad_() for name, w in initial_parameters(self.config, 0, device).items()}
        matrices = [w for w in self.params.values() if w.dim() >= 2]
        others = [w for w in self.params.values() if w.dim() < 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                           lr=PEAK_RATE, betas=(0.9, 0.98), **({"fused": True} if device == "cuda" else {}))
        self.steps = self.tokens = self.taken = 0

    def losses(self, work, ids, document, kind):
        """(answer and prompt loss, MTP losses by depth)."""
        rows = Rows(ids, document)
        hidden = self.model.hidden(work, rows)
        same = [(ahead(document, d) == document) & (document >= 0) for d in (1, 2)]
        for s, d in zip(same, (1, 2)):
            s[:, -d:] = False
        weights = same[0] * ((ahead(kind, 1) == 2) + PROMPT_WEIGHT * (ahead(kind, 1) == 1))
        main = self.loss(hidden, work["lm_head.weight"], ahead(ids, 1), weights)
        part = rows.head(MTP_ROWS)
        targets, mtp_weights = ahead(part.ids, 2), (same[1] & (ahead(kind, 2) == 2))[:MTP_ROWS].float()
        drafts = self.model.drafts(work, part, hidden[:MTP_ROWS], MTP_DEPTH)
        return main, torch.stack([self.loss(m, work["lm_head.weight"], targets, mtp_weights) for m in drafts])

    def step(self, batch, progress):
        ids, document, kind = (x.to(self.device, non_blocking=True) for x in batch)
        ids, document = ids.long(), document.long()
        work = working_weights(self.params, progress >= QUANTIZED_FROM, self.rounded)
        main, mtp = self.losses(work, ids, document, kind)
        (main + MTP_WEIGHT * mtp.mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.params.values(), 1.0)
        self.taken += 1
        for group in self.optimizer.param_groups:  # a run that starts without optimizer state must not jump
            group["lr"] = rate(progress) * min(1.0, self.taken / 100)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        self.tokens += ids.numel()
        return main.detach(), mtp.detach()

    def state(self):
        return {"params": {n: w.detach() for n, w in self.params.items()}, "optimizer": self.optimizer.state_dict(), "steps": self.steps, "tokens": self.tokens}

    def load(self, state):
        with torch.no_grad():
            for name, w in self.params.items():
                w.copy_(state["params"][name])
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.tokens = state["steps"], state["tokens"]

    def quick_evaluation(self, tokenizer, rows):
        """Dev results in bf16 on the quantised weights; a wrong document counts as wrong without being decoded to its end."""
        work = {n: (w.bfloat16() if w.dim() == 2 else w) for n, w in dequantized({n: w.detach() for n, w in self.params.items()}).items()}
        return evaluate(Model(self.config), work, tokenizer, rows, decode=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--start", type=float, default=0.0)
    parser.add_argument("--stop", type=float, default=1.0)
    parser.add_argument("--init")
    parser.add_argument("--export")
    parser.add_argument("--workers", type=int, default=13)
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    work = Path(args.work)
    torch.backends.cuda.matmul.allow_tf32 = True
    seed = f"run-{args.start}-{int(args.deadline)}"
    loader = iter(torch.utils.data.DataLoader(PackedDocuments(str(work / "tokenizer.json"), seed), batch_size=None, num_workers=args.workers,
                                              prefetch_factor=8, pin_memory=True))
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    dev = evaluation_set("dev", 128)
    trainer = Trainer(compiled=not args.eager)
    state_file = work / "state.pt"
    if state_file.exists():
        trainer.load(torch.load(state_file, map_location="cuda"))
        print(f"resumed at step {trainer.steps}", flush=True)
    elif args.init:
        from export import load_checkpoint
        trainer.load({"params": load_checkpoint(args.init), "steps": 0, "tokens": 0})
    began = time.time()
    for _ in range(2):  # compiles; these steps count, at the first rate of this run
        trainer.step(next(loader), max(args.start, 1e-4))
        torch.cuda.synchronize()
        print(f"first step {time.time() - began:.1f} s", flush=True)
    if args.start < QUANTIZED_FROM < args.stop:
        working_weights(trainer.params, True, trainer.rounded)  # compile now, not in the middle
    first, last_log, last_save, last_steps = time.time(), time.time(), time.time(), trainer.steps
    while time.time() < args.deadline:
        progress = args.start + (args.stop - args.start) * (time.time() - first) / (args.deadline - first)
        main_loss, mtp_losses = trainer.step(next(loader), min(progress, args.stop))
        if time.time() - last_log > 15:
            value = main_loss.item()
            speed = (trainer.steps - last_steps) / (time.time() - last_log)
            print(f"progress {progress:.3f} step {trainer.steps} tokens {trainer.tokens / 1e6:.0f}M loss {value:.4f} mtp "
                  f"{' '.join(f'{x:.3f}' for x in mtp_losses.tolist())} {1e3 / speed:.0f} ms/step {speed * ROWS * LENGTH:.0f} tok/s", flush=True)
            if not math.isfinite(value) and state_file.exists():
                print("the loss is not finite: back to the last saved state", flush=True)
                trainer.load(torch.load(state_file, map_location="cuda"))
            last_log, last_steps = time.time(), trainer.steps
        if time.time() - last_save > 100:
            torch.save(trainer.state(), work / "saving.pt")
            (work / "saving.pt").rename(state_file)
            result = trainer.quick_evaluation(tokenizer, dev)
            print(f"dev exact text {result['same_text']:.3f} tau {result['tau']} by task {result['by_task']}", flush=True)
            last_save = last_log = time.time()
            last_steps = trainer.steps
    torch.save(trainer.state(), work / "saving.pt")
    (work / "saving.pt").rename(state_file)
    print(f"trained: step {trainer.steps}, {trainer.tokens / 1e6:.0f}M tokens, {time.time() - first:.0f} s", flush=True)
    if args.export:
        export(trainer, tokenizer, Path(args.export), work)
    os._exit(0)  # the workers generate for ever


def export(trainer, tokenizer, out, work):
    from export import activation_maxima, write_checkpoint
    from evaluate import rows_of
    params = {name: w.detach() for name, w in trainer.params.items()}
    values = dequantized(params)
    generator = Generator("train", "calibration")
    sample = [tokenizer.encode("".join(generator.text_pair()), add_special_tokens=False).ids for _ in range(64)]
    maxima = activation_maxima(Model(trainer.config), values, rows_of(sample, "cuda"))
    size = write_checkpoint(out, trainer.config, params, maxima)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((work / name).read_bytes())
    print(f"exported {size} bytes; largest inputs of down_proj {max(v for n, v in maxima.items() if n and 'down_proj' in n):.1f}, "
          f"of all {max(maxima.values()):.1f}", flush=True)


if __name__ == "__main__":
    main()
