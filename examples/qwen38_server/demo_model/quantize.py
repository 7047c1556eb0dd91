# SPDX-License-Identifier: Apache-2.0
"""ModelOpt's NVFP4 and FP8 weight formats: quantise, dequantise, and fake-quantise for training.

    NVFP4: w[n, k] = e2m1(code[n, k]) * weight_scale[n, k / 16] * weight_scale_2, weight_scale_2 = amax / (6 * 448)
    FP8:   w[n, k] = e4m3[n, k] * weight_scale, weight_scale = amax / 448
"""
import re

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1_MAX, E4M3_MAX, GROUP = 6.0, 448.0, 16
NVFP4_NAMES = re.compile(r"layers\.\d+\.mlp\.(gate|up|down)_proj\.weight|lm_head\.weight")
FP8_NAMES = re.compile(r"layers\.\d+\.(self_attn\.[qkvo]_proj|linear_attn\.(in_proj_qkv|in_proj_z|out_proj))\.weight")


def weight_class(name):
    """'nvfp4', 'fp8' or 'bf16' for a parameter name without its model prefix."""
    return "nvfp4" if NVFP4_NAMES.fullmatch(name) else "fp8" if FP8_NAMES.fullmatch(name) else "bf16"


def round_e4m3(x):
    """The nearest e4m3 value, as a float8 tensor; saturates at +-448."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def e2m1_codes(x):
    """Codes 0..15 of the nearest e2m1 values, ties to the even code; bit 3 is the sign."""
    a = x.abs()
    code = ((a > 0.25).int() + (a >= 0.75).int() + (a > 1.25).int() + (a >= 1.75).int() + (a > 2.5).int()
            + (a >= 3.5).int() + (a > 5.0).int())
    return (code + 8 * (x < 0).int()).to(torch.uint8)


def e2m1_values(codes):
    table = torch.tensor(E2M1 + tuple(-v for v in E2M1), device=codes.device)
    return table[codes.long()]


def nvfp4(w):
    """(codes [n, k] uint8, weight_scale [n, k / 16] e4m3, weight_scale_2 scalar) of w [n, k]."""
    groups = w.float().unflatten(-1, (-1, GROUP))
    scale_2 = (w.abs().amax().float() / (E2M1_MAX * E4M3_MAX)).clamp(min=1e-30)
    # 2^-9 is the smallest positive e4m3: a group of tiny weights keeps a usable scale.
    scale = round_e4m3((groups.abs().amax(-1) / (E2M1_MAX * scale_2)).clamp(min=2.0 ** -9))
    codes = e2m1_codes(groups / (scale.float() * scale_2).unsqueeze(-1))
    return codes.flatten(-2), scale, scale_2


def nvfp4_values(codes, scale, scale_2):
    return (e2m1_values(codes).unflatten(-1, (-1, GROUP)) * (scale.float() * scale_2).unsqueeze(-1)).flatten(-2)


def pack_codes(codes):
    """Two codes a byte, the even k in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_codes(packed):
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2)


def fp8(w):
    """(e4m3 [n, k], weight_scale scalar) of w [n, k]."""
    scale = (w.abs().amax().float() / E4M3_MAX).clamp(min=1e-30)
    return round_e4m3(w.float() / scale), scale


def fp8_values(codes, scale):
    return codes.float() * scale


def nvfp4_rounded(w):
    return nvfp4_values(*nvfp4(w))


def fp8_rounded(w):
    return fp8_values(*fp8(w))


def bf16_rounded(w):
    return w.bfloat16().float()


ROUNDED = {"nvfp4": nvfp4_rounded, "fp8": fp8_rounded, "bf16": bf16_rounded}


def dequantized(params):
    """The values that a checkpoint holds for these parameters, in fp32."""
    return {name: ROUNDED[weight_class(name)](w) for name, w in params.items()}
