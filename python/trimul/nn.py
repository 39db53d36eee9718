# SPDX-License-Identifier: Apache-2.0
"""The update as a torch.nn.Module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ._arguments import check_direction, check_eps, check_precision
from ._drop_in import triangle_multiplicative_update

if TYPE_CHECKING:
    from ._arguments import Device, Precision

__all__ = ["TriangleMultiplicativeUpdate"]


class TriangleMultiplicativeUpdate(torch.nn.Module):
    """The triangle multiplicative update with its parameters, which carry the operator's names (`p_in_weight`, ...) in the state dict.

    c_z: pair width. c_hidden: C, c_z where None. bias: whether the four projections have biases (the LayerNorms always do). eps, precision: as in
    triangle_multiplicative_update. forward returns the update alone, or x + update with residual=True.
    """

    c_z: int
    c_hidden: int
    direction: str
    eps: float
    precision: Precision
    norm_in_weight: torch.nn.Parameter
    norm_in_bias: torch.nn.Parameter
    p_in_weight: torch.nn.Parameter
    p_in_bias: torch.nn.Parameter | None
    g_in_weight: torch.nn.Parameter
    g_in_bias: torch.nn.Parameter | None
    norm_out_weight: torch.nn.Parameter
    norm_out_bias: torch.nn.Parameter
    p_out_weight: torch.nn.Parameter
    p_out_bias: torch.nn.Parameter | None
    g_out_weight: torch.nn.Parameter
    g_out_bias: torch.nn.Parameter | None

    def __init__(
        self,
        c_z: int,
        c_hidden: int | None = None,
        direction: str = "outgoing",
        bias: bool = False,
        *,
        eps: float = 1e-5,
        precision: Precision = None,
        device: Device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_direction(direction)
        check_precision(precision)
        check_eps(eps)
        for name, width in (("c_z", c_z), ("c_hidden", c_hidden)):
            if width is None and name == "c_hidden":
                continue
            if isinstance(width, bool) or not isinstance(width, int):
                raise TypeError(f"{name}: is {width!r}, expected an integer")
            if width < 1:
                raise ValueError(f"{name}: is {width}, expected at least 1")
        self.c_z, self.c_hidden = c_z, c_z if c_hidden is None else c_hidden
        self.direction, self.eps, self.precision = direction, eps, precision
        c = self.c_hidden
        shapes = {
            "norm_in_weight": (c_z,), "norm_in_bias": (c_z,),
            "p_in_weight": (2 * c, c_z), "p_in_bias": (2 * c,), "g_in_weight": (2 * c, c_z), "g_in_bias": (2 * c,),
            "norm_out_weight": (c,), "norm_out_bias": (c,),
            "p_out_weight": (c_z, c), "p_out_bias": (c_z,), "g_out_weight": (c_z, c_z), "g_out_bias": (c_z,),
        }  # fmt: skip
        for name, shape in shapes.items():
            is_absent = not bias and name.endswith("_bias") and not name.startswith("norm")
            parameter = None if is_absent else torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, parameter)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As AlphaFold initialises: LayerNorms to the identity, values by LeCun's truncated normal, gates open (weights 0, biases 1), the output
        projection 0, so that a new block changes nothing (Jumper et al. 2021, Supplementary Methods, section 1.11.4)."""
        for norm in ("norm_in", "norm_out"):
            torch.nn.init.ones_(getattr(self, f"{norm}_weight"))
            torch.nn.init.zeros_(getattr(self, f"{norm}_bias"))
        # The standard deviation of a normal that is cut at two of its own is smaller by the divisor.
        std = math.sqrt(1 / self.c_z) / 0.87962566
        torch.nn.init.trunc_normal_(self.p_in_weight, std=std, a=-2 * std, b=2 * std)
        for weight in (self.g_in_weight, self.g_out_weight, self.p_out_weight):
            torch.nn.init.zeros_(weight)
        for name, value in (("p_in_bias", 0.0), ("g_in_bias", 1.0), ("p_out_bias", 0.0), ("g_out_bias", 1.0)):
            if getattr(self, name) is not None:
                torch.nn.init.constant_(getattr(self, name), value)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, residual: bool = False) -> torch.Tensor:
        """x: [..., N, N, c_z]; mask as in triangle_multiplicative_update. Returns the update, with `residual` x + update."""
        return triangle_multiplicative_update(
            x, self.direction, mask, self.norm_in_weight, self.norm_in_bias, self.p_in_weight, self.p_in_bias, self.g_in_weight, self.g_in_bias,
            self.norm_out_weight, self.norm_out_bias, self.p_out_weight, self.p_out_bias, self.g_out_weight, self.g_out_bias,
            self.eps, self.precision, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.c_z}, c_hidden={self.c_hidden}, direction={self.direction!r}, bias={self.p_in_bias is not None}"
        return text if self.precision is None else f"{text}, precision={self.precision!r}"
