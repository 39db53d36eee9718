# SPDX-License-Identifier: Apache-2.0
"""The operator in numpy float64, from the formula alone: shares no code with the library."""
import numpy as np


def layer_norm(values, weight, bias, eps):
    mean = values.mean(-1, keepdims=True)
    variance = ((values - mean) ** 2).mean(-1, keepdims=True)
    normalised = (values - mean) / np.sqrt(variance + eps)
    return normalised * (1.0 if weight is None else weight) + (0.0 if bias is None else bias)


def sigmoid(logits):
    return 1.0 / (1.0 + np.exp(-logits))


def linear(rows, weight, bias):
    return np.einsum("...k,ck->...c", rows, weight) + (0.0 if bias is None else bias)


def broadcast_mask(mask, shape):
    """[..., N, N] or [..., N, N, 1] to x's [..., N, N, 1]."""
    tokens = shape[-2]
    if not mask.shape[-2:] == (tokens, tokens):
        mask = mask[..., 0]
    while mask.ndim > len(shape) - 1:
        (mask,) = mask  # leading ones
    return np.broadcast_to(mask, shape[:-1])[..., None]


def update(tensors, direction="outgoing", eps=1e-5, residual=False):
    """`tensors` maps the contract's names to arrays of any dtype; the result is float64, unrounded. eps is an fp32 number."""
    eps = float(np.float32(eps))
    t = {name: np.asarray(value).astype(np.float64) for name, value in tensors.items()}
    x = t["x"]
    z = layer_norm(x, t.get("norm_in_weight"), t.get("norm_in_bias"), eps)
    gated = sigmoid(linear(z, t["g_in_weight"], t.get("g_in_bias"))) * linear(z, t["p_in_weight"], t.get("p_in_bias"))
    if "mask" in t:
        mask = broadcast_mask(t["mask"], x.shape)
        gated = np.where(mask == 0, 0.0, gated * mask)
    channels = gated.shape[-1] // 2
    a, b = gated[..., :channels], gated[..., channels:]
    y = np.einsum("...ikc,...jkc->...ijc" if direction == "outgoing" else "...kic,...kjc->...ijc", a, b)
    u = layer_norm(y, t.get("norm_out_weight"), t.get("norm_out_bias"), eps)
    out = sigmoid(linear(z, t["g_out_weight"], t.get("g_out_bias"))) * linear(u, t["p_out_weight"], t.get("p_out_bias"))
    return out + x if residual else out


def relative_rms(got, reference):
    """Absolute where the reference is all zero."""
    difference = np.asarray(got).astype(np.float64) - reference
    return float(np.sqrt((difference**2).sum() / ((reference**2).sum() or difference.size)))
