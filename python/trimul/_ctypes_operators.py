# SPDX-License-Identifier: Apache-2.0
"""torch tensors for the C ABI, and the operators over ctypes: for a torch that is older than the extension's stable ABI."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from . import _library

_DTYPES = {getattr(torch, name): number for name, number in _library.DTYPES.items()}
MASK_DTYPES = frozenset(_DTYPES)
_TORCH_DTYPES = {number: dtype for dtype, number in _DTYPES.items()}
_WIDTHS = {1: _library.DTYPES["int8"], 2: _library.DTYPES["int16"], 4: _library.DTYPES["int32"], 8: _library.DTYPES["int64"]}


def device_of(tensor, what):
    if tensor.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"{what}: is on {tensor.device}, expected cpu or cuda")
    return _library.Device(_library.CUDA, tensor.device.index) if tensor.is_cuda else _library.Device(_library.CPU, 0)


def view(tensor, what):
    """A trimul_tensor of a torch tensor, which must outlive it. ValueError for a dtype without a number."""
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{what}: dtype is {tensor.dtype}, expected float64, float32, float16 or bfloat16")
    return _view(tensor, what, _DTYPES[tensor.dtype])


def view_any(tensor, what):
    """The same for its memory alone: a dtype without a number counts as an integer of its width."""
    return _view(tensor, what, _DTYPES.get(tensor.dtype) or _WIDTHS[tensor.element_size()])


def _view(tensor, what, dtype):
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    return _library.Tensor(tensor.data_ptr(), device_of(tensor, what), tensor.dim(), dtype, sizes, strides)


def current_stream(tensor):
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


def parameter_table(tensors):
    """trimul_parameters of twelve contiguous tensors or None in the operator's order, which must outlive it."""
    views = {name: None if tensor is None else ctypes.pointer(view(tensor, name)) for name, tensor in zip(_library.PARAMETERS, tensors)}
    return _library.Parameters(**views)


def aligned(workspace):
    """(address, bytes) of a buffer as the C ABI takes it: on the CPU, where CPU_SLACK_BYTES of it are for that, from a multiple of 256 on."""
    address, size = workspace.data_ptr(), workspace.numel() * workspace.element_size()
    if workspace.is_cuda or address % 64:
        return address, size
    return address + -address % _library.ALIGNMENT_BYTES, size - _library.CPU_SLACK_BYTES


def check_disjoint(out, tensor, what):
    """For a tensor that is copied on its way in, as the C ABI sees only the copy."""
    if out is not None:
        first, second = view(out, "out"), view_any(tensor, what)
        _library.check(_library.load().trimul_tensor_check_disjoint(b"out", ctypes.byref(first), what.encode(), ctypes.byref(second)))


def _contiguous(tensor: Any, what: str, out: Any) -> Any:
    if tensor is None or tensor.is_contiguous():
        return tensor
    check_disjoint(out, tensor, what)
    return tensor.contiguous()


def _run(x, mask, parameters, direction, eps, precision, residual, out):
    library = _library.load()
    x = _contiguous(x, "x", out)
    if mask is not None and mask.dtype not in _DTYPES and not mask.is_complex():
        check_disjoint(out, mask, "mask")
        mask = mask.float()
    parameters = [_contiguous(tensor, name, out) for name, tensor in zip(_library.PARAMETERS, parameters)]
    if x.dim() < 3:
        raise ValueError(f"x: number of dimensions is {x.dim()}, expected at least 3: [..., N, N, C_z]")
    named = dict(zip(_library.PARAMETERS, parameters))
    p_in = named["p_in_weight"]
    if p_in.dim() != 2 or p_in.shape[0] < 2 or p_in.shape[0] % 2:
        raise ValueError(f"p_in_weight: shape is {list(p_in.shape)}, expected [2C, C_z]")
    # Before a plan is asked for, so that no implementation declines widths that do not belong together.
    if p_in.shape[1] != x.shape[-1]:
        raise ValueError(f"p_in_weight: dimension C_z (1 of {list(p_in.shape)}) is {p_in.shape[1]}, expected {x.shape[-1]} (from x)")
    x_view = view(x, "x")
    problem = _library.Problem(
        batch=x.shape[:-3].numel(), tokens=x.shape[-3], c_z=x.shape[-1], c_hidden=p_in.shape[0] // 2, device=x_view.device, direction=direction,
        x_dtype=x_view.dtype, precision=precision, eps=eps, has_mask=int(mask is not None),
        has_in_bias=int(named["p_in_bias"] is not None or named["g_in_bias"] is not None),
        has_out_bias=int(named["p_out_bias"] is not None or named["g_out_bias"] is not None), residual=int(residual),
    )  # fmt: skip
    table = parameter_table(parameters)
    plan = _library.PlanHandle(problem, _library.make_options(max_threads=0 if x.is_cuda else torch.get_num_threads()))
    if out is None:
        dtype = ctypes.c_int32()
        _library.check(library.trimul_problem_out_dtype(ctypes.byref(problem), ctypes.byref(dtype)))
        out = torch.empty(x.shape, dtype=_TORCH_DTYPES[dtype.value], device=x.device)
    args = _library.ExecuteArgs(x=ctypes.pointer(x_view), out=ctypes.pointer(view(out, "out")), stream=current_stream(x))
    if mask is not None:
        args.mask = ctypes.pointer(view(mask, "mask"))
    needed = library.trimul_plan_workspace_bytes_with_parameters(plan.value)
    workspace = torch.empty(needed + (0 if x.is_cuda or needed == 0 else _library.CPU_SLACK_BYTES), dtype=torch.uint8, device=x.device)
    if needed:
        args.workspace, args.workspace_bytes = aligned(workspace)
    _library.check(library.trimul_execute_parameters(plan.value, ctypes.byref(args), ctypes.byref(table)))
    return out


def update(x, mask, *rest):
    *parameters, direction, eps, precision, residual = rest
    return _run(x, mask, parameters, direction, eps, precision, residual, None)


def update_out(x, mask, *rest, out):
    *parameters, direction, eps, precision, residual = rest
    _run(x, mask, parameters, direction, eps, precision, residual, out)


def execute(plan, x, mask, weights, out, workspace, stream):
    args = _library.ExecuteArgs(x=ctypes.pointer(view(x, "x")), out=ctypes.pointer(view(out, "out")), weights=weights or None)
    if mask is not None:
        args.mask = ctypes.pointer(view(mask, "mask"))
    if workspace is not None:
        _bind_workspace(args, _library.load().trimul_plan_workspace_bytes(plan), x, workspace)
    if stream is not None and not x.is_cuda:
        raise ValueError(f"current_stream: is given, but x is on {x.device}, expected x on a GPU")
    args.stream = current_stream(x) if stream is None else stream
    _library.check(_library.load().trimul_execute(ctypes.c_void_p(plan), ctypes.byref(args)))


def _bind_workspace(args, needed, x, workspace):
    if workspace.device != x.device:
        raise ValueError("workspace: is on another device than x, expected the same")
    if not workspace.is_contiguous():
        raise ValueError("workspace: is not contiguous, expected a contiguous buffer")
    size = workspace.numel() * workspace.element_size()
    expected = needed + (0 if x.is_cuda or needed == 0 else _library.CPU_SLACK_BYTES)
    if size < expected:
        raise ValueError(f"workspace: size is {size} bytes, expected at least {expected}")
    if needed:
        args.workspace, args.workspace_bytes = aligned(workspace)


def refuse_negated(*_):
    """For execute: bindings/torch/operators.cpp says why."""
    raise ValueError("execute: a tensor is a view that negates what it refers to, expected plain tensors")
