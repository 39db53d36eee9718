# SPDX-License-Identifier: Apache-2.0
"""Knobs of the implementations and what the library recommends. Needs neither torch nor a GPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _arguments, _library

if TYPE_CHECKING:
    from ._arguments import Device, Dtype

# Every knob of every implementation; include/trimul/trimul.h says what each means.
KNOB_NAMES = ("k1_parts", "k1_tile", "k2_tile", "k3_tile", "overlap", "threads")


class TriMulKnobs:
    """Values for some of the knobs; those left out, or None, are the library's to choose. Immutable, comparable, hashable.

    Every value of every knob computes bitwise the same. Unknown name: ValueError; so is, in a plan, a name that the implementation that serves it
    does not have. A value that cannot serve a problem is declined by the plan: NotImplementedError.
    """

    __slots__ = ("_values",)

    def __init__(self, **values: int | None) -> None:
        for name, value in values.items():
            if name not in KNOB_NAMES:
                raise ValueError(f"knob: {name!r} is unknown, expected one of {', '.join(KNOB_NAMES)}")
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"knob {name}: is {value!r}, expected an integer")
        object.__setattr__(self, "_values", {name: values[name] for name in KNOB_NAMES if values.get(name) is not None})

    def __getattr__(self, name: str) -> int | None:
        if name in KNOB_NAMES:
            return self._values.get(name)
        raise AttributeError(f"TriMulKnobs has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TriMulKnobs is immutable; make another with {name}={value!r}")

    def __reduce__(self):
        return _from_dict, (dict(self._values),)

    def as_dict(self) -> dict[str, int]:
        """{name: value} of the knobs that have a value."""
        return dict(self._values)

    def replace(self, **values: int | None) -> TriMulKnobs:
        """The same knobs with some changed."""
        return TriMulKnobs(**{**self._values, **values})

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, TriMulKnobs) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self):
        return f"TriMulKnobs({', '.join(f'{name}={value}' for name, value in self._values.items())})"


def _from_dict(values: dict[str, int]) -> TriMulKnobs:
    return TriMulKnobs(**values)


def read_knobs(knobs: Any) -> TriMulKnobs:
    """TriMulKnobs of TriMulKnobs, a dict or None."""
    if knobs is None:
        return TriMulKnobs()
    if isinstance(knobs, TriMulKnobs):
        return knobs
    if isinstance(knobs, dict):
        return TriMulKnobs(**knobs)
    raise TypeError(f"knobs: is a {type(knobs).__name__}, expected TriMulKnobs, a dict or None")


def recommend(
    N: int,
    c: int = 128,
    B: int = 1,
    direction: str = "outgoing",
    *,
    c_z: int | None = None,
    dtype: Dtype = "bfloat16",
    implementation: str | None = None,
    device: Device = "cuda",
    arch: str | None = "sm90",
) -> TriMulKnobs:
    """Complete knobs for B samples of N tokens: what a plan without knobs would use.

    c: hidden width C; c_z: pair width, C where None. `arch`: the GPU architecture to recommend for, whether or not one is here ("sm80", "sm86",
    "sm89", "sm90", "sm100", "sm120"); None: the GPU `device` that is here. device="cpu": the CPU's knobs. `implementation`: whose knobs; None: those
    of the first that serves. ValueError for what no problem can be; NotImplementedError with each implementation's reason where none serves.
    """
    place = _arguments.device_of(device)
    B, N, c = (_arguments.check_integer(name, value) for name, value in (("B", B), ("N", N), ("c", c)))
    c_z = c if c_z is None else _arguments.check_integer("c_z", c_z)
    problem = _library.Problem(
        batch=B, tokens=N, c_z=c_z, c_hidden=c, device=place, direction=_arguments.check_direction(direction),
        x_dtype=_arguments.dtype_number(dtype), eps=1e-5, has_mask=1,
    )  # fmt: skip
    name, named_arch = _arguments.check_text("implementation", implementation), _arguments.check_text("arch", arch)
    target = named_arch if place.type == _library.CUDA else None
    knobs, count = (_library.Knob * 16)(), ctypes.c_size_t()
    _library.check(_library.load().trimul_recommend_knobs(ctypes.byref(problem), name, target, knobs, len(knobs), ctypes.byref(count)))
    return TriMulKnobs(**{knob.name.decode(): knob.value for knob in knobs[: count.value]})
