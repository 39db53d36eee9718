# SPDX-License-Identifier: Apache-2.0
"""This library under cuEquivariance's names, for models that hard-code them.

Served are `triangle_multiplicative_update` and `TriMulPrecision`, both in `cuequivariance_torch` and in
`cuequivariance_torch.primitives.triangle`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import opcode
import sys
import threading
from typing import TYPE_CHECKING, Any

import trimul

if TYPE_CHECKING:
    import torch

    from trimul._arguments import Precision

__all__ = ["install_as_cuequivariance", "uninstall_as_cuequivariance"]

_PACKAGE = "cuequivariance_torch"
_NAMESPACE = "cuequivariance_torch.primitives"
_TRIANGLE = "cuequivariance_torch.primitives.triangle"
_MODULES = (_PACKAGE, _NAMESPACE, _TRIANGLE)
_MODULES_WITH_NAMES = (_TRIANGLE, _PACKAGE)  # the package takes its names from the module
_NAMES = ("triangle_multiplicative_update", "TriMulPrecision")
# A valid version (PEP 440) that compares as the release whose signature is served.
_VERSION = "0.12.0+trimul"
_ABSENT = object()

_lock = threading.RLock()
_finder: _Finder | None = None  # the _Finder on sys.meta_path while installed


def install_as_cuequivariance() -> None:
    """Makes cuEquivariance's triangle multiplicative update resolve to this library, whether or not cuEquivariance is installed.

    Installed: `triangle_multiplicative_update` and, where it is exported, `TriMulPrecision` are replaced in `cuequivariance_torch`
    and `cuequivariance_torch.primitives.triangle`, now if they are loaded and else when they are; everything else stays theirs. It
    is not imported here, and an error of its import stays its own. Absent (or blocked by None in sys.modules): stand-in modules with
    those two names alone; any other name is an AttributeError, in a `from` import an ImportError, that says what to do.

    A module that has bound the incumbent's function to a name of its own before this call keeps it. Calling again while installed
    changes nothing, and one uninstall_as_cuequivariance() undoes any number of calls. Imports no torch and prints nothing.
    """
    global _finder
    with _lock:
        if _finder is not None:
            return
        _finder = _Finder([name for name in _MODULES if sys.modules.get(name, _ABSENT) is None])
        try:
            for name in _finder.blocked:
                del sys.modules[name]
            sys.meta_path.insert(0, _finder)
            for name in _MODULES_WITH_NAMES:
                if name in sys.modules:
                    _finder.replace_names(sys.modules[name])
            if _PACKAGE not in sys.modules and _finder.find_theirs(_PACKAGE) is None:
                importlib.import_module(_TRIANGLE)
        except BaseException:
            uninstall_as_cuequivariance()
            raise


def uninstall_as_cuequivariance() -> None:
    """Undoes install_as_cuequivariance(): sys.meta_path, sys.modules and the incumbent's attributes are as they were before it.

    An attribute that somebody else has assigned in between is left alone, and so are modules of the incumbent imported in between.
    Does nothing when not installed.
    """
    global _finder
    with _lock:
        if _finder is None:
            return
        finder, _finder = _finder, None
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        finder.restore_names()
        for name in _MODULES:
            module = sys.modules.get(name)
            if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _StandInLoader):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                parent = sys.modules.get(parent)
                if parent is not None and vars(parent).get(child) is module:
                    delattr(parent, child)
        for name in finder.blocked:
            sys.modules[name] = None  # pyright: ignore[reportArgumentType]


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
    """trimul.triangle_multiplicative_update, looked up when called so that installing needs no torch."""
    return trimul.triangle_multiplicative_update(
        x, direction, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
        p_out_weight, p_out_bias, g_out_weight, g_out_bias, eps, precision, out=out, stream=stream, residual=residual)


def _ours(name):
    return triangle_multiplicative_update if name == "triangle_multiplicative_update" else getattr(trimul, name)


class _Finder:
    """First on sys.meta_path: replaces names in the incumbent's modules once they are executed, and finds stand-ins where no other
    finder has a module."""

    def __init__(self, blocked):
        self.blocked = blocked  # modules that were None in sys.modules
        self._replaced = {}  # (id of the module, name): (module, our value, theirs or _ABSENT)
        self._theirs = {}  # name: the value that their module defined

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _MODULES:
            return None
        spec = self.find_theirs(fullname, path, target)
        if spec is None:
            loader: Any = _StandInLoader()
            return importlib.machinery.ModuleSpec(fullname, loader, origin="trimul.install_as_cuequivariance()", is_package=fullname != _TRIANGLE)
        if fullname in _MODULES_WITH_NAMES and spec.loader is not None:
            spec.loader = _ReplacingLoader(spec.loader, self)  # pyright: ignore[reportAttributeAccessIssue]
        return spec

    def find_theirs(self, fullname, path=None, target=None):
        """What the other finders know of the module: a spec or None."""
        if fullname in self.blocked:
            return None
        for finder in list(sys.meta_path):
            if not isinstance(finder, _Finder) and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def replace_names(self, module):
        """Puts our values into one of their modules. TriMulPrecision only where they export it: old releases do not."""
        for name in _NAMES:
            theirs = vars(module).get(name, _ABSENT)
            if theirs is _ABSENT and name == "TriMulPrecision":
                continue
            ours = _ours(name)
            if theirs is not ours:
                self._theirs[name] = theirs
            else:  # imported from their other module, where it has been replaced already
                theirs = self._theirs.get(name, _ABSENT)
            self._replaced[id(module), name] = (module, ours, theirs)
            setattr(module, name, ours)

    def restore_names(self):
        for (_, name), (module, ours, theirs) in self._replaced.items():
            if vars(module).get(name, _ABSENT) is not ours:
                continue
            if theirs is _ABSENT:
                delattr(module, name)
            else:
                setattr(module, name, theirs)


class _ReplacingLoader:
    """Executes a module with their loader, which it is left with, then replaces names in it."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # Before their code runs: it may read its own files through the loader.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            if _finder is self._finder:
                self._finder.replace_names(module)


class _StandInLoader:
    """Makes the stand-in modules."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__doc__ = "trimul under cuEquivariance's names; see trimul.install_as_cuequivariance."
        module.__getattr__ = _getattr_of(module)
        if module.__name__ == _NAMESPACE:
            return
        module.__all__ = list(_NAMES)
        module.triangle_multiplicative_update = triangle_multiplicative_update
        if module.__name__ == _PACKAGE:
            module.__version__ = _VERSION


def _getattr_of(module):
    """The module's __getattr__: TriMulPrecision and submodules when they are first asked for, an explanation instead of any other name."""

    def __getattr__(name):
        # Not imported with the package: importing them from within it could deadlock with a thread that imports one by its full name.
        if f"{module.__name__}.{name}" in _MODULES:
            return importlib.import_module(f"{module.__name__}.{name}")
        if name == "TriMulPrecision" and module.__name__ != _NAMESPACE:
            module.TriMulPrecision = trimul.TriMulPrecision
            return module.TriMulPrecision
        # `from module import name` would replace an AttributeError with a text of its own that does not say why.
        frame = sys._getframe(1)
        imported = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]
        raise (ImportError if imported else AttributeError)(
            f"{module.__name__}.{name} is not served: the module is trimul's stand-in (trimul.install_as_cuequivariance()), expected one "
            f"of {', '.join(_NAMES)}; to use {name}, install cuEquivariance, or switch off the model's option that asks for it")

    return __getattr__
