# SPDX-License-Identifier: Apache-2.0
"""Writes the model goldens: what the model computes in fp32 on dequantised checkpoint weights.

    python3 make_goldens.py tiny OUT_DIR                     a random checkpoint and its goldens, in OUT_DIR
    python3 make_goldens.py converted CHECKPOINT_DIR OUT_DIR logits of what `qwen38_server convert` made of the tiny one
    python3 make_goldens.py demo CHECKPOINT_DIR OUT_DIR      goldens of the demo checkpoint

`tiny` and `converted` are computed by transformers' Qwen3.5. The MTP layer is not part of that model; it is built here from
the same library's decoder layer, norm and rotary embedding. `demo` is computed by demo_model/model.py, which `tiny` holds
against transformers. Goldens are manifest.json (name, shape, byte offset, sha256 of each tensor, all fp32 little-endian) and
goldens.bin. Token ids are in the manifest. `tiny` and `converted` need torch, transformers and safetensors; `demo` torch,
tokenizers and safetensors.

golden/converted comes from these steps. convert_test.cpp repeats the first two, which need no packages, and demands shards
with the manifest's sha256:

    python3 ../checkpoint/bf16_source.py golden/tiny BF16_DIR
    qwen38_server convert BF16_DIR CHECKPOINT_DIR --shard-bytes 600000
    python3 make_goldens.py converted CHECKPOINT_DIR golden/converted
"""
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo_model"))

import torch

import export
import model as own
from evaluate import rows_of
from tokenizer import ADDED_IDS

TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=256, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=6)
TINY_VALID_IDS = 500  # the last 33 of them stand for the added tokens


class Golden:
    """Collects named fp32 tensors and writes them with their manifest."""

    def __init__(self, about, **versions):
        self.manifest = {"about": about, "generator": "test/model/make_goldens.py", **versions, "dtype": "f32", "byte_order": "little", "prompts": [], "tensors": []}
        self.data = bytearray()

    def add(self, name, tensor):
        raw = tensor.detach().float().contiguous().cpu().numpy().astype("<f4").tobytes()
        self.manifest["tensors"].append({"name": name, "shape": list(tensor.shape), "offset": len(self.data), "sha256": hashlib.sha256(raw).hexdigest()})
        self.data += raw

    def write(self, directory):
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.manifest["bytes"] = len(self.data)
        (directory / "goldens.bin").write_bytes(self.data)
        (directory / "manifest.json").write_text(json.dumps(self.manifest, indent=1) + "\n")


class Reference:
    """transformers' model and an MTP layer from its parts, in fp32 on the CPU."""

    def __init__(self, config, params):
        from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen
        from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
        text = {k: v for k, v in export.text_config(config).items() if k not in ("dtype", "model_type", "bos_token_id", "eos_token_id")}
        self.config = Qwen3_5TextConfig(**text)
        self.config._attn_implementation = "eager"
        self.model = qwen.Qwen3_5ForCausalLM(self.config).float().eval()
        state = {(n if n.startswith("lm_head.") else "model." + n): w for n, w in params.items() if not n.startswith("mtp.")}
        self.model.load_state_dict(state, strict=True)
        self.layer = qwen.Qwen3_5DecoderLayer(self.config, config.full_attention_interval - 1).float().eval()
        self.layer.load_state_dict({n[len("mtp.layers.0."):]: w for n, w in params.items() if n.startswith("mtp.layers.0.")}, strict=True)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.fc.weight.data = params["mtp.fc.weight"]
        self.norms = {}
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            self.norms[name] = qwen.Qwen3_5RMSNorm(config.hidden_size, eps=config.eps)
            self.norms[name].weight.data = params[f"mtp.{name}.weight"]

    @torch.no_grad()
    def forward(self, ids):
        """(hidden after each layer, hidden after the final norm, logits), each [tokens, ...]."""
        layers = []
        hooks = [layer.register_forward_hook(lambda m, i, out: layers.append((out[0] if isinstance(out, tuple) else out)[0])) for layer in self.model.model.layers]
        final = self.model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
        for hook in hooks:
            hook.remove()
        return [x.view(len(ids), -1) for x in layers], final[0], self.model.lm_head(final)[0]

    @torch.no_grad()
    def mtp(self, hidden, next_ids):
        """MTP hidden after its norm [rows, hidden]; row p takes hidden[p] and the token at position p + 1."""
        n = len(next_ids)
        x = torch.cat((self.norms["pre_fc_norm_embedding"](self.model.model.embed_tokens(torch.tensor([next_ids]))),
                       self.norms["pre_fc_norm_hidden"](hidden[None])), -1)
        x = self.fc(x)
        positions = torch.arange(n).expand(3, 1, n)
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        out = self.layer(x, position_embeddings=self.model.model.rotary_emb(x, positions), attention_mask=mask, position_ids=positions[0])
        return self.norms["norm"](out[0] if isinstance(out, tuple) else out)[0]

    def chain(self, hidden, ids, first, depth, valid_ids):
        """Greedy drafts after the sampled token `first`: (ids, logits [depth, vocab])."""
        rows, tokens, drafts, logits = hidden, list(ids[1:]) + [first], [], []
        for _ in range(depth):
            m = self.mtp(rows, tokens)[-1:]
            logits.append(self.model.lm_head(m)[0].detach())
            drafts.append(int(logits[-1][:valid_ids].argmax()))
            rows, tokens = torch.cat((rows, m)), tokens + [drafts[-1]]
        return drafts, torch.stack(logits)


def tiny_parameters(config):
    """Random weights with random norms, gates, decays and convolutions, so that no default hides a mistake."""
    rng = torch.Generator().manual_seed(20)
    params = own.initial_parameters(config, 11)
    for name, w in params.items():
        if "norm" in name:
            w += torch.rand(w.shape, generator=rng) * 0.6 - 0.3
        elif name.endswith("A_log"):
            w.copy_(torch.empty(w.shape).uniform_(0.2, 4, generator=rng).log())
        elif name.endswith("dt_bias"):
            w.copy_(torch.empty(w.shape).uniform_(-3, 1, generator=rng))
        elif name == "lm_head.weight":
            w *= 6 / 0.02 / config.hidden_size ** 0.5
        elif name == "embed_tokens.weight":
            w *= 2
        elif name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            w *= 2.5
        # Parts that an engine fuses get scales of their own.
        w *= {"q_proj": 1.7, "k_proj": 1.0, "v_proj": 0.6, "gate_proj": 1.3, "up_proj": 0.7, "in_proj_z": 1.5}.get(name.split(".")[-2] if "." in name else "", 1.0)
    return params


def add_prompt(golden, reference, name, ids):
    layers, final, logits = reference.forward(ids)
    first = int(logits[-1][:TINY_VALID_IDS].argmax())
    drafts, draft_logits = reference.chain(final, ids, first, 3, TINY_VALID_IDS)
    golden.manifest["prompts"].append({"name": name, "ids": ids, "next_id": first, "drafts": drafts})
    for i, x in enumerate(layers):
        golden.add(f"{name}.hidden.{i}", x)
    golden.add(f"{name}.final", final)
    golden.add(f"{name}.logits", logits)
    m = reference.mtp(final, ids[1:] + [first])
    golden.add(f"{name}.mtp.hidden", m)
    golden.add(f"{name}.mtp.logits", reference.model.lm_head(m))
    golden.add(f"{name}.mtp.chain_logits", draft_logits)
    return final, logits, layers


def check_training_model(config, params, ids, final):
    """The training code computes what transformers does."""
    ours = own.Model(config).hidden(params, rows_of([ids], "cpu"))[0, :len(ids)]
    error = ((ours - final).abs().max() / final.abs().max()).item()
    print(f"training model against transformers, {len(ids)} tokens: {error:.2e}")
    if not error < 1e-4:
        raise RuntimeError("the training model differs from transformers")


def make_tiny(out):
    config = own.Config(**TINY)
    params = tiny_parameters(config)
    rng = torch.Generator().manual_seed(3)
    prompts = {"short": torch.randint(TINY_VALID_IDS, (7,), generator=rng).tolist(), "long": torch.randint(TINY_VALID_IDS, (70,), generator=rng).tolist()}
    special = {token: TINY_VALID_IDS - len(ADDED_IDS) + i for i, token in enumerate(ADDED_IDS)}
    maxima = export.activation_maxima(own.Model(config), params, rows_of(list(prompts.values()), "cpu"))
    size = export.write_checkpoint(out, config, params, maxima, special, float32=("layers.0.linear_attn.A_log",))
    params = export.load_checkpoint(out)
    reference = Reference(config, params)
    import transformers
    golden = Golden(f"tiny random checkpoint; ids from {TINY_VALID_IDS} on have no text", transformers=transformers.__version__, torch=torch.__version__)
    golden.manifest["valid_ids"] = TINY_VALID_IDS
    for name, ids in prompts.items():
        final, logits, layers = add_prompt(golden, reference, name, ids)
        check_training_model(config, params, ids, final)
        print(name, "largest hidden", [round(x.abs().max().item(), 2) for x in layers], "logits", round(logits.abs().max().item(), 2))
    golden.write(out)
    print(f"tiny: {size} bytes of tensors, {len(golden.data)} bytes of goldens")


def make_converted(checkpoint, out):
    """Logits of the tiny checkpoint's prompts on the values that a converted directory holds."""
    import transformers
    reference = Reference(own.Config(**TINY), export.load_checkpoint(checkpoint))
    golden = Golden("the tiny checkpoint in BF16 and through qwen38_server convert", transformers=transformers.__version__, torch=torch.__version__)
    golden.manifest["shards"] = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(Path(checkpoint).glob("*.safetensors"))}
    tiny = json.loads((Path(__file__).resolve().parent / "golden/tiny/manifest.json").read_text())
    for prompt in tiny["prompts"]:
        logits = reference.forward(prompt["ids"])[2]
        golden.manifest["prompts"].append({"name": prompt["name"], "ids": prompt["ids"]})
        golden.add(f"{prompt['name']}.logits", logits)
        print(prompt["name"], "largest logit", round(logits.abs().max().item(), 2))
    golden.write(out)
    print(f"converted: {len(golden.data)} bytes of goldens")


@torch.no_grad()
def make_demo(checkpoint, out, prompts=4, new_tokens=80, depth=3):
    from tokenizers import Tokenizer

    from documents import evaluation_set
    from evaluate import VALID_IDS, best_ids, greedy
    from prompt import render
    tokenizer = Tokenizer.from_file(str(Path(checkpoint) / "tokenizer.json"))
    params, model = export.load_checkpoint(checkpoint), own.Model(own.Config())
    golden = Golden("demo checkpoint on held-out documents, computed by demo_model/model.py", torch=torch.__version__)
    golden.manifest["valid_ids"] = VALID_IDS
    for row in evaluation_set("held_out", prompts):
        messages = ([{"role": "system", "content": row["system"]}] if row["system"] else []) + [{"role": "user", "content": row["user"]}]
        ids = tokenizer.encode(render(messages, row["enable_thinking"], row["reasoning_effort"]), add_special_tokens=False).ids
        guess = tokenizer.encode(row["completion"], add_special_tokens=False).ids[:new_tokens]
        text = greedy(model, params, [ids], [guess], max_tokens=new_tokens)[0]
        hidden = model.hidden(params, rows_of([ids + text], "cpu"))[0, len(ids) - 4:len(ids) + len(text) - 1]
        logits = own.linear(hidden, params["lm_head.weight"])
        best = logits[3:, :VALID_IDS].topk(2).values
        golden.add(f"{row['id']}.logits.last4", logits[:4])
        drafts = []
        for d in range(depth):
            rows = rows_of([ids + text[:1] + drafts], "cpu")
            chain = model.drafts(params, rows, model.hidden(params, rows), d + 1)
            drafts.append(int(best_ids(params, chain[d])[0, len(ids) - 1 + d]))
        golden.manifest["prompts"].append({"name": row["id"], "ids": ids, "next_id": text[0], "drafts": drafts, "generated": text,
                                           "smallest_margin": round(float((best[:, 0] - best[:, 1]).min()), 4)})
    golden.write(out)
    print(f"demo: {len(golden.data)} bytes of goldens")


if __name__ == "__main__":
    {"tiny": make_tiny, "converted": make_converted, "demo": make_demo}[sys.argv[1]](*sys.argv[2:])
