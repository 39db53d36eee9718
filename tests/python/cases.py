# SPDX-License-Identifier: Apache-2.0
"""Random problems, the update written out in plain torch, and the bounds of the contract."""

import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import torch

import trimul

PARAMETERS = (
    "norm_in_weight", "norm_in_bias", "p_in_weight", "p_in_bias", "g_in_weight", "g_in_bias",
    "norm_out_weight", "norm_out_bias", "p_out_weight", "p_out_bias", "g_out_weight", "g_out_bias",
)  # fmt: skip
PROJECTIONS = ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight")
PROJECTION_BIASES = ("p_in_bias", "g_in_bias", "p_out_bias", "g_out_bias")
DIRECTIONS = ("outgoing", "incoming")

# Relative RMS error against fp64 from the stored values; docs/op.md, section on accuracy. The CPU rounds the output only; fp64 is the
# reference itself.
BOUNDS = {
    ("cpu", torch.float64): 1e-14, ("cpu", torch.float32): 1e-5, ("cpu", torch.float16): 5e-4, ("cpu", torch.bfloat16): 2.5e-3,
    ("cuda", torch.bfloat16): 2e-2, ("cuda", torch.float16): 2e-3, ("cuda", torch.float32): 1e-5,
}  # fmt: skip
TF32_BOUND = 1e-3  # of fp32 on a GPU where TF32 was asked for


class Served(NamedTuple):
    dtype: torch.dtype
    c_z: int
    c: int


def served(device):
    """A dtype and widths that every call of a test may use on the device."""
    return Served(torch.bfloat16, 128, 128) if device == "cuda" else Served(torch.float32, 16, 24)


def implementation_of(device):
    """The implementation that serves what `served` names: Hopper's own kernels on Hopper, the portable ones on every other GPU."""
    if device == "cpu":
        return "cpu"
    return "cuda:sm90" if torch.cuda.get_device_capability() == (9, 0) else "cuda:sm80"


def shapes(c_z, c):
    return {
        "norm_in_weight": (c_z,), "norm_in_bias": (c_z,), "p_in_weight": (2 * c, c_z), "p_in_bias": (2 * c,), "g_in_weight": (2 * c, c_z),
        "g_in_bias": (2 * c,), "norm_out_weight": (c,), "norm_out_bias": (c,), "p_out_weight": (c_z, c), "p_out_bias": (c_z,),
        "g_out_weight": (c_z, c_z), "g_out_bias": (c_z,),
    }  # fmt: skip


def random_parameters(rng, device, biases=PROJECTION_BIASES, *, c_z=None, c=None, dtype=None):
    """The twelve, none of them zero, those projection biases that are not named absent."""
    usual = served(device)
    made = {}
    for name, shape in shapes(c_z or usual.c_z, c or usual.c).items():
        if name in PROJECTION_BIASES and name not in biases:
            continue
        value = torch.randn(shape, generator=rng)
        if name in PROJECTIONS:
            value *= shape[1] ** -0.5
        elif name in ("norm_in_weight", "norm_out_weight"):
            value = 1 + 0.3 * value
        else:
            value *= 0.5
        made[name] = value.to(device=device, dtype=dtype or usual.dtype)
    return made


def random_x(rng, device, *leading_and_tokens, c_z=None, dtype=None):
    """[*leading, N, N, C_z] for arguments (*leading, N)."""
    usual = served(device)
    *leading, tokens = leading_and_tokens
    x = torch.randn(*leading, tokens, tokens, c_z or usual.c_z, generator=rng)
    return x.to(device=device, dtype=dtype or usual.dtype)


def random_mask(rng, device, *shape, dtype=torch.float32):
    """Zeros and ones without symmetry."""
    return (torch.rand(shape, generator=rng) > 0.3).to(device=device, dtype=dtype)


def plain(x, direction="outgoing", mask=None, eps=1e-5, residual=False, dtype=torch.float64, **parameters):
    """The formulas of docs/op.md, section 1, in plain torch in `dtype`. mask: [..., N, N], finite."""
    w = {name: None if parameters.get(name) is None else parameters[name].to(dtype) for name in PARAMETERS}
    linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
    x, eps = x.to(dtype), torch.tensor(eps, dtype=torch.float32).item()  # eps is held in fp32
    z = norm(x, x.shape[-1:], w["norm_in_weight"], w["norm_in_bias"], eps)
    ab = torch.sigmoid(linear(z, w["g_in_weight"], w["g_in_bias"])) * linear(z, w["p_in_weight"], w["p_in_bias"])
    if mask is not None:
        ab = ab * mask.to(dtype)[..., None]
    a, b = ab.chunk(2, dim=-1)
    y = torch.einsum("...ikc,...jkc->...ijc" if direction == "outgoing" else "...kic,...kjc->...ijc", a, b)
    u = norm(y, y.shape[-1:], w["norm_out_weight"], w["norm_out_bias"], eps)
    update = torch.sigmoid(linear(z, w["g_out_weight"], w["g_out_bias"])) * linear(u, w["p_out_weight"], w["p_out_bias"])
    return x + update if residual else update


def reference(*args, **kwargs):
    """fp64 throughout."""
    return trimul.reference.triangle_multiplicative_update_reference(*args, rounding="none", **kwargs)


def relative_rms(result, expected):
    expected = expected.double().cpu()
    difference = (result.double().cpu() - expected).square().mean().sqrt()
    scale = expected.square().mean().sqrt()
    return float(difference / scale) if scale > 0 else float(difference)


def assert_matches(result, expected, bound=None):
    """The values of a result, within the contract's bound for its device and dtype."""
    assert result.shape == expected.shape
    assert result.is_contiguous()
    if result.numel():
        assert torch.isfinite(result).all()
        error = relative_rms(result, expected)
        assert error <= (bound or BOUNDS[result.device.type, result.dtype]), f"relative RMS error is {error:.2e}"


def assert_update(x, *args, **kwargs):
    """One drop-in call against the reference; returns the result."""
    result = trimul.triangle_multiplicative_update(x, *args, **kwargs)
    kwargs.pop("out", None)
    assert_matches(result, reference(x, *args, **kwargs))
    return result


def run_python(code, **environment):
    """Runs a program in a process of its own, which imports the trimul of this one; its output."""
    path = os.pathsep.join([str(pathlib.Path(trimul.__file__).parent.parent), str(pathlib.Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "PYTHONPATH": path, **environment}
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout
