# SPDX-License-Identifier: Apache-2.0
"""The drop-in function. torch is imported at its first call, so that its signature can be read without."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _arguments, _checks

if TYPE_CHECKING:
    import torch

    from ._arguments import Precision

# Share of a normal distribution within two standard deviations.
_WITHIN_TWO = math.erf(math.sqrt(2))

_torch: Any = None
_operators: Any = None
_grad_enabled: Any = None
_autocast_enabled: Any = None
_forward_ad: Any = None
_float16: Any = None
_bfloat16: Any = None


def _load() -> None:
    """Fills the module's names that need torch."""
    global _torch, _operators, _grad_enabled, _autocast_enabled, _forward_ad, _float16, _bfloat16
    try:
        import torch
    except ImportError as error:
        raise ImportError("trimul.triangle_multiplicative_update needs PyTorch, which could not be imported") from error
    from . import _operators as operators

    operators.load()
    _grad_enabled, _forward_ad = torch.is_grad_enabled, torch.autograd.forward_ad
    _autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", None) or (lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())
    _float16, _bfloat16 = torch.float16, torch.bfloat16
    _operators, _torch = operators, torch


def _is_loaded() -> bool:
    if _torch is None:
        _load()
    return True


# torch.compile runs it while it traces instead of tracing it, also where the first call of all is a compiled one. What
# torch.compiler.assume_constant_result does, without torch.
_is_loaded._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def triangle_multiplicative_update(
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
    out: torch.Tensor | None = None,
    stream: int | torch.cuda.Stream | None = None,
    residual: bool = False,
) -> torch.Tensor:
    """The triangle multiplicative update (Jumper et al. 2021, Supplementary Methods, Algorithms 11 and 12) of torch tensors.

        z    = LayerNorm(x; norm_in_weight, norm_in_bias, eps)
        a, b = sigmoid(z g_in_weight^T + g_in_bias) * (z p_in_weight^T + p_in_bias) * mask      first C rows, second C rows
        y    = sum_k a[i,k] * b[j,k]  ("outgoing")   or   sum_k a[k,i] * b[k,j]  ("incoming")
        out  = sigmoid(z g_out_weight^T + g_out_bias) * (LayerNorm(y; norm_out_weight, norm_out_bias, eps) p_out_weight^T + p_out_bias)

    x                    [..., N, N, C_z], at least 3-D, bf16, fp16, fp32 (fp64 on the CPU); any strides (copied unless contiguous)
    mask                 [..., N, N] or [..., N, N, 1], bool, integer or float; leading dimensions broadcast. None: ones. Zero selects
    norm_in_*            [C_z]. None: ones, zeros            p_in_weight, g_in_weight   [2C, C_z]            p_in_bias, g_in_bias    [2C] or None
    norm_out_*           [C]. None: ones, zeros              p_out_weight               [C_z, C]             p_out_bias, g_out_bias  [C_z] or None
                                                             g_out_weight               [C_z, C_z]
                         Any float dtype, each its own. A projection's weight that is None is drawn: truncated normal, fan in
    eps                  > 0, of both LayerNorms
    precision            None, "default", "tf32", "tf32x3", "ieee", "bfloat16", or their numbers (TriMulPrecision)
    out                  where the result goes, contiguous, of x's shape and the result's dtype; returned as given
    stream               raw CUDA stream handle; None: torch's current stream
    residual             returns x + update, rounded once; `out` may be x itself then

    Returns a contiguous tensor of x's shape and dtype (under autocast of the autocast dtype, with "bfloat16" bf16). Sums are fp32. Inputs are
    unchanged. ValueError, TypeError, NotImplementedError (legal, not served here), torch.OutOfMemoryError. Until a backward exists, grad mode
    with an argument that requires grad is NotImplementedError. docs/op.md is the whole contract.
    """
    _is_loaded()
    if _grad_enabled() or _forward_ad._current_level >= 0:
        _checks.refuse_gradients(_torch, (
            x, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
            p_out_weight, p_out_bias, g_out_weight, g_out_bias, out,
        ))  # fmt: skip
    if not isinstance(eps, float):
        eps = _arguments.check_eps(eps)
    if residual is not False and residual is not True:
        residual = _arguments.check_flag("residual", residual)
    given_x = x
    try:
        number = 0
        if precision is not None or ((dtype := x.dtype) is not _bfloat16 and dtype is not _float16) or _autocast_enabled():
            x, number = _cast(x, precision)
        if p_in_weight is None or g_in_weight is None or p_out_weight is None or g_out_weight is None:
            p_in_weight, g_in_weight, p_out_weight, g_out_weight = _draw_missing(
                x, p_in_weight, g_in_weight, p_out_weight, g_out_weight, p_in_bias, g_in_bias, norm_out_weight, norm_out_bias
            )
        if out is None and stream is None:
            return _operators.current_update()(
                x, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
                p_out_weight, p_out_bias, g_out_weight, g_out_bias, _arguments.DIRECTIONS[direction], eps, number, residual,
            )  # fmt: skip
        tensors = (
            x, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
            p_out_weight, p_out_bias, g_out_weight, g_out_bias,
        )  # fmt: skip
        numbers = (_arguments.check_direction(direction), eps, number, residual)
        if out is not None and x is not given_x:
            _operators.check_disjoint(out, given_x)
        if stream is None:
            return _update_out(tensors, numbers, out)
        with _operators.on_stream(stream, x):
            return _update_out(tensors, numbers, out) if out is not None else _operators.current_update()(*tensors, *numbers)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        # The usual call pays nothing for what is told here.
        names = ("x", "mask", "norm_in_weight", "norm_in_bias", "p_in_weight", "p_in_bias", "g_in_weight", "g_in_bias", "norm_out_weight",
                 "norm_out_bias", "p_out_weight", "p_out_bias", "g_out_weight", "g_out_bias", "out")  # fmt: skip
        values = (x, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
                  p_out_weight, p_out_bias, g_out_weight, g_out_bias, out)  # fmt: skip
        _check_arguments(dict(zip(names, values)), direction, eps)
        return _operators.reraise(error)


def _update_out(tensors, numbers, out) -> Any:
    # torch's own answer to such a view, to copy and write back, reads beyond its stack for an operator without a result.
    is_traced = _torch.compiler.is_compiling()
    if not is_traced and out.is_neg():
        raise ValueError("out: is a view that negates what it refers to, expected a plain tensor")
    _operators.update_out(*tensors, *numbers, out=out)
    if not is_traced:
        _operators.mark_written(out)
    return out


def _cast(x, precision):
    """x as it is computed from, and the number of the precision: autocast and "bfloat16" cast, fp32's default asks torch's switches."""
    number = 0 if precision is None else _arguments.check_precision(precision)
    dtype = x.dtype
    if dtype.is_floating_point:
        if _autocast_enabled():
            kind = x.device.type
            if _torch.is_autocast_enabled(kind):
                dtype = _torch.get_autocast_dtype(kind)
        if number == 5:
            dtype = _bfloat16
        if dtype is not x.dtype:
            x = x.to(dtype)
    if number == 0 and dtype is _torch.float32 and x.is_cuda and _arguments.torch_allows_tf32():
        number = 1
    return x, number


def _draw_missing(x, p_in, g_in, p_out, g_out, p_in_bias, g_in_bias, norm_out_weight, norm_out_bias):
    """The four projections with those that are None drawn: truncated normal of std sqrt(1 / fan_in) at two standard deviations, from torch's
    generator of x's device, in the operator's order. C is read from whatever knows it, else it is C_z. Impossible sizes are the operator's to
    refuse."""
    c_z = x.shape[-1] if x.dim() > 0 else 0
    halves = [t.shape[0] // 2 for t in (p_in, g_in, p_in_bias, g_in_bias) if t is not None and t.dim() > 0]
    wholes = [t.shape[-1] for t in (p_out, norm_out_weight, norm_out_bias) if t is not None and t.dim() > 0]
    c = (halves + wholes + [c_z])[0]

    def draw(given, rows, columns):
        if given is not None:
            return given
        std = math.sqrt(1 / max(columns, 1)) / 0.87962566
        # By the inverse of the distribution function, which torch.compile can trace; torch's own draws until all values lie inside.
        weight = _torch.empty(rows, columns, dtype=_torch.float32, device=x.device).uniform_(-_WITHIN_TWO, _WITHIN_TWO)
        weight = weight.erfinv_().mul_(std * math.sqrt(2)).clamp_(-2 * std, 2 * std)
        return weight.to(x.dtype if x.dtype.is_floating_point else _torch.float32)

    with _torch.no_grad():
        return draw(p_in, 2 * c, c_z), draw(g_in, 2 * c, c_z), draw(p_out, c_z, c), draw(g_out, c_z, c_z)


def _check_arguments(tensors, direction, eps):
    """Raises what is wrong with the arguments of a call that failed, where it can be told without the library."""
    for name, value in tensors.items():
        if value is not None or name == "x":
            _checks.check_tensor(_torch, name, value, "a torch.Tensor" if name == "x" else "a torch.Tensor or None")
    _arguments.check_direction(direction)
    _arguments.check_eps(eps)
