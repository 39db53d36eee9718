# SPDX-License-Identifier: Apache-2.0
"""trimul: the triangle multiplicative update of AlphaFold-class models.

    from trimul import triangle_multiplicative_update          # instead of cuequivariance_torch

docs/python.md describes what is here, docs/op.md the operator's contract. Importing this package imports neither torch nor numpy, loads no
library and writes nothing; what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # that of typing, the import of which takes four times as long as this package's

__all__ = [
    "PlanCacheInfo",
    "PreparedWeights",
    "TensorDesc",
    "TriMulKnobs",
    "TriMulPrecision",
    "TriangleMultiplicativeUpdateFwd",
    "build_info",
    "clear_plan_cache",
    "install_as_cuequivariance",
    "patch_openfold3",
    "plan_cache_info",
    "prepare_weights",
    "triangle_multiplicative_update",
    "uninstall_as_cuequivariance",
    "unpatch_openfold3",
]

# Name -> the module of this package that holds it.
_PLACES = {
    "PlanCacheInfo": "_library",
    "PreparedWeights": "_plan",
    "TensorDesc": "_plan",
    "TriMulKnobs": "heuristics",
    "TriMulPrecision": "_arguments",
    "TriangleMultiplicativeUpdateFwd": "_plan",
    "build_info": "_library",
    "clear_plan_cache": "_library",
    "install_as_cuequivariance": "_cuequivariance",
    "patch_openfold3": "_openfold3",
    "plan_cache_info": "_library",
    "prepare_weights": "_plan",
    "triangle_multiplicative_update": "_drop_in",
    "uninstall_as_cuequivariance": "_cuequivariance",
    "unpatch_openfold3": "_openfold3",
}
_MODULES = ("heuristics", "nn", "reference", "torch")

if TYPE_CHECKING:  # the same for those who read without running; tests/python/test_types.py holds one against the other
    from . import heuristics as heuristics
    from . import nn as nn
    from . import reference as reference
    from . import torch as torch
    from ._arguments import TriMulPrecision
    from ._cuequivariance import install_as_cuequivariance, uninstall_as_cuequivariance
    from ._drop_in import triangle_multiplicative_update
    from ._library import PlanCacheInfo, build_info, clear_plan_cache, plan_cache_info
    from ._openfold3 import patch_openfold3, unpatch_openfold3
    from ._plan import PreparedWeights, TensorDesc, TriangleMultiplicativeUpdateFwd, prepare_weights
    from .heuristics import TriMulKnobs

    __version__: str
else:

    def __getattr__(name):
        if name in _PLACES:
            value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
        elif name in _MODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        elif name == "__version__":
            value = importlib.import_module(f"{__name__}._library").version()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
