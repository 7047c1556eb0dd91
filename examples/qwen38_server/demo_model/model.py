# SPDX-License-Identifier: Apache-2.0
"""The Qwen3.5 text architecture with its MTP layer, written for training on packed rows.

Functions over a dict of tensors with transformers' names (without `model.`), so that the same code runs on master
weights, fake-quantised ones and a loaded checkpoint. The gated delta rule is in its chunked form: inside a chunk of 64
tokens a triangular system is inverted for all chunks at once; only the state passes from chunk to chunk in a loop.

Shapes: x [b, t, hidden] fp32 is the residual stream; matrix products run in the dtype of the weights.
"""
import math

import torch
import torch.nn.functional as F

CHUNK = 64
FORGET = -60.0  # log decay at the first token of a document: exp(-60) clears the state of the one before


class Config:
    """Sizes of the demo model; overwrite any by keyword."""

    def __init__(self, **sizes):
        self.vocab_size, self.hidden_size, self.intermediate_size, self.num_hidden_layers = 4096, 192, 768, 8
        self.num_attention_heads, self.num_key_value_heads, self.head_dim, self.rotary_dim = 8, 4, 256, 64
        self.linear_num_key_heads, self.linear_num_value_heads, self.linear_head_dim = 4, 12, 128
        self.rope_theta, self.eps, self.full_attention_interval = 1e7, 1e-6, 4
        for name, value in sizes.items():
            if not hasattr(self, name):
                raise ValueError(f"Config has no field {name}")
            setattr(self, name, value)

    def is_full(self, layer):
        return (layer + 1) % self.full_attention_interval == 0


def parameter_shapes(c):
    """{name: shape} of all parameters, the MTP layer's included."""
    h, m, key, value = c.hidden_size, c.intermediate_size, c.linear_num_key_heads * c.linear_head_dim, c.linear_num_value_heads * c.linear_head_dim
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes = {"embed_tokens.weight": (c.vocab_size, h), "norm.weight": (h,), "lm_head.weight": (c.vocab_size, h)}

    def add_layer(prefix, full):
        if full:
            shapes.update({prefix + "self_attn.q_proj.weight": (2 * q, h), prefix + "self_attn.k_proj.weight": (kv, h),
                           prefix + "self_attn.v_proj.weight": (kv, h), prefix + "self_attn.o_proj.weight": (h, q),
                           prefix + "self_attn.q_norm.weight": (c.head_dim,), prefix + "self_attn.k_norm.weight": (c.head_dim,)})
        else:
            shapes.update({prefix + "linear_attn.in_proj_qkv.weight": (2 * key + value, h), prefix + "linear_attn.in_proj_z.weight": (value, h),
                           prefix + "linear_attn.in_proj_a.weight": (c.linear_num_value_heads, h), prefix + "linear_attn.in_proj_b.weight": (c.linear_num_value_heads, h),
                           prefix + "linear_attn.conv1d.weight": (2 * key + value, 1, 4), prefix + "linear_attn.A_log": (c.linear_num_value_heads,),
                           prefix + "linear_attn.dt_bias": (c.linear_num_value_heads,), prefix + "linear_attn.norm.weight": (c.linear_head_dim,),
                           prefix + "linear_attn.out_proj.weight": (h, value)})
        shapes.update({prefix + "mlp.gate_proj.weight": (m, h), prefix + "mlp.up_proj.weight": (m, h), prefix + "mlp.down_proj.weight": (h, m),
                       prefix + "input_layernorm.weight": (h,), prefix + "post_attention_layernorm.weight": (h,)})

    for layer in range(c.num_hidden_layers):
        add_layer(f"layers.{layer}.", c.is_full(layer))
    shapes.update({"mtp.fc.weight": (h, 2 * h), "mtp.pre_fc_norm_embedding.weight": (h,), "mtp.pre_fc_norm_hidden.weight": (h,), "mtp.norm.weight": (h,)})
    add_layer("mtp.layers.0.", True)
    return shapes


def initial_parameters(c, seed=0, device="cpu"):
    """Fresh fp32 parameters."""
    rng = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in parameter_shapes(c).items():
        if name.endswith("linear_attn.norm.weight"):
            w = torch.ones(shape)
        elif "norm" in name:
            w = torch.zeros(shape)
        elif name.endswith("A_log"):
            w = torch.empty(shape).uniform_(1, 16, generator=rng).log()
        elif name.endswith("dt_bias"):  # softplus(dt_bias) from 0.001 to 0.1: most heads start with a long memory
            dt = torch.exp(torch.empty(shape).uniform_(math.log(1e-3), math.log(0.1), generator=rng))
            w = dt + torch.log(-torch.expm1(-dt))
        elif name.endswith("conv1d.weight"):
            w = torch.empty(shape).uniform_(-0.5, 0.5, generator=rng)
        elif name == "embed_tokens.weight":
            w = torch.randn(shape, generator=rng) * 0.5
        elif name == "lm_head.weight":
            w = torch.randn(shape, generator=rng) * 0.02
        else:
            w = torch.randn(shape, generator=rng) / math.sqrt(shape[-1])
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                w /= math.sqrt(2 * c.num_hidden_layers)
        out[name] = w.to(device)
    return out


def rms_norm(x, w, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + w.float())


def linear(x, w):
    return F.linear(x.to(w.dtype), w)


class _UnitLowerInverse(torch.autograd.Function):
    """(I + a)^-1 of strictly lower triangular matrices a [..., n, n], by a triangular solve."""

    @staticmethod
    def forward(ctx, a):
        eye = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype)
        inverse = torch.linalg.solve_triangular(a + eye, eye.expand_as(a), upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        t = inverse.transpose(-1, -2)
        return -(t @ grad @ t).tril(-1)


unit_lower_inverse = _UnitLowerInverse.apply


def gated_delta_rule(q, k, v, beta, g):
    """o_t = S_t^T q_t, S_t = e^{g_t} S_{t-1} + k_t (beta_t (v_t - e^{g_t} S_{t-1}^T k_t))^T, in fp32.

    q, k [b, t, heads, d]; v [b, t, heads * r, d]; beta, g [b, t, heads * r]; t a multiple of CHUNK. Head h of q and k
    serves the value heads h * r .. h * r + r - 1.
    """
    b, t, heads, d = k.shape
    r = v.shape[2] // heads
    n = t // CHUNK
    q, k = (x.view(b, n, CHUNK, heads, d).permute(0, 3, 1, 2, 4).unsqueeze(2) for x in (q, k))  # [b, h, 1, n, c, d]
    v = v.view(b, n, CHUNK, heads, r, d).permute(0, 3, 4, 1, 2, 5)                              # [b, h, r, n, c, d]
    beta, g = (x.view(b, n, CHUNK, heads, r).permute(0, 3, 4, 1, 2) for x in (beta, g))          # [b, h, r, n, c]
    total = g.cumsum(-1)
    i = torch.arange(CHUNK, device=q.device)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(i[:, None] < i[None, :], -math.inf).exp()
    a = ((k @ k.transpose(-1, -2)) * decay * beta.unsqueeze(-1)).masked_fill(i[:, None] <= i[None, :], 0.0)
    inverse = unit_lower_inverse(a)
    u = inverse @ (v * beta.unsqueeze(-1))
    w = inverse @ (k * (beta * total.exp()).unsqueeze(-1))
    inside = (q @ k.transpose(-1, -2)) * decay
    q_in = q * total.exp().unsqueeze(-1)
    k_out = (k * (total[..., -1:] - total).exp().unsqueeze(-1)).transpose(-1, -2)
    forget = total[..., -1].exp()[..., None, None]
    state = torch.zeros(b, heads, r, d, d, device=q.device, dtype=q.dtype)
    out = []
    for c in range(n):
        delta = u[:, :, :, c] - w[:, :, :, c] @ state
        out.append(q_in[:, :, :, c] @ state + inside[:, :, :, c] @ delta)
        state = forget[:, :, :, c] * state + k_out[:, :, :, c] @ delta
    return torch.stack(out, 3).permute(0, 3, 4, 1, 2, 5).reshape(b, t, heads * r, d)


def linear_attention(p, x, c, keep, first):
    """GDN mixer. keep [b, t]: 0 on padding, whose raw qkv the convolution must see as zeros; first [b, t]: document starts."""
    b, t, _ = x.shape
    key = c.linear_num_key_heads * c.linear_head_dim
    qkv = linear(x, p["linear_attn.in_proj_qkv.weight"]) * keep.unsqueeze(-1)
    taps = p["linear_attn.conv1d.weight"].float().squeeze(1)
    padded = F.pad(qkv, (0, 0, 3, 0))
    qkv = F.silu(sum(padded[:, i:i + t].float() * taps[:, i] for i in range(4)))
    q, k, v = qkv.split((key, key, qkv.shape[-1] - 2 * key), -1)
    q, k = (y.view(b, t, -1, c.linear_head_dim) for y in (q, k))
    q, k = (y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    beta = torch.sigmoid(linear(x, p["linear_attn.in_proj_b.weight"]).float())
    rate = F.softplus(linear(x, p["linear_attn.in_proj_a.weight"]).float() + p["linear_attn.dt_bias"].float())
    g = torch.where(first.unsqueeze(-1), FORGET, -p["linear_attn.A_log"].float().exp() * rate)
    o = gated_delta_rule(q * c.linear_head_dim ** -0.5, k, v.view(b, t, -1, c.linear_head_dim), beta, g)
    z = linear(x, p["linear_attn.in_proj_z.weight"]).float().view_as(o)
    o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + c.eps) * p["linear_attn.norm.weight"].float() * F.silu(z)
    return linear(o.flatten(2), p["linear_attn.out_proj.weight"]).float()


def rotary(c, t, device):
    """(cos, sin) [t, rotary_dim / 2] of positions 0 .. t - 1."""
    frequency = c.rope_theta ** (-torch.arange(0, c.rotary_dim, 2, device=device, dtype=torch.float32) / c.rotary_dim)
    angle = torch.arange(t, device=device, dtype=torch.float32)[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """RoPE on the first rotary dims of x [b, t, heads, head_dim]."""
    half = cos.shape[-1]
    a, b, rest = x.split((half, half, x.shape[-1] - 2 * half), -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def attention_inputs(p, x, c, cos, sin):
    """q [b, kv_heads, group, t, d], k and v [b, kv_heads, 1, t, d] in the dtype of the weights, gate [b, t, heads * d]."""
    b, t, _ = x.shape
    group = c.num_attention_heads // c.num_key_value_heads
    dtype = p["self_attn.q_proj.weight"].dtype
    q, gate = linear(x, p["self_attn.q_proj.weight"]).view(b, t, c.num_attention_heads, 2 * c.head_dim).chunk(2, -1)
    k, v = (linear(x, p[f"self_attn.{n}_proj.weight"]).view(b, t, c.num_key_value_heads, c.head_dim) for n in "kv")
    q = rotate(rms_norm(q, p["self_attn.q_norm.weight"], c.eps), cos, sin) * c.head_dim ** -0.5
    k = rotate(rms_norm(k, p["self_attn.k_norm.weight"], c.eps), cos, sin)
    q = q.to(dtype).view(b, t, c.num_key_value_heads, group, c.head_dim).permute(0, 2, 3, 1, 4)
    k, v = (y.to(dtype).permute(0, 2, 1, 3).unsqueeze(2) for y in (k, v))
    return q, k, v, gate.flatten(2)


def attention_output(p, o, gate):
    """o [b, kv_heads, group, t, d] -> [b, t, hidden]."""
    o = o.permute(0, 3, 1, 2, 4).flatten(2)
    return linear(o * torch.sigmoid(gate.float()).to(o.dtype), p["self_attn.o_proj.weight"]).float()


def full_attention(p, x, c, cos, sin, visible):
    """visible [b, t, t]: which keys a query may see."""
    q, k, v, gate = attention_inputs(p, x, c, cos, sin)
    scores = (q @ k.transpose(-1, -2)).float().masked_fill(~visible[:, None, None], -math.inf)
    return attention_output(p, torch.softmax(scores, -1).to(v.dtype) @ v, gate)


def mlp(p, x):
    return linear(F.silu(linear(x, p["mlp.gate_proj.weight"]).float()) * linear(x, p["mlp.up_proj.weight"]).float(),
                  p["mlp.down_proj.weight"]).float()


def linear_layer(p, x, c, keep, first):
    x = x + linear_attention(p, rms_norm(x, p["input_layernorm.weight"], c.eps), c, keep, first)
    return x + mlp(p, rms_norm(x, p["post_attention_layernorm.weight"], c.eps))


def full_layer(p, x, c, cos, sin, visible):
    x = x + full_attention(p, rms_norm(x, p["input_layernorm.weight"], c.eps), c, cos, sin, visible)
    return x + mlp(p, rms_norm(x, p["post_attention_layernorm.weight"], c.eps))


def mtp_inputs(p, embedding, hidden, c, cos, sin):
    """The MTP layer up to its attention: (residual, q, k, v, gate)."""
    x = linear(torch.cat((rms_norm(embedding, p["pre_fc_norm_embedding.weight"], c.eps),
                          rms_norm(hidden, p["pre_fc_norm_hidden.weight"], c.eps)), -1), p["fc.weight"]).float()
    return (x, *attention_inputs(p, rms_norm(x, p["input_layernorm.weight"], c.eps), c, cos, sin))


def mtp_output(p, x, o, gate, c):
    x = x + attention_output(p, o, gate)
    x = x + mlp(p, rms_norm(x, p["post_attention_layernorm.weight"], c.eps))
    return rms_norm(x, p["norm.weight"], c.eps)


def shifted(x, by, dim):
    """x moved to higher positions along dim, zeros in front."""
    if by == 0:
        return x
    zeros = torch.zeros_like(x.narrow(dim, 0, by))
    return torch.cat((zeros, x.narrow(dim, 0, x.shape[dim] - by)), dim)


class Rows:
    """What the forward pass must know of packed rows: ids [b, t], document number of each token [b, t], -1 on padding."""

    def __init__(self, ids, document):
        self.ids = ids
        self.keep = (document >= 0)
        before = F.pad(document, (1, 0), value=-2)[:, :-1]
        self.first = self.keep & (document != before)
        # Padding carries the number of the document before it, so that no row of the mask is empty.
        carried = torch.where(self.keep, document, -1).cummax(-1).values
        position = torch.arange(ids.shape[1], device=ids.device)
        self.visible = (carried[:, :, None] == carried[:, None, :]) & (position[:, None] >= position[None, :])
        self.keep = self.keep.float()

    def head(self, rows):
        part = object.__new__(Rows)
        part.ids, part.keep, part.first, part.visible = self.ids[:rows], self.keep[:rows], self.first[:rows], self.visible[:rows]
        return part


class Model:
    """The forward pass; `wrap` may compile the pieces."""

    def __init__(self, config, wrap=lambda f: f):
        self.config = config
        self.linear_layer, self.full_layer, self.mtp_inputs, self.mtp_output = map(wrap, (linear_layer, full_layer, mtp_inputs, mtp_output))

    @staticmethod
    def scope(params, prefix):
        return {name[len(prefix):]: w for name, w in params.items() if name.startswith(prefix)}

    def hidden(self, params, rows):
        """Hidden states after the final norm [b, t, hidden]."""
        c = self.config
        cos, sin = rotary(c, rows.ids.shape[1], rows.ids.device)
        x = F.embedding(rows.ids, params["embed_tokens.weight"]).float()
        for i in range(c.num_hidden_layers):
            p = self.scope(params, f"layers.{i}.")
            x = self.full_layer(p, x, c, cos, sin, rows.visible) if c.is_full(i) else self.linear_layer(p, x, c, rows.keep, rows.first)
        return rms_norm(x, params["norm.weight"], c.eps)

    def drafts(self, params, rows, hidden, depth):
        """The MTP chain from every position: a list over d = 1 .. depth of hiddens [b, t, hidden] that predict ids[q + 2] at row q.

        Depth d at row q continues depth d - 1 at row q - 1. As in serving, its query sees keys made from true hiddens up
        to position q - d + 1, and after that the keys that its own chain has written.
        """
        c = self.config
        p = {n: w for n, w in self.scope(params, "mtp.").items() if not n.startswith("layers.")} | self.scope(params, "mtp.layers.0.")
        cos, sin = rotary(c, rows.ids.shape[1], rows.ids.device)
        embedding = F.embedding(rows.ids.roll(-1, 1), params["embed_tokens.weight"]).float()
        position = torch.arange(rows.ids.shape[1], device=rows.ids.device)
        keys, values, out = [], [], []
        for d in range(1, depth + 1):
            x, q, k, v, gate = self.mtp_inputs(p, embedding, hidden, c, cos, sin)
            keys.append(k)
            values.append(v)
            visible = rows.visible & (position[:, None] - position[None, :] >= d - 1)
            scores = (q @ keys[0].transpose(-1, -2)).float().masked_fill(~visible[:, None, None], -math.inf)
            own = [(q * shifted(keys[j], d - 1 - j, 3)).sum(-1, keepdim=True).float() for j in range(1, d)]
            weights = torch.softmax(torch.cat([scores] + own, -1), -1).to(v.dtype)
            t = scores.shape[-1]
            o = weights[..., :t] @ values[0]
            for j in range(1, d):
                o = o + weights[..., t + j - 1:t + j] * shifted(values[j], d - 1 - j, 3)
            draft = self.mtp_output(p, x, o, gate, c)
            out.append(draft)
            hidden = shifted(draft, 1, 1)
        return out
