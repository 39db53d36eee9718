# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.trimul.*: loads the extension (bindings/torch) or, for a torch without the stable ABI, defines the same over ctypes.

    update(x, mask, the twelve parameters, direction, eps, precision, residual) -> Tensor      the drop-in call, for those who record it
    _update(the same) -> Tensor                                                                the same in eager code, without autograd's part
    update_out(..., *, out) -> ()                                                              the same into `out`
    execute(plan, x, mask, weights, out, workspace, stream) -> ()                              one execute of a plan

`update` and `update_out` may be compiled, exported and checked as any operator; `execute` takes handles and is for the class API alone.
"""

from __future__ import annotations

import re
import threading
from typing import Any, NoReturn

import torch

from . import _library

EXTENSION = "libtrimul_torch.so"
# First version of torch whose stable ABI the extension is built for.
STABLE_ABI = (2, 11)

UPDATE_ARGUMENTS = (
    "Tensor x, Tensor? mask, Tensor? norm_in_weight, Tensor? norm_in_bias, Tensor p_in_weight, Tensor? p_in_bias, Tensor g_in_weight, "
    "Tensor? g_in_bias, Tensor? norm_out_weight, Tensor? norm_out_bias, Tensor p_out_weight, Tensor? p_out_bias, Tensor g_out_weight, "
    "Tensor? g_out_bias, int direction, float eps, int precision, bool residual"
)
# The extension defines the same (bindings/torch/operators.cpp); a test holds one against the other.
SCHEMAS = (
    f"update({UPDATE_ARGUMENTS}) -> Tensor",
    f"_update({UPDATE_ARGUMENTS}) -> Tensor",
    f"update_out({UPDATE_ARGUMENTS}, *, Tensor(a!) out) -> ()",
    "execute(int plan, Tensor x, Tensor? mask, int weights, Tensor(a!) out, Tensor(b!)? workspace, int? stream) -> ()",
)

NAMES = ("update", "_update", "update_out", "execute")

# The operators, once load() has run.
update: Any = None
eager_update: Any = None
update_out: Any = None
execute: Any = None
_backend: Any = None
_kept = []  # torch drops what a Library object registered when that object goes
_lock = threading.RLock()


def load(prefer_extension: bool = True) -> None:
    """Registers the operators, once a process. `prefer_extension=False`: over ctypes in any case."""
    global update, eager_update, update_out, execute, _backend
    with _lock:
        if _backend is not None:
            return
        _library.load()
        reason = _why_not_extension() if prefer_extension else "asked for"
        if reason is None:
            _load_extension()
        else:
            _define_over_ctypes()
        _register_fakes()
        _register_missing_backward()
        update, eager_update, update_out, execute = (getattr(torch.ops.trimul, name).default for name in NAMES)
        _backend = "stable ABI" if reason is None else f"ctypes ({reason})"


def backend() -> str:
    """Which road the operators take: "stable ABI", or "ctypes (why)", which costs the host more."""
    load()
    return _backend


def _why_not_extension() -> str | None:
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < STABLE_ABI:
        return f"torch is {torch.__version__}, the extension needs {STABLE_ABI[0]}.{STABLE_ABI[1]} or newer"
    if not (_library.DIRECTORY / EXTENSION).exists():
        return f"{EXTENSION} was not built: no headers of torch {STABLE_ABI[0]}.{STABLE_ABI[1]} or newer were there"
    return None


def _load_extension():
    """ImportError for one that is there and broken: what was built to be fast does not become slow without a word."""
    path = _library.DIRECTORY / EXTENSION
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"trimul: its operators for torch could not be loaded: {error.__cause__ or error}") from error
    if not hasattr(torch.ops.trimul, "_update"):
        raise ImportError(f"trimul: {path} holds no operators")


def _define_over_ctypes():
    from . import _ctypes_operators

    library = torch.library.Library("trimul", "DEF")
    _kept.append(library)
    for schema in SCHEMAS:
        library.define(schema)
    for name in NAMES:
        for key in ("CPU", "CUDA"):
            library.impl(name, getattr(_ctypes_operators, name.lstrip("_")), key)
    library.impl("execute", _ctypes_operators.refuse_negated, "Negative")


def _register_fakes():
    # torch.library.register_fake exists from 2.4 on; before, the same was impl_abstract.
    register = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract

    # They also answer calls in which a tensor is on the meta device, so that one left there by mistake must be told here.
    def fake_update(x, mask, *rest):
        *parameters, _, _, precision, _ = rest
        _check_same_device(x, mask=mask, **dict(zip(_library.PARAMETERS, parameters)))
        if x.dim() < 3:
            raise ValueError(f"x: number of dimensions is {x.dim()}, expected at least 3: [..., N, N, C_z]")
        return x.new_empty(x.shape, dtype=torch.bfloat16 if precision == 5 else x.dtype)

    register("trimul::update")(fake_update)
    register("trimul::_update")(fake_update)

    @register("trimul::update_out")
    def _(x, mask, *rest, out):
        _check_same_device(x, mask=mask, **dict(zip(_library.PARAMETERS, rest)), out=out)

    @register("trimul::execute")
    def _(plan, x, mask, weights, out, workspace, stream):
        _check_same_device(x, mask=mask, out=out, workspace=workspace)
        if x.device.type not in ("cpu", "cuda"):
            raise ValueError(f"x: is on {x.device}, expected cpu or cuda")


def _register_missing_backward():
    """A result of `update` that would need a gradient tells so when it is asked for it, also in exported programs and traced modules, which the
    drop-in's own refusal does not see. `_update` goes without, because this costs a call more than the call itself."""

    def backward(*_):
        raise NotImplementedError("trimul has no backward yet, and the gradient of an update is asked for")

    if hasattr(torch.library, "register_autograd"):
        torch.library.register_autograd("trimul::update", backward)


def current_update() -> Any:
    """The operator of a drop-in call: `update` where calls are recorded, `_update` where they run."""
    return update if torch.compiler.is_compiling() or torch._C._is_tracing() else eager_update


def mark_written(tensor: torch.Tensor) -> None:
    """Tells autograd that a tensor was written to, so that a backward which needs what it held before is refused."""
    if not tensor.is_inference():
        _increment_version(tensor)


def _increment_version_of_one(tensor):
    with torch.no_grad():
        tensor[..., :0].zero_()  # a write through a view counts, also one of nothing


_increment_version = getattr(torch.autograd.graph, "increment_version", _increment_version_of_one)


def _check_same_device(x, **others):
    for name, tensor in others.items():
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"{name}: is on {tensor.device}, expected {x.device} (x's)")


def on_stream(stream: object, x: torch.Tensor) -> Any:
    """Makes a raw stream handle torch's current stream, so that what torch allocates belongs to it too."""
    if not x.is_cuda:
        raise ValueError(f"stream: is given, but x is on {x.device}, expected x on a GPU")
    if isinstance(stream, torch.cuda.Stream):
        return torch.cuda.stream(stream)
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"stream: is a {type(stream).__name__}, expected a raw CUDA stream handle (an integer)")
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=x.device))


def check_disjoint(out: torch.Tensor, x: torch.Tensor) -> None:
    """Refuses an `out` that meets x, of which the operator sees only a copy in another dtype. Compiled code has functional semantics."""
    if torch.compiler.is_compiling():
        return
    from . import _ctypes_operators

    try:
        if out.data_ptr() == 0 or x.data_ptr() == 0:  # of fake modes
            return
        _ctypes_operators.check_disjoint(out, x, "x")
    except RuntimeError:  # tensors without memory of their own, as of vmap
        return


def reraise(error: Exception) -> NoReturn:
    """Raises what the extension meant: its RuntimeErrors begin with a status in brackets. Where torch ran out of memory outside of a GPU, it says
    so in a plain RuntimeError. Anything else goes on as it is."""
    text = str(error)
    status = re.match(r"\[([A-Z_]+)\] ", text)
    if status and status[1] in _library.STATUS_NAMES:
        raise _library.exception_class(status[1])(text[status.end() :]) from None
    if "DefaultCPUAllocator: " in text:
        raise _library.exception_class("OUT_OF_MEMORY")(f"out of memory: {text.splitlines()[0]}") from None
    raise error
