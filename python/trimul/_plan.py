# SPDX-License-Identifier: Apache-2.0
"""The class API: plans that are made once and executed often, on prepared weights. Plans need no torch; tensors are torch's."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import TYPE_CHECKING, Any, Iterable

from . import _arguments, _checks, _library
from .heuristics import read_knobs

if TYPE_CHECKING:
    import torch

    from ._arguments import Device, Dtype, Precision
    from .heuristics import TriMulKnobs

_publishing = threading.Lock()


class TensorDesc:
    """Shape, dtype and device of a contiguous tensor, where none is at hand.

    dtype: a name ("bfloat16", "bf16", "float32", ...) or a torch dtype. device: "cpu", "cuda", "cuda:1" or a torch.device. strides (elements):
    None means contiguous. Immutable.
    """

    __slots__ = ("device", "dtype", "shape", "strides")
    shape: tuple[int, ...]
    dtype: Dtype
    device: Device
    strides: tuple[int, ...] | None

    def __init__(self, shape: Iterable[int], dtype: Dtype, device: Device = "cuda", strides: Iterable[int] | None = None) -> None:
        if not hasattr(shape, "__iter__"):
            raise TypeError(f"shape: is {shape!r}, expected integers")
        sizes = tuple(_arguments.check_integer("shape", size) for size in shape)
        if any(size < 0 for size in sizes):
            raise ValueError(f"shape: is {sizes}, expected sizes of at least 0")
        _arguments.dtype_number(dtype)
        _arguments.device_of(device)
        set_field = object.__setattr__
        set_field(self, "shape", sizes)
        set_field(self, "dtype", dtype)
        set_field(self, "device", device)
        set_field(self, "strides", None if strides is None else tuple(_arguments.check_integer("strides", stride) for stride in strides))
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"strides: {len(self.strides)} of them, expected {len(self.shape)} as the shape {self.shape}")

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorDesc:
        """That of a torch tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device, tuple(tensor.stride()))

    def is_contiguous(self) -> bool:
        expected = 1
        if self.strides is None or 0 in self.shape:
            return True
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TensorDesc is immutable; make another with {name}={value!r}")

    def __reduce__(self):
        return TensorDesc, (self.shape, self.dtype, self.device, self.strides)

    def __repr__(self):
        return f"TensorDesc({self.shape}, {self.dtype}, device={str(self.device)!r})"


def _torch(what: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"trimul.{what} needs PyTorch, which could not be imported") from error
    return torch


class PreparedWeights:
    """The twelve parameters in one implementation's layout: a private copy, which later changes of the tensors do not reach.

    Made by prepare_weights; immutable; any number of plans and threads may use one at a time. `implementation`, `device`, `c_z`, `c_hidden`,
    `has_in_bias`, `has_out_bias` say what it was made for, `nbytes` what the copy holds.
    """

    implementation: str
    device: torch.device
    c_z: int
    c_hidden: int
    has_in_bias: bool
    has_out_bias: bool
    nbytes: int

    def __init__(self, plan: _library.PlanHandle, parameters: list[torch.Tensor | None], device: torch.device, c_z: int, c_hidden: int) -> None:
        torch = _torch("prepare_weights")
        from . import _ctypes_operators as tensors

        library = _library.load()
        self._plan = plan
        self.implementation = library.trimul_plan_implementation(plan.value).decode()
        self.device, self.c_z, self.c_hidden = device, c_z, c_hidden
        self.has_in_bias = parameters[3] is not None or parameters[5] is not None
        self.has_out_bias = parameters[9] is not None or parameters[11] is not None
        needed = library.trimul_plan_packed_bytes(plan.value)
        # torch's memory: freed in the order of the stream, also while a graph is captured.
        self._memory: Any = torch.empty(needed, dtype=torch.uint8, device=device) if needed else None
        table = tensors.parameter_table(parameters)
        address = self._memory.data_ptr() if needed else None
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
        self._packed = _library.WeightsHandle(plan, table, address, needed, stream)
        self.handle = self._packed.value.value
        self.nbytes = library.trimul_weights_bytes(self._packed.value)

    def __repr__(self):
        return f"PreparedWeights(C_z={self.c_z}, C={self.c_hidden}, {self.implementation}, device={str(self.device)!r})"


def prepare_weights(
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
    *,
    dtype: Dtype | None = None,
    impl: str | None = None,
) -> PreparedWeights:
    """Packs the parameters (torch tensors; shapes as in triangle_multiplicative_update) once, on torch's current stream of their device.

    The four projections are required (ValueError); LayerNorm weights that are None mean ones, their biases zeros, projection biases none.
    dtype: of the x that the plans will have; None: p_in_weight's. impl: the implementation of those plans; None: the first that serves.
    Returns PreparedWeights. A plan whose implementation, widths or bias presence differ refuses them (ValueError).
    """
    torch = _torch("prepare_weights")
    given = (
        norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias,
        norm_out_weight, norm_out_bias, p_out_weight, p_out_bias, g_out_weight, g_out_bias,
    )  # fmt: skip
    p_in: Any = p_in_weight
    for name, tensor in zip(_library.PARAMETERS, given):
        if tensor is not None:
            _checks.check_tensor(torch, name, tensor, "a torch.Tensor or None")
            if isinstance(p_in, torch.Tensor) and tensor.device != p_in.device:
                raise ValueError(f"{name}: is on {tensor.device}, expected {p_in.device} (p_in_weight's)")
        elif name in ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight"):
            raise ValueError(f"{name}: is missing, expected a tensor")
    _checks.refuse_gradients(torch, given)
    if p_in.dim() != 2 or p_in.shape[0] < 2 or p_in.shape[0] % 2:
        raise ValueError(f"p_in_weight: shape is {list(p_in.shape)}, expected [2C, C_z]")
    device = p_in.device
    c_hidden, c_z = p_in.shape[0] // 2, p_in.shape[1]
    # The library reads memory, in which a view that negates (as the imaginary part of a conjugate) has not been negated.
    parameters = [None if tensor is None else tensor.detach().resolve_neg().contiguous() for tensor in given]
    problem = _library.Problem(
        batch=1, tokens=0, c_z=c_z, c_hidden=c_hidden, device=_arguments.device_of(device),
        x_dtype=_arguments.dtype_number(p_in.dtype if dtype is None else dtype), eps=1e-5,
        has_in_bias=int(p_in_bias is not None or g_in_bias is not None), has_out_bias=int(p_out_bias is not None or g_out_bias is not None),
    )  # fmt: skip
    _arguments.check_text("impl", impl)
    return PreparedWeights(_library.PlanHandle(problem, _library.make_options(impl)), parameters, device, c_z, c_hidden)


class TriangleMultiplicativeUpdateFwd:
    """A forward update whose shapes and flags are fixed: planned once, executed often, with no allocation and no synchronisation on a GPU.

        weights = trimul.prepare_weights(...)
        plan = trimul.TriangleMultiplicativeUpdateFwd(x, "outgoing", has_mask=True)
        workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=x.device)
        plan.execute(x, mask, weights, out, workspace)

    x: a contiguous tensor or a TensorDesc, [..., N, N, C_z]. c_hidden: C, C_z where None. has_mask, has_in_bias, has_out_bias: whether execute will
    be given a mask, and weights with p_in_bias or g_in_bias, p_out_bias or g_out_bias. eps, precision, residual: as in
    triangle_multiplicative_update; the default of fp32 asks torch's TF32 switches here. impl: an implementation's name; None: the first that
    serves. knobs: TriMulKnobs or a dict; k2_tile: one of them. Wrong values are ValueErrors here; what is legal but not served is a
    NotImplementedError of check_support and compile. Plans are cached: trimul.plan_cache_info(). Any number of threads may execute one.
    """

    def __init__(
        self,
        x: torch.Tensor | TensorDesc,
        direction: str = "outgoing",
        c_hidden: int | None = None,
        has_mask: bool = True,
        has_in_bias: bool = False,
        has_out_bias: bool = False,
        eps: float = 1e-5,
        precision: Precision = None,
        residual: bool = False,
        impl: str | None = None,
        k2_tile: int | None = None,
        knobs: TriMulKnobs | dict[str, int] | None = None,
    ) -> None:
        desc = x if isinstance(x, TensorDesc) else self._describe(x)
        if len(desc.shape) < 3:
            raise ValueError(f"x: number of dimensions is {len(desc.shape)} ({list(desc.shape)}), expected at least 3: [..., N, N, C_z]")
        if not desc.is_contiguous():
            raise ValueError(f"x: strides of {list(desc.shape)} are {list(desc.strides or ())}, expected contiguous")
        *leading, rows, columns, c_z = desc.shape
        if rows != columns:
            raise ValueError(f"x: token dimensions of {list(desc.shape)} are {rows} and {columns}, expected equal")
        batch = 1
        for size in leading:
            batch *= size
        # Each fits in 64 bits, their product may not.
        _arguments.check_integer("x: product of the leading dimensions", batch)
        c_hidden = c_z if c_hidden is None else _arguments.check_integer("c_hidden", c_hidden)
        number = _arguments.check_precision(precision)
        dtype = _arguments.dtype_number(desc.dtype, "x: dtype")
        device = _arguments.device_of(desc.device, "x: device")
        if number == 0 and dtype == _library.DTYPES["float32"] and device.type == _library.CUDA and _arguments.torch_allows_tf32():
            number = 1
        knobs = read_knobs(knobs)
        if k2_tile is not None:
            knobs = knobs.replace(k2_tile=k2_tile)
        _arguments.check_text("impl", impl)
        flags = {"has_mask": has_mask, "has_in_bias": has_in_bias, "has_out_bias": has_out_bias, "residual": residual}
        flags = {name: _arguments.check_flag(name, flag) for name, flag in flags.items()}
        self._problem = _library.Problem(
            batch=batch, tokens=rows, c_z=c_z, c_hidden=c_hidden, device=device, x_dtype=dtype,
            direction=_arguments.check_direction(direction), precision=number, eps=_arguments.check_eps(eps), **flags,
        )  # fmt: skip
        self._library = _library.load()
        _library.check(self._library.trimul_problem_out_dtype(ctypes.byref(self._problem), ctypes.byref(ctypes.c_int32())))
        names = [self._library.trimul_implementation_name(k).decode() for k in range(self._library.trimul_implementation_count())]
        if impl is not None and impl not in names:
            raise ValueError(f"implementation: {impl!r} is unknown, expected one of {', '.join(names)}")
        self._impl, self._knobs = impl, knobs
        self._plan: Any = None
        self._handle = 0
        self._execute: Any = None

    @staticmethod
    def _describe(x: Any) -> TensorDesc:
        if not all(hasattr(x, name) for name in ("shape", "dtype", "device", "stride")):
            raise TypeError(f"x: is a {type(x).__name__}, expected a torch.Tensor or a TensorDesc")
        _arguments.dtype_number(x.dtype, "x: dtype")
        _arguments.device_of(x.device, "x: device")
        return TensorDesc.of(x)

    def check_support(self) -> None:
        """NotImplementedError with every implementation's reason when nothing here serves the problem; ValueError for a device that is not there."""
        if self._plan is not None:
            return
        torch = sys.modules.get("torch")
        threads = torch.get_num_threads() if torch is not None and self._problem.device.type == _library.CPU else 0
        options = _library.make_options(self._impl, tuple(self._knobs.as_dict().items()), max_threads=threads)
        plan = _library.PlanHandle(self._problem, options)
        with _publishing:
            # The first one stays: another thread may be executing it by its handle. In this order: a plan that is there is a handle that is there.
            if self._plan is None:
                self._handle, self._plan = plan.value.value, plan

    def compile(self) -> None:
        """Picks the implementation and its tiles, or takes the plan that the cache has. Builds nothing. Errors as check_support."""
        self.check_support()

    @property
    def _compiled(self) -> ctypes.c_void_p:
        if self._plan is None:
            self.compile()
        return self._plan.value  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def implementation(self) -> str:
        """Name of the implementation that serves the plan."""
        return self._library.trimul_plan_implementation(self._compiled).decode()

    def get_workspace_size(self) -> int:
        """Bytes of scratch that execute wants, 256-byte aligned on a GPU (as torch's memory is), 64-byte aligned on the CPU."""
        needed = self._library.trimul_plan_workspace_bytes(self._compiled)
        return needed + (_library.CPU_SLACK_BYTES if needed and self._problem.device.type == _library.CPU else 0)

    def traffic_bytes(self) -> int:
        """Compulsory traffic of the three-stage form: 18 N^2 C B for 16-bit x with C_z = C, plus 2 B N^2 for a mask."""
        return self._library.trimul_plan_traffic_bytes(self._compiled)

    def flop(self) -> float:
        """Floating-point operations of the matrix products."""
        return self._library.trimul_plan_flop(self._compiled)

    def floor_us(self) -> float:
        """Lower bound of the time in microseconds from the device's measured ceilings; 0 where none are known."""
        return self._library.trimul_plan_floor_us(self._compiled)

    def explain(self) -> str:
        """How the plan runs and why each better implementation declined, as text lines "key: value"."""
        return self._library.trimul_plan_explain(self._compiled).decode()

    def execute(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None,
        weights: PreparedWeights,
        out: torch.Tensor,
        workspace: torch.Tensor | None,
        current_stream: int | torch.cuda.Stream | None = None,
    ) -> None:
        """Writes the update of x to `out`. Everything is checked against the plan first (ValueError naming tensor, got and expected).

        mask: exactly when the plan has one. weights: of prepare_weights. out: contiguous, x's shape, the result's dtype; x itself with residual.
        workspace: contiguous, at least get_workspace_size() bytes; None where that is 0. current_stream: raw handle or torch.cuda.Stream; None:
        torch's current stream of the plan's device. On a GPU asynchronous, without allocation or synchronisation.
        """
        run = self._execute
        if run is None:
            run = self._load()
        if self._grad_enabled() or self._forward_ad._current_level >= 0:
            _checks.refuse_gradients(sys.modules["torch"], (x, mask, out))
        try:
            run(self._handle, x, mask, weights.handle, out, workspace, current_stream)
            self._mark_written(out)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            self._tell(error, x, mask, weights, out, workspace, current_stream)

    def _load(self):
        torch = _torch("TriangleMultiplicativeUpdateFwd.execute")
        from . import _operators

        _operators.load()
        self.compile()
        self._grad_enabled, self._forward_ad = torch.is_grad_enabled, torch.autograd.forward_ad
        self._mark_written = _operators.mark_written
        self._execute = _operators.execute
        return self._execute

    def _tell(self, error, x, mask, weights, out, workspace, stream):
        """Raises what was wrong with the arguments of an execute that failed; runs it again where only the stream's type was foreign."""
        from . import _operators

        torch = sys.modules["torch"]
        for name, tensor in (("x", x), ("mask", mask), ("out", out), ("workspace", workspace)):
            if tensor is not None or name in ("x", "out"):
                _checks.check_tensor(torch, name, tensor)
                _checks.check_plain(name, tensor)
        if not isinstance(weights, PreparedWeights):
            raise TypeError(f"weights: is a {type(weights).__name__}, expected what prepare_weights returns")
        if isinstance(stream, torch.cuda.Stream):
            return self.execute(x, mask, weights, out, workspace, stream.cuda_stream)
        if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int)):
            raise TypeError(f"current_stream: is a {type(stream).__name__}, expected a raw stream handle or a torch.cuda.Stream")
        return _operators.reraise(error)

    def make_cuda_graph(
        self, x: torch.Tensor, mask: torch.Tensor | None, weights: PreparedWeights, out: torch.Tensor, workspace: torch.Tensor | None
    ) -> torch.cuda.CUDAGraph:
        """A torch.cuda.CUDAGraph of one execute on these tensors, which it keeps alive; replay() follows their contents.

        NotImplementedError for a plan on the CPU.
        """
        torch = _torch("TriangleMultiplicativeUpdateFwd.make_cuda_graph")
        if self._problem.device.type != _library.CUDA:
            raise NotImplementedError("make_cuda_graph: the plan is on the CPU, graphs exist on a GPU only")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(x.device), torch.cuda.graph(graph, stream=torch.cuda.Stream(x.device)):
            self.execute(x, mask, weights, out, workspace)
        graph.kept_by_trimul = (self, x, mask, weights, out, workspace)
        return graph

    def __repr__(self):
        return f"<trimul plan: {self.explain().splitlines()[0].removeprefix('problem: ')}>"
