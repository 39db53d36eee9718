# SPDX-License-Identifier: Apache-2.0
"""What a call refuses or tells on the side of torch: gradients it would lose, and what is wrong with a tensor of a call that failed."""

from __future__ import annotations

from typing import Any, Iterable

from . import _library

_FLOATS = ("float64", "float32", "float16", "bfloat16")


def refuse_gradients(torch: Any, tensors: Iterable[Any]) -> None:
    """NotImplementedError where a gradient would be lost: reverse mode follows grad mode, forward mode (jvp) does not."""
    in_grad_mode = torch.is_grad_enabled()
    forward_ad = torch.autograd.forward_ad
    has_tangents = forward_ad._current_level >= 0
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            continue
        if in_grad_mode and requires_grad(torch, tensor):
            raise NotImplementedError(
                "trimul has no backward yet, and an argument requires grad in grad mode: call under torch.no_grad() or torch.inference_mode()"
            )
        if has_tangents and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError("trimul has no forward-mode derivative yet, and an argument carries a tangent: detach it")


def requires_grad(torch: Any, tensor: Any) -> bool:
    """Also through the wrappers of torch.func's transforms, which hide it: a batch of vmap within grad, or of a tensor that requires grad."""
    if torch.compiler.is_compiling():
        return tensor.requires_grad
    functorch = torch._C._functorch
    while not tensor.requires_grad:
        if not functorch.is_functorch_wrapped_tensor(tensor):
            return False
        tensor = functorch.get_unwrapped(tensor)
    return True


def check_plain(name: str, value: Any) -> None:
    """For execute, which copies nothing."""
    if value.is_neg():
        raise ValueError(f"{name}: is a view that negates what it refers to, expected a plain tensor")


def check_tensor(torch: Any, name: str, value: Any, expected: str = "a torch.Tensor") -> None:
    """Raises for what no operator takes as a tensor; the library, which sees addresses and strides alone, checks the rest."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: is a {type(value).__name__}, expected {expected}")
    if value.layout is not torch.strided:
        raise ValueError(f"{name}: layout is {value.layout}, expected torch.strided")
    allowed = _library.DTYPES if name in ("mask", "workspace") else _FLOATS
    # Masks of dtypes that are neither are converted.
    if value.dtype.is_complex or (name != "mask" and str(value.dtype).rpartition(".")[2] not in allowed):
        raise ValueError(f"{name}: dtype is {value.dtype}, expected {', '.join(allowed)}")
