# SPDX-License-Identifier: Apache-2.0
"""The arguments that are no tensors: direction, precision, dtype names, devices. Knows torch only where the caller has it."""

from __future__ import annotations

import enum
import numbers
import sys
from typing import TYPE_CHECKING, Any, Union

from . import _library

if TYPE_CHECKING:
    import torch

    Precision = Union[str, int, enum.Enum, None]
    Dtype = Union[str, torch.dtype]
    Device = Union[str, torch.device]


class TriMulPrecision(enum.IntEnum):
    """Arithmetic of the matrix products; docs/op.md, "Precision". The numbers are those of cuEquivariance where it has them."""

    NONE = -1
    DEFAULT = 0
    TF32 = 1
    TF32x3 = 2
    IEEE = 3
    MXFP8 = 4
    BFLOAT16 = 5


DIRECTIONS = {"outgoing": 0, "incoming": 1}

_PRECISION_NAMES = {
    "none": TriMulPrecision.DEFAULT,
    "default": TriMulPrecision.DEFAULT,
    "tf32": TriMulPrecision.TF32,
    "tf32x3": TriMulPrecision.TF32x3,
    "ieee": TriMulPrecision.IEEE,
    "mxfp8": TriMulPrecision.MXFP8,
    "bfloat16": TriMulPrecision.BFLOAT16,
    "bf16": TriMulPrecision.BFLOAT16,
}

_SHORT_DTYPES = {
    "fp64": "float64", "f64": "float64", "double": "float64", "fp32": "float32", "f32": "float32", "float": "float32",
    "fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16",
}  # fmt: skip


def check_direction(direction: object) -> int:
    """0 for "outgoing", 1 for "incoming"."""
    if not isinstance(direction, str):
        raise TypeError(f"direction: is {direction!r}, expected 'outgoing' or 'incoming'")
    if direction not in DIRECTIONS:
        raise ValueError(f"direction: is {direction!r}, expected 'outgoing' or 'incoming'")
    return DIRECTIONS[direction]


def check_precision(precision: object) -> int:
    """The number of a precision given as None, name in any case, integer or enum; NONE counts as DEFAULT."""
    if precision is None:
        return 0
    value = precision.value if isinstance(precision, enum.Enum) else precision
    if isinstance(value, str) and value.lower() in _PRECISION_NAMES:
        return int(_PRECISION_NAMES[value.lower()])
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and -1 <= int(value) <= 5:
        return max(int(value), 0)
    names = ", ".join(repr(name) for name in _PRECISION_NAMES)
    text = f"precision: is {precision!r}, expected None, one of {names} in any case, or an integer from -1 to 5 (TriMulPrecision)"
    raise ValueError(text) if isinstance(value, (str, numbers.Integral)) else TypeError(text)


def check_eps(eps: Any) -> float:
    """eps as a float; the library checks what it holds."""
    if isinstance(eps, bool) or not isinstance(eps, numbers.Real):
        raise TypeError(f"eps: is {eps!r}, expected a number")
    # As a comparison of any real numbers: a large integer has no float.
    if not 2**-150 < eps <= 3.4028234663852886e38:
        raise ValueError(f"eps: is {eps!r}, expected finite, > 0 and not 0 in fp32")
    return float(eps)


def check_flag(name: str, value: object) -> bool:
    """True or False of a bool or an integer."""
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: is {value!r}, expected True or False")
    return bool(value)


def check_integer(name: str, value: Any) -> int:
    """An integer as the C ABI holds it; ctypes would drop the bits beyond 64 without a word."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: is {value!r}, expected an integer")
    value = value.__index__()
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{name}: is {value}, expected an integer of 64 bits")
    return value


def check_text(name: str, value: object) -> bytes | None:
    """The bytes of a name, None of None. For C, where a zero ends a name."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name}: is {value!r}, expected a string or None")
    if "\0" in value:
        raise ValueError(f"{name}: is {value!r}, expected one without zero characters")
    return value.encode()


def torch_allows_tf32() -> bool:
    """Whether torch multiplies fp32 matrices in TF32 on a GPU, by either of its switches; read at every call."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    matmul = torch.backends.cuda.matmul
    # Where the two switches contradict each other, torch refuses to read the older one.
    if getattr(matmul, "fp32_precision", None) == "tf32":
        return True
    try:
        return bool(matmul.allow_tf32)
    except RuntimeError:
        return False


def dtype_number(dtype: object, what: str = "dtype") -> int:
    """trimul_dtype of a name ("bfloat16", "bf16"), a torch dtype or a numpy dtype. ValueError for one without a number."""
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    number = _library.DTYPES.get(_SHORT_DTYPES.get(name, name))
    if number is None:
        raise ValueError(f"{what}: is {dtype}, expected one of {', '.join(_library.DTYPES)}")
    return number


def device_of(device: object, what: str = "device") -> _library.Device:
    """The C ABI's device of "cpu", "cuda", "cuda:1" or a torch.device; "cuda" alone is torch's current device, or 0."""
    kind, _, index = str(device).partition(":")
    if kind == "cpu":
        return _library.Device(_library.CPU, 0)
    if kind != "cuda" or not (index == "" or (index.isascii() and index.isdigit() and int(index) < 2**31)):
        raise ValueError(f"{what}: is {device!s}, expected cpu, cuda or cuda:INDEX")
    if index == "":
        torch = sys.modules.get("torch")
        return _library.Device(_library.CUDA, torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0)
    return _library.Device(_library.CUDA, int(index))
