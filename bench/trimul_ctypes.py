# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: as much of trimul.h as they need, through ctypes, over torch tensors on the CPU or a GPU."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p

import torch

DTYPES = {torch.float64: 1, torch.float32: 2, torch.float16: 3, torch.bfloat16: 4, torch.bool: 5}
PARAMETERS = [
    "norm_in_weight", "norm_in_bias", "p_in_weight", "p_in_bias", "g_in_weight", "g_in_bias",
    "norm_out_weight", "norm_out_bias", "p_out_weight", "p_out_bias", "g_out_weight", "g_out_bias",
]


class Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("index", c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", Device), ("ndim", c_int32), ("dtype", c_int32), ("sizes", POINTER(c_int64)), ("strides", POINTER(c_int64))]


class Sized(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Problem(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("batch", c_int64), ("tokens", c_int64), ("c_z", c_int64), ("c_hidden", c_int64), ("device", Device),
        ("direction", c_int32), ("x_dtype", c_int32), ("precision", c_int32), ("eps", c_float), ("has_mask", c_int32),
        ("has_in_bias", c_int32), ("has_out_bias", c_int32), ("residual", c_int32),
    ]


class Knob(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Options(Sized):
    _fields_ = [("struct_size", c_size_t), ("implementation", c_char_p), ("knobs", POINTER(Knob)), ("num_knobs", c_size_t), ("arch", c_char_p)]


class Parameters(Sized):
    _fields_ = [("struct_size", c_size_t)] + [(name, POINTER(Tensor)) for name in PARAMETERS]


class ExecuteArgs(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("x", POINTER(Tensor)), ("mask", POINTER(Tensor)), ("weights", c_void_p), ("out", POINTER(Tensor)),
        ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("stream", c_void_p),
    ]


def device_of(tensor):
    return Device(2, tensor.device.index) if tensor.is_cuda else Device(1, 0)


def tensor_view(tensor):
    """A trimul_tensor of a torch tensor, which must outlive it."""
    sizes = (c_int64 * tensor.dim())(*tensor.shape)
    strides = (c_int64 * tensor.dim())(*tensor.stride())
    return Tensor(tensor.data_ptr(), device_of(tensor), tensor.dim(), DTYPES[tensor.dtype], sizes, strides)


def current_stream(tensor):
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


class Trimul:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        for name in ("last_error", "version", "plan_implementation", "device_description", "build_info"):
            getattr(self.c, f"trimul_{name}").restype = c_char_p
        self.c.trimul_plan_workspace_bytes.restype = c_size_t
        self.c.trimul_plan_flop.restype = c_double
        self.c.trimul_plan_floor_us.restype = c_double
        self.c.trimul_plan_traffic_bytes.restype = c_int64

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.c.trimul_last_error().decode())

    def commit(self):
        """The commit that the library was built from, for reports."""
        lines = self.c.trimul_build_info().decode().splitlines()
        return next((line.removeprefix("commit: ") for line in lines if line.startswith("commit: ")), "unknown")

    def device_description(self):
        return self.c.trimul_device_description(Device(1, 0)).decode()

    def plan(self, *, tokens, c_z, c_hidden, x, has_mask, threads=None, direction=0, has_bias=False, residual=False):
        knobs = [] if threads is None else [(b"threads", threads)]
        problem = Problem(batch=x.shape[0], tokens=tokens, c_z=c_z, c_hidden=c_hidden, device=device_of(x), x_dtype=DTYPES[x.dtype], eps=1e-5,
                          direction=direction, has_mask=int(has_mask), has_in_bias=int(has_bias), has_out_bias=int(has_bias),
                          residual=int(residual))
        return Plan(self, problem, knobs)


class Plan:
    def __init__(self, library, problem, knobs):
        self.library = library
        self.handle = c_void_p()
        array = (Knob * max(len(knobs), 1))(*(Knob(*knob) for knob in knobs))
        options = Options(knobs=array, num_knobs=len(knobs))
        library.check(library.c.trimul_plan_create(ctypes.byref(problem), ctypes.byref(options), ctypes.byref(self.handle)))
        self.implementation = library.c.trimul_plan_implementation(self.handle).decode()
        self.flop = library.c.trimul_plan_flop(self.handle)
        self.floor_us = library.c.trimul_plan_floor_us(self.handle)
        self.traffic_bytes = library.c.trimul_plan_traffic_bytes(self.handle)

    def bind(self, x, mask, parameters, out):
        """A function that executes on these tensors, on torch's current stream. Weights are prepared and the workspace is allocated here."""
        c = self.library.c
        views = {name: tensor_view(value) for name, value in parameters.items()}
        weights = c_void_p()
        self.library.check(c.trimul_weights_create(
            self.handle, ctypes.byref(Parameters(**{name: ctypes.pointer(view) for name, view in views.items()})),
            c_void_p(current_stream(x)), ctypes.byref(weights)))
        workspace_bytes = c.trimul_plan_workspace_bytes(self.handle)
        workspace = torch.empty(workspace_bytes + 255, dtype=torch.uint8, device=x.device)
        aligned = (workspace.data_ptr() + 255) // 256 * 256
        tensors = [tensor_view(tensor) for tensor in (x, out)] + ([] if mask is None else [tensor_view(mask)])
        args = ExecuteArgs(x=ctypes.pointer(tensors[0]), mask=None if mask is None else ctypes.pointer(tensors[2]), weights=weights,
                           out=ctypes.pointer(tensors[1]), workspace=aligned, workspace_bytes=workspace_bytes)
        kept = (x, mask, out, parameters, workspace, tensors, self)

        def execute(kept=kept):
            args.stream = current_stream(x)
            self.library.check(c.trimul_execute(self.handle, ctypes.byref(args)))

        return execute
