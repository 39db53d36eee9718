# SPDX-License-Identifier: Apache-2.0
"""The fp64 oracle: plain loops on the CPU, for tests and for judging other implementations. Slow on purpose."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from . import _arguments, _ctypes_operators, _library

if TYPE_CHECKING:
    from ._arguments import Precision

ROUNDINGS = {"none": 0, "kernel": 1}


def triangle_multiplicative_update_reference(
    x: torch.Tensor,
    direction: str = "outgoing",
    mask: torch.Tensor | None = None,
    norm_in_weight: torch.Tensor | None = None,
    norm_in_bias: torch.Tensor | None = None,
    p_in_weight: torch.Tensor | None = None,
    p_in_bias: torch.Tensor | None = None,
    g_in_weight: torch.Tensor | None = None,
    g_in_bias: torch.Tensor | None = None,
    norm_out_weight: torch.Tensor | None = None,
    norm_out_bias: torch.Tensor | None = None,
    p_out_weight: torch.Tensor | None = None,
    p_out_bias: torch.Tensor | None = None,
    g_out_weight: torch.Tensor | None = None,
    g_out_bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    precision: Precision = None,
    *,
    residual: bool = False,
    rounding: str = "kernel",
) -> torch.Tensor:
    """The update as triangle_multiplicative_update defines it, in fp64 from the stored values; a float64 tensor of x's shape on x's device.

    rounding "none": fp64 throughout. "kernel": rounds where the GPU kernels round (docs/numerics.md), but not the output. The four projections
    are required. No autocast, no gradient. ValueError for wrong shapes, dtypes and values.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding: is {rounding!r}, expected 'kernel' or 'none'")
    given = (
        norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias,
        norm_out_weight, norm_out_bias, p_out_weight, p_out_bias, g_out_weight, g_out_bias,
    )  # fmt: skip
    for name, tensor in (("x", x), ("mask", mask), *zip(_library.PARAMETERS, given)):
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name in ("x", "p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight")):
            raise TypeError(f"{name}: is a {type(tensor).__name__}, expected a torch.Tensor")
    # The library reads memory, in which a view that negates has not been negated.
    on_host = lambda tensor: None if tensor is None else tensor.detach().cpu().resolve_neg().contiguous()
    host_x, parameters = on_host(x), [on_host(tensor) for tensor in given]
    host_mask = None if mask is None else mask.detach().cpu().resolve_neg()
    if host_mask is not None and host_mask.dtype not in _ctypes_operators.MASK_DTYPES:
        host_mask = host_mask.double()
    view = lambda tensor, name: None if tensor is None else ctypes.pointer(_ctypes_operators.view(tensor, name))
    table = _ctypes_operators.parameter_table(parameters)
    args = _library.UpdateArgs(
        x=view(host_x, "x"), mask=view(host_mask, "mask"), parameters=ctypes.pointer(table), direction=_arguments.check_direction(direction),
        precision=_arguments.check_precision(precision), eps=_arguments.check_eps(eps), residual=int(residual),
    )  # fmt: skip
    out = torch.empty(x.shape, dtype=torch.float64, device="cpu")
    address = ctypes.cast(out.data_ptr(), ctypes.POINTER(ctypes.c_double))
    _library.check(_library.load().trimul_reference(ctypes.byref(args), ROUNDINGS[rounding], None, 0, address))
    return out.to(x.device)
