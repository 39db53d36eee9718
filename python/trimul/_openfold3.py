# SPDX-License-Identifier: Apache-2.0
"""This library in OpenFold3's triangle multiplicative updates.

OpenFold3 (openfold3 0.5.0) has one switch, `use_cueq_triangle_kernels`, for triangle multiplication and triangle attention. It reads
at import whether cuEquivariance is there, and then takes attention from cuEquivariance's ops package, so stand-ins for
`cuequivariance_torch` alone do not serve it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading

from trimul._cuequivariance import triangle_multiplicative_update

__all__ = ["patch_openfold3", "unpatch_openfold3"]

_MODULE = "openfold3.core.model.layers.triangular_multiplicative_update"
_CLASSES = ("TriangleMultiplicativeUpdate", "FusedTriangleMultiplicativeUpdate")
_FORWARD_PARAMETERS = ("self", "z", "mask", "inplace_safe", "use_cueq_triangle_kernels", "use_triton_triangle_kernels",
                       "_add_with_inplace", "_inplace_chunk_size")
_KERNEL_CALLER = "_cueq_triangle_mult"
_KERNEL = "triangle_multiplicative_update"
_ABSENT = object()

_lock = threading.RLock()
_replaced = []  # (object, attribute, our value, theirs or _ABSENT)


def patch_openfold3(*, always: bool = False) -> None:
    """Makes the kernel path of OpenFold3's triangle multiplicative updates call this library; needs no cuEquivariance.

    The kernel path is what `use_cueq_triangle_kernels=True` takes. In a whole model that switch also sends triangle attention to
    cuEquivariance's ops package and is an error there without it; so where that package is absent leave the switch off and pass
    `always=True`: every triangle multiplicative update then takes the kernel path, whatever the switch says, and keeps what it returns and writes
    (`inplace_safe` writes z, `_add_with_inplace` adds to it). Modules that exist already are served too.

    The last call decides `always`; one unpatch_openfold3() undoes any number of calls. ImportError: openfold3 cannot be imported.
    NotImplementedError: its module is not what 0.5.0 has; nothing is patched then.
    """
    with _lock:
        module = _import_openfold3()
        _check(module)
        unpatch_openfold3()
        _replace(module, _KERNEL, triangle_multiplicative_update)
        if always:
            for name in _CLASSES:
                cls = getattr(module, name)
                _replace(cls, "forward", _always_through_the_kernel(cls.forward))


def unpatch_openfold3() -> None:
    """Undoes patch_openfold3(); what somebody else has assigned in between is left alone. Does nothing when not patched."""
    with _lock:
        while _replaced:
            owner, name, ours, theirs = _replaced.pop()
            if vars(owner).get(name) is not ours:
                continue
            if theirs is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, theirs)


def _replace(owner, name, ours):
    _replaced.append((owner, name, ours, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, ours)


def _import_openfold3():
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        if error.name == "openfold3":
            raise ImportError("patch_openfold3: openfold3 is not installed, expected openfold3 0.5.0", name="openfold3") from error
        hint = ""
        if (error.name or "").startswith("cuequivariance"):
            hint = "; call patch_openfold3() before install_as_cuequivariance(), whose stand-ins have no attention kernel for it"
        raise ImportError(f"patch_openfold3: importing {_MODULE} failed: {error}{hint}", name=error.name) from error


def _check(module):
    """NotImplementedError unless the module has what 0.5.0 has: a function that calls the kernel by its global name, and classes with
    the switch."""
    expected = f"expected what openfold3 0.5.0 has in {_MODULE}"
    caller = getattr(module, _KERNEL_CALLER, None)
    if not inspect.isfunction(caller) or _KERNEL not in caller.__code__.co_names:
        got = "no such function" if caller is None else f"{caller!r}, which does not call {_KERNEL}"
        raise NotImplementedError(f"patch_openfold3: {_KERNEL_CALLER}: got {got}; {expected}")
    for name in _CLASSES:
        cls = getattr(module, name, None)
        if not inspect.isclass(cls) or "forward" not in vars(cls):
            raise NotImplementedError(f"patch_openfold3: {name}: got {cls!r}, not a class with a forward of its own; {expected}")
        got = tuple(inspect.signature(cls.forward).parameters)  # pyright: ignore[reportAttributeAccessIssue]
        if got != _FORWARD_PARAMETERS:
            raise NotImplementedError(
                f"patch_openfold3: {name}.forward: got the parameters {', '.join(got)}, expected {', '.join(_FORWARD_PARAMETERS)}; {expected}")


def _always_through_the_kernel(forward):
    @functools.wraps(forward)
    def kernel_forward(self, z, mask=None, inplace_safe=False, use_cueq_triangle_kernels=False, use_triton_triangle_kernels=False,
                       _add_with_inplace=False, _inplace_chunk_size=256):
        update = forward(self, z, mask=mask, use_cueq_triangle_kernels=True)
        # With their switch on, callers add the update themselves; with it off, inplace_safe asks for z overwritten.
        if use_cueq_triangle_kernels or not inplace_safe:
            return update
        return z.add_(update) if _add_with_inplace else z.copy_(update)

    return kernel_forward
