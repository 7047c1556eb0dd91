# SPDX-License-Identifier: Apache-2.0
"""Holds a converted checkpoint against its 16-bit source with arithmetic of its own (standard library only).

usage: convert_check.py SOURCE CONVERTED VALUES

Quantises every linear of SOURCE by ModelOpt's rules, each operation rounded to fp32, and demands the same codes and
scales in CONVERTED, and the same bytes of every other tensor. Decodes CONVERTED and writes VALUES.bin (fp32 little-endian
values of all quantised linears) and VALUES.json ([{module, class, count, relative_rms}], in the order of the values).
"""
import array
import bisect
import json
import math
import re
import struct
import sys
from pathlib import Path

NVFP4 = re.compile(r"(.*\.layers\.\d+\.mlp\.(gate|up|down)_proj|lm_head)\.weight")
FP8 = re.compile(r".*\.layers\.\d+\.(self_attn\.[qkvo]_proj|linear_attn\.(in_proj_qkv|in_proj_z|out_proj))\.weight")
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E4M3 = [(c & 7) * 2.0**-9 if c < 8 else (8 + (c & 7)) * 2.0 ** ((c >> 3) - 10) for c in range(127)]  # magnitudes; 127 is NaN


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def nearest(table, x):
    """Code of the magnitude nearest to |x|, ties to the even code, saturating; the sign is left to the caller."""
    x = abs(x)
    high = bisect.bisect_left(table, x)
    if high == len(table):
        return high - 1
    if high == 0 or table[high] == x:
        return high
    below, above = x - table[high - 1], table[high] - x
    if below != above:
        return high - 1 if below < above else high
    return high if high % 2 == 0 else high - 1


def sign(x):
    return math.copysign(1.0, x) < 0


def read(directory):
    """{tensor name: (dtype, shape, bytes)}"""
    tensors = {}
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    for file in sorted(set(index["weight_map"].values())):
        image = (directory / file).read_bytes()
        (length,) = struct.unpack("<Q", image[:8])
        for name, entry in json.loads(image[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            assert index["weight_map"][name] == file, name
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], image[8 + length + begin : 8 + length + end])
    assert set(tensors) == set(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in tensors.values())
    return tensors


def bf16_values(data):
    words = array.array("I", (code << 16 for code in array.array("H", data)))
    return array.array("f", words.tobytes())


def quantise_nvfp4(w):
    scale_2 = f32(max(map(abs, w)) / 2688.0)
    codes, scales = bytearray(), bytearray()
    for first in range(0, len(w), 16):
        group = w[first : first + 16]
        amax = max(map(abs, group))
        code = nearest(E4M3, f32(f32(amax / 6.0) / scale_2)) if amax else 0x38
        scales.append(max(code, 1))
        scale = f32(E4M3[scales[-1]] * scale_2)
        four = [nearest(E2M1, f32(x / scale)) | (8 if sign(x) else 0) for x in group]
        codes.extend(four[i] | four[i + 1] << 4 for i in range(0, 16, 2))
    return bytes(codes), bytes(scales), scale_2


def quantise_fp8(w):
    scale = f32(max(map(abs, w)) / 448.0)
    return bytes(nearest(E4M3, f32(x / scale)) | (0x80 if sign(x) else 0) for x in w), scale


def decode_nvfp4(codes, scales, scale_2):
    for i in range(2 * len(codes)):
        code = codes[i // 2] >> (4 * (i % 2)) & 15
        value = E2M1[code & 7] * E4M3[scales[i // 16] & 0x7F]
        yield f32((-value if (code >> 3 ^ scales[i // 16] >> 7) & 1 else value) * scale_2)


def decode_fp8(codes, scale):
    for code in codes:
        yield f32((-1.0 if code & 0x80 else 1.0) * E4M3[code & 0x7F] * scale)


def scalar(tensor):
    dtype, shape, data = tensor
    assert dtype == "F32" and shape == [], tensor
    return struct.unpack("<f", data)[0]


def main(source, converted, out):
    source, converted = read(Path(source)), read(Path(converted))
    values, rows, expected = array.array("f"), [], set()
    for name in sorted(source):
        dtype, shape, data = source[name]
        expected.add(name)
        kind = "nvfp4" if NVFP4.fullmatch(name) else "fp8_tensor" if FP8.fullmatch(name) else None
        if kind is None or name.startswith("mtp."):
            assert converted[name] == source[name], f"{name} was not copied byte for byte"
            continue
        assert dtype == "BF16", name
        w, (n, k) = bf16_values(data), shape
        scale_name = name + "_scale"
        expected.add(scale_name)
        if kind == "nvfp4":
            expected.add(scale_name + "_2")
            codes, scales, scale_2 = quantise_nvfp4(w)
            assert converted[name] == ("U8", [n, k // 2], codes), f"{name}: other codes"
            assert converted[scale_name] == ("F8_E4M3", [n, k // 16], scales), f"{name}: other block scales"
            assert scalar(converted[scale_name + "_2"]) == scale_2, f"{name}: another global scale"
            decoded = list(decode_nvfp4(codes, scales, scale_2))
        else:
            codes, scale = quantise_fp8(w)
            assert converted[name] == ("F8_E4M3", [n, k], codes), f"{name}: other codes"
            assert scalar(converted[scale_name]) == scale, f"{name}: another scale"
            decoded = list(decode_fp8(codes, scale))
        lost = sum((a - b) ** 2 for a, b in zip(w, decoded))
        rms = math.sqrt(lost / sum(a * a for a in w))
        rows.append({"module": name[: -len(".weight")], "class": kind, "count": len(decoded), "relative_rms": rms})
        values.extend(decoded)
    assert set(converted) == expected, set(converted) ^ expected
    Path(out + ".bin").write_bytes(values.tobytes())
    Path(out + ".json").write_text(json.dumps(rows))


if __name__ == "__main__":
    assert sys.byteorder == "little"
    main(*sys.argv[1:])
