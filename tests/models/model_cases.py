# SPDX-License-Identifier: Apache-2.0
"""The models' triangle multiplications behind one interface, random weights for them, and the errors their results are held to."""

import copy
import dataclasses
import math
from typing import Callable

import boltz.model.layers.triangular_mult as boltz
import openfold3.core.model.layers.triangular_multiplicative_update as openfold3
import protenix.model.triangular.triangular as protenix
import torch

# Of the contract, relative RMS to the exact result: fp32 (3xTF32 on a GPU), and bf16, where operands, weights and output are rounded,
# 3e-3 together, and autocast rounds x as well. In bf16 also no more than twice the error of plain PyTorch, plus this noise.
FP32_BOUND = 1e-5
BF16_BOUND = 1e-2
BF16_NOISE = 2.0**-9


@dataclasses.dataclass(frozen=True)
class Model:
    outgoing: type
    incoming: type
    kernel: dict  # forward's keywords that choose the kernel path
    plain: dict  # and their own
    width: int  # C_z = C
    batch: tuple
    reference_dtype: torch.dtype
    formats: tuple = ("fp32", "bf16", "autocast")

    def make(self, direction):
        sizes = (self.width,) if self.outgoing is boltz.TriangleMultiplicationOutgoing else (self.width, self.width)
        return randomised({"outgoing": self.outgoing, "incoming": self.incoming}[direction](*sizes).eval())


def _boltz(width):
    # Its own path casts to fp32 inside, so that fp32 is as exact as it gets, and weights of another dtype are an error.
    return Model(boltz.TriangleMultiplicationOutgoing, boltz.TriangleMultiplicationIncoming, {"use_kernels": True}, {"use_kernels": False},
                 width, (2,), torch.float32, ("fp32", "autocast"))


def _protenix(width):
    # Its kernel path adds the batch dimension itself.
    return Model(protenix.TriangleMultiplicationOutgoing, protenix.TriangleMultiplicationIncoming, {"triangle_multiplicative": "cuequivariance"},
                 {"triangle_multiplicative": "torch"}, width, (), torch.float64)


def _openfold3(width, batch, prefix=""):
    classes = (getattr(openfold3, f"{prefix}TriangleMultiplication{direction}") for direction in ("Outgoing", "Incoming"))
    return Model(*classes, {"use_cueq_triangle_kernels": True}, {"use_cueq_triangle_kernels": False}, width, batch, torch.float64)


# Trunk and template widths.
MODELS = {
    "boltz-128": _boltz(128),
    "boltz-64": _boltz(64),
    "protenix-128": _protenix(128),
    "protenix-256": _protenix(256),
    "protenix-64": _protenix(64),
    "openfold3-128": _openfold3(128, (1,)),
    "openfold3-64-templates": _openfold3(64, (1, 2)),
    "openfold3-fused-128": _openfold3(128, (2,), "Fused"),
}


def randomised(module):
    """Non-zero values in every parameter: the models start with zeros, with which every kernel would agree."""
    for parameter in module.parameters():
        with torch.no_grad():
            scale = 1 / math.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.3
            parameter.normal_(0, scale)
            if parameter.dim() == 1:
                parameter.add_(0.5)  # a norm's bias too, so that y has an offset
            assert (parameter != 0).all()
    return module


def random_input(model, tokens, device):
    x = torch.randn(*model.batch, tokens, tokens, model.width)
    mask = (torch.rand(*model.batch, tokens, tokens) > 0.3).float()
    assert (mask != mask.mT).any()
    return x.to(device), mask.to(device)


def reference(model, module, x, mask):
    """Their own path on the CPU from the values as stored, in fp64 where it can be."""
    exact = copy.deepcopy(module).cpu().to(model.reference_dtype)
    return exact(x.cpu().to(model.reference_dtype), mask=mask.cpu().to(model.reference_dtype), **model.plain).double()


def relative_rms(got, expected):
    assert got.shape == expected.shape and torch.isfinite(got).all()
    return ((got.double().cpu() - expected).square().mean() / expected.square().mean()).sqrt().item()


@dataclasses.dataclass(frozen=True)
class Format:
    autocast: bool
    stored: torch.dtype  # of x and the weights
    result: torch.dtype
    bound: Callable  # of our error, from their own path's in the same format


FORMATS = {
    "fp32": Format(False, torch.float32, torch.float32, lambda theirs: FP32_BOUND),
    "bf16": Format(False, torch.bfloat16, torch.bfloat16, lambda theirs: min(BF16_BOUND, 2 * theirs + BF16_NOISE)),
    "autocast": Format(True, torch.float32, torch.bfloat16, lambda theirs: min(BF16_BOUND, 2 * theirs + BF16_NOISE)),
}
