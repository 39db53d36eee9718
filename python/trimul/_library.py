# SPDX-License-Identifier: Apache-2.0
"""libtrimul through ctypes: the structs and functions of include/trimul/trimul.h that this package uses. Knows nothing of torch."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import sys
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from typing import NamedTuple, Sequence

# Not resolved: a package in a build tree is made of links. An editable install has what was compiled in a second place of the package's path.
_PLACES = [pathlib.Path(place).absolute() / "lib" for place in sys.modules[__name__.rpartition(".")[0]].__path__]
DIRECTORY = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
SONAME = "libtrimul.so.0"

PARAMETERS = (
    "norm_in_weight", "norm_in_bias", "p_in_weight", "p_in_bias", "g_in_weight", "g_in_bias",
    "norm_out_weight", "norm_out_bias", "p_out_weight", "p_out_bias", "g_out_weight", "g_out_bias",
)
CPU, CUDA = 1, 2
DTYPES = {"float64": 1, "float32": 2, "float16": 3, "bfloat16": 4, "bool": 5, "uint8": 6, "int8": 7, "int16": 8, "int32": 9, "int64": 10}
# Of scratch memory in the C ABI. torch aligns memory of the CPU to 64 bytes: workspaces there have the rest as slack.
ALIGNMENT_BYTES = 256
CPU_SLACK_BYTES = ALIGNMENT_BYTES - 64
STATUS_NAMES = ("OK", "INVALID_ARGUMENT", "UNSUPPORTED", "OUT_OF_MEMORY", "DEVICE_ERROR", "INTERNAL")


class Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("index", c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", Device), ("ndim", c_int32), ("dtype", c_int32), ("sizes", POINTER(c_int64)), ("strides", POINTER(c_int64))]


class Sized(ctypes.Structure):
    """A struct that begins with its own size."""

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


class PlanOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("implementation", c_char_p), ("knobs", POINTER(Knob)), ("num_knobs", c_size_t), ("arch", c_char_p),
        ("max_threads", c_int64),
    ]


class Parameters(Sized):
    _fields_ = [("struct_size", c_size_t)] + [(name, POINTER(Tensor)) for name in PARAMETERS]


class ExecuteArgs(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("x", POINTER(Tensor)), ("mask", POINTER(Tensor)), ("weights", c_void_p), ("out", POINTER(Tensor)),
        ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("stream", c_void_p),
    ]


class UpdateArgs(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("x", POINTER(Tensor)), ("mask", POINTER(Tensor)), ("parameters", POINTER(Parameters)), ("out", POINTER(Tensor)),
        ("direction", c_int32), ("precision", c_int32), ("eps", c_float), ("residual", c_int32), ("options", POINTER(PlanOptions)), ("stream", c_void_p),
    ]


class CacheInfo(Sized):
    _fields_ = [(name, c_size_t) for name in ("struct_size", "hits", "misses", "entries", "capacity")]


class PlanCacheInfo(NamedTuple):
    """Counts since the process began or the cache was cleared. A hit: an equal problem had a plan already."""

    hits: int
    misses: int
    entries: int
    capacity: int


_handle, _text, _status = c_void_p, c_char_p, c_int32
# name -> result, arguments
_FUNCTIONS = {
    "last_error": (_text, []),
    "version": (_text, []),
    "build_info": (_text, []),
    "cuda_device_count": (c_int32, []),
    "device_description": (_text, [Device]),
    "tensor_check_disjoint": (_status, [_text, POINTER(Tensor), _text, POINTER(Tensor)]),
    "problem_out_dtype": (_status, [POINTER(Problem), POINTER(c_int32)]),
    "implementation_count": (c_size_t, []),
    "implementation_name": (_text, [c_size_t]),
    "recommend_knobs": (_status, [POINTER(Problem), _text, _text, POINTER(Knob), c_size_t, POINTER(c_size_t)]),
    "plan_acquire": (_status, [POINTER(Problem), POINTER(PlanOptions), POINTER(_handle)]),
    "plan_destroy": (None, [_handle]),
    "plan_cache_get_info": (_status, [POINTER(CacheInfo)]),
    "plan_cache_clear": (None, []),
    "plan_workspace_bytes": (c_size_t, [_handle]),
    "plan_workspace_bytes_with_parameters": (c_size_t, [_handle]),
    "plan_packed_bytes": (c_size_t, [_handle]),
    "plan_implementation": (_text, [_handle]),
    "plan_traffic_bytes": (c_int64, [_handle]),
    "plan_flop": (c_double, [_handle]),
    "plan_floor_us": (c_double, [_handle]),
    "plan_explain": (_text, [_handle]),
    "weights_pack": (_status, [_handle, POINTER(Parameters), c_void_p, c_size_t, c_void_p, POINTER(_handle)]),
    "weights_destroy": (None, [_handle]),
    "weights_bytes": (c_size_t, [_handle]),
    "execute": (_status, [_handle, POINTER(ExecuteArgs)]),
    "execute_parameters": (_status, [_handle, POINTER(ExecuteArgs), POINTER(Parameters)]),
    "reference": (_status, [POINTER(UpdateArgs), c_int32, POINTER(c_int64), c_size_t, POINTER(c_double)]),
}


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, loaded once. ImportError that says what the loader said."""
    path = DIRECTORY / SONAME
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        reason = str(error) if path.exists() else f"{path} is missing: the package was not built or not installed whole"
        raise ImportError(f"trimul: its library could not be loaded: {reason}") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, f"trimul_{name}")
        except AttributeError as error:
            raise ImportError(f"trimul: {path} is of another version, it has no trimul_{name}") from error
        function.restype, function.argtypes = result, arguments
    return library


def exception_class(status: str) -> type[Exception]:
    """The Python exception of a status name: the table in docs/op.md."""
    if status == "INVALID_ARGUMENT":
        return ValueError
    if status == "UNSUPPORTED":
        return NotImplementedError
    if status == "OUT_OF_MEMORY":
        torch = sys.modules.get("torch")
        return MemoryError if torch is None else getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return RuntimeError


def check(status: int) -> None:
    """Raises the exception of a status that is not OK, with the library's message."""
    if status != 0:
        name = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else "INTERNAL"
        raise exception_class(name)(load().trimul_last_error().decode())


def version() -> str:
    """Version of the library, "major.minor.patch"."""
    return load().trimul_version().decode()


def build_info() -> dict[str, str]:
    """How the library was built: commit, compiler, oneDNN, CUDA architectures."""
    lines = load().trimul_build_info().decode().splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def plan_cache_info() -> PlanCacheInfo:
    """Hits, misses, entries and capacity of the cache of plans that the whole process shares."""
    info = CacheInfo()
    check(load().trimul_plan_cache_get_info(ctypes.byref(info)))
    return PlanCacheInfo(info.hits, info.misses, info.entries, info.capacity)


def clear_plan_cache() -> None:
    """Forgets every plan that nobody holds, and the counts."""
    load().trimul_plan_cache_clear()


def make_options(
    implementation: str | None = None, knobs: Sequence[tuple[str, int]] = (), arch: str | None = None, max_threads: int = 0
) -> PlanOptions:
    """PlanOptions of names and (name, value) pairs; keeps what it points to alive."""
    for name, value in knobs:
        if not -(2**63) <= value < 2**63:
            raise NotImplementedError(f"knob {name}: is {value}, more than any implementation serves")
    encode = lambda text: None if text is None else text.encode()
    array = (Knob * max(len(knobs), 1))(*(Knob(name.encode(), value) for name, value in knobs))
    return PlanOptions(implementation=encode(implementation), knobs=array, num_knobs=len(knobs), arch=encode(arch), max_threads=max_threads)


class PlanHandle:
    """A plan of the cache, given back when nobody refers to it any more."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self._library = load()
        self.value = c_void_p()
        check(self._library.trimul_plan_acquire(ctypes.byref(problem), ctypes.byref(options), ctypes.byref(self.value)))

    def __del__(self):
        if getattr(self, "value", None):
            self._library.trimul_plan_destroy(self.value)


class WeightsHandle:
    """Packed weights, destroyed when nobody refers to them any more."""

    def __init__(self, plan: PlanHandle, parameters: Parameters, memory: int | None, memory_bytes: int, stream: int | None) -> None:
        self._library = load()
        self.value = c_void_p()
        check(self._library.trimul_weights_pack(plan.value, ctypes.byref(parameters), memory, memory_bytes, stream, ctypes.byref(self.value)))

    def __del__(self):
        if getattr(self, "value", None):
            self._library.trimul_weights_destroy(self.value)
