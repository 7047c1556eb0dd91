# SPDX-License-Identifier: Apache-2.0
"""Writes the values of a quantised checkpoint as a BF16 checkpoint, for `convert` to start from (standard library only).

usage: bf16_source.py CHECKPOINT OUT

Every NVFP4 and FP8 linear of CHECKPOINT is dequantised and rounded to BF16 (to nearest, ties to even), every other tensor
keeps its bytes, and scales are left out. OUT gets one shard, its index, config.json without quantization_config and
generation_config.json. The shard holds the widest elements first, so that all are aligned, and equal ones by name.
"""
import array
import json
import struct
import sys
from pathlib import Path

from convert_check import decode_fp8, decode_nvfp4, read, scalar

SCALES = (".weight_scale", ".weight_scale_2", ".input_scale")
ELEMENT_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
SHARD = "model-00001-of-00001.safetensors"


def bf16_bytes(values):
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("H", ((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words)).tobytes()


def in_bf16(tensors, name):
    """(dtype, shape, bytes) of one tensor that is no scale."""
    dtype, shape, data = tensors[name]
    if dtype == "U8":
        _, _, scales = tensors[name + "_scale"]
        return "BF16", [shape[0], 2 * shape[1]], bf16_bytes(decode_nvfp4(data, scales, scalar(tensors[name + "_scale_2"])))
    if dtype == "F8_E4M3":
        return "BF16", shape, bf16_bytes(decode_fp8(data, scalar(tensors[name + "_scale"])))
    return dtype, shape, data


def main(checkpoint, out):
    checkpoint, out = Path(checkpoint), Path(out)
    tensors = read(checkpoint)
    dense = {name: in_bf16(tensors, name) for name in sorted(tensors) if not name.endswith(SCALES)}
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, (dtype, shape, raw) in sorted(dense.items(), key=lambda item: -ELEMENT_BYTES[item[1][0]]):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    out.mkdir(parents=True, exist_ok=True)
    (out / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + data)
    index = {"metadata": {"total_size": len(data)}, "weight_map": dict.fromkeys(dense, SHARD)}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((checkpoint / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    (out / "generation_config.json").write_bytes((checkpoint / "generation_config.json").read_bytes())


if __name__ == "__main__":
    assert sys.byteorder == "little"
    main(*sys.argv[1:])
