# SPDX-License-Identifier: Apache-2.0
"""Writes and reads a checkpoint in the published mixed format: NVFP4 MLP and head, FP8 projections, BF16 rest."""
import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import model as model_module
from quantize import E2M1_MAX, E4M3_MAX, GROUP, fp8, fp8_values, nvfp4, nvfp4_values, pack_codes, unpack_codes, weight_class
from tokenizer import ADDED_IDS

PREFIX = "model.language_model."


def published_name(name):
    return name if name.startswith(("lm_head.", "mtp.")) else PREFIX + name


def activation_maxima(model, params, rows):
    """{parameter: largest |input|} of every quantised linear over the given rows."""
    names = {w.data_ptr(): name for name, w in params.items()}
    maxima = {}
    plain = model_module.linear

    def recording(x, w):
        name = names.get(w.data_ptr())
        maxima[name] = max(maxima.get(name, 0.0), x.abs().max().item())
        return plain(x, w)

    model_module.linear = recording
    try:
        with torch.no_grad():
            recording(model.hidden(params, rows), params["lm_head.weight"])
    finally:
        model_module.linear = plain
    return maxima


def text_config(c, special=ADDED_IDS):
    return {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": special["<|endoftext|>"], "dtype": "bfloat16",
        "eos_token_id": special["<|endoftext|>"], "full_attention_interval": c.full_attention_interval, "head_dim": c.head_dim, "hidden_act": "silu",
        "hidden_size": c.hidden_size, "initializer_range": 0.02, "intermediate_size": c.intermediate_size,
        "layer_types": ["full_attention" if c.is_full(i) else "linear_attention" for i in range(c.num_hidden_layers)],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": c.linear_head_dim, "linear_num_key_heads": c.linear_num_key_heads,
        "linear_num_value_heads": c.linear_num_value_heads, "linear_value_head_dim": c.linear_head_dim, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": c.num_attention_heads, "num_hidden_layers": c.num_hidden_layers, "num_key_value_heads": c.num_key_value_heads,
        "output_gate_type": "swish", "pad_token_id": None, "partial_rotary_factor": c.rotary_dim / c.head_dim, "rms_norm_eps": c.eps,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": c.rotary_dim / c.head_dim,
                            "rope_theta": c.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": False, "use_cache": True, "vocab_size": c.vocab_size}


def write_checkpoint(directory, c, params, maxima, special=ADDED_IDS, float32=(), shard_bytes=15 << 20):
    """Quantises params and writes config, index and shards; `special` maps added tokens to ids, `float32` names
    unquantised tensors to keep as F32."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors, quantized = {}, {}
    for name, w in params.items():
        out, kind = published_name(name), weight_class(name)
        w = w.detach().float().cpu()
        if kind == "bf16":
            tensors[out] = w if name in float32 else w.bfloat16()
            continue
        module = out[:-len(".weight")]
        if kind == "nvfp4":
            codes, tensors[module + ".weight_scale"], tensors[module + ".weight_scale_2"] = nvfp4(w)
            tensors[out] = pack_codes(codes)
            tensors[module + ".input_scale"] = torch.tensor(maxima[name] / (E2M1_MAX * E4M3_MAX))
            quantized[module] = {"quant_algo": "NVFP4", "group_size": GROUP}
        else:
            tensors[out], tensors[module + ".weight_scale"] = fp8(w)
            tensors[module + ".input_scale"] = torch.tensor(maxima[name] / E4M3_MAX)
            quantized[module] = {"quant_algo": "FP8"}
    size = {name: t.numel() * t.element_size() for name, t in tensors.items()}
    count = max(2, -(-sum(size.values()) // shard_bytes))
    shards, at = [{} for _ in range(count)], 0
    for name in sorted(tensors):
        shards[min(at * count // sum(size.values()), count - 1)][name] = tensors[name].contiguous()
        at += size[name]
    index = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{count:05d}.safetensors"
        save_file(shard, str(directory / file), metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, file))
    weights = lambda bits, **more: {"dynamic": False, "num_bits": bits, "type": "float", **more}
    ignore = ["model.visual*", "mtp*"] + [f"{PREFIX}layers.{i}.linear_attn.{m}" for i in range(c.num_hidden_layers) if not c.is_full(i)
                                         for m in ("in_proj_a", "in_proj_b", "conv1d")]
    fp8_modules = [m for m, q in quantized.items() if q["quant_algo"] == "FP8"]
    quantization = {
        "config_groups": {
            "group_0": {"input_activations": weights(8), "weights": weights(8), "targets": fp8_modules},
            "group_1": {"input_activations": weights(4, group_size=GROUP), "weights": weights(4, group_size=GROUP), "targets": [m for m in quantized if m not in fp8_modules]}},
        "ignore": ignore, "quant_algo": "MIXED_PRECISION", "quant_method": "modelopt", "quantized_layers": quantized}
    files = {
        "model.safetensors.index.json": {"metadata": {"total_size": sum(size.values())}, "weight_map": dict(sorted(index.items()))},
        "config.json": {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": special["<|image_pad|>"], "language_model_only": True, "model_type": "qwen3_5",
            "quantization_config": quantization, "text_config": text_config(c, special), "tie_word_embeddings": False, "video_token_id": special["<|video_pad|>"],
            "vision_end_token_id": special["<|vision_end|>"], "vision_start_token_id": special["<|vision_start|>"]},
        "generation_config.json": {
            "bos_token_id": special["<|endoftext|>"], "do_sample": True, "eos_token_id": [special["<|im_end|>"], special["<|endoftext|>"]],
            "pad_token_id": special["<|endoftext|>"], "temperature": 1.0, "top_k": 20, "top_p": 0.95},
        "hf_quant_config.json": {
            "producer": {"name": "qpn demo_model", "version": "1"},
            "quantization": {"exclude_modules": ignore, "kv_cache_quant_algo": None, "quant_algo": "MIXED_PRECISION", "quantized_layers": quantized}}}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return sum(size.values())


def load_checkpoint(directory):
    """{parameter name without prefix: dequantised fp32 values} of a checkpoint directory."""
    directory = Path(directory)
    raw = {}
    for file in sorted(set(json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"].values())):
        with safe_open(str(directory / file), "pt") as shard:
            raw.update({name: shard.get_tensor(name) for name in shard.keys()})
    params = {}
    for name, w in raw.items():
        module = name[:-len(".weight")]
        if name.endswith((".weight_scale", ".weight_scale_2", ".input_scale")):
            continue
        if module + ".weight_scale_2" in raw:
            w = nvfp4_values(unpack_codes(w), raw[module + ".weight_scale"], raw[module + ".weight_scale_2"])
        elif module + ".weight_scale" in raw:
            w = fp8_values(w, raw[module + ".weight_scale"])
        params[name[len(PREFIX):] if name.startswith(PREFIX) else name] = w.float()
    return params
