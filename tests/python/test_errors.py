# SPDX-License-Identifier: Apache-2.0
"""Wrong tensors: the class of the error, and the tensor that its message names. The results of calls before and after stay right."""

import numpy
import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


@pytest.fixture
def problem(device, rng):
    return cases.random_x(rng, device, 5), cases.random_parameters(rng, device)


@pytest.fixture(autouse=True)
def calls_go_on(problem):
    x, parameters = problem
    before = cases.assert_update(x, **parameters)
    yield
    assert torch.equal(update(x, **parameters), before)


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_shapes_of_parameters(problem, name):
    """One row or column more or less, another rank, none: each parameter is named."""
    x, parameters = problem
    value = parameters[name]
    wrong = [value[:-1], torch.cat([value, value[:1]]), value[None], value.flatten()[0], value[:0]]
    if value.dim() == 2:
        wrong += [value[:, :-1], value.flatten(), value.repeat(1, 2), value[:, :0]]
    for tensor in wrong:
        with pytest.raises(ValueError, match="_weight: |_bias: ") as caught:
            update(x, **{**parameters, name: tensor})
        # C is read from p_in_weight: where that one is wrong but even, the first other that differs is named.
        assert name in str(caught.value) or name == "p_in_weight"


@pytest.mark.parametrize("name", ["x", "mask", *cases.PARAMETERS, "out"])
def test_types(problem, name):
    x, parameters = problem
    for value in (numpy.ones((5, 5)), [1.0], 1.0, "x", x.storage, torch.nn.Linear(2, 2)):
        arguments = {"x": x, **parameters, name: value}
        with pytest.raises(TypeError, match=f"^{name}: is a .*expected a torch.Tensor"):
            update(**arguments)
    if name == "x":
        with pytest.raises(TypeError, match="^x: is a NoneType"):
            update(None, **parameters)


@pytest.mark.parametrize("name", ["x", *cases.PARAMETERS])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.uint16, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_dtypes(problem, name, dtype):
    x, parameters = problem
    arguments = {"x": x, **parameters}
    arguments[name] = torch.ones_like(arguments[name]).to(dtype)
    with pytest.raises(ValueError, match=f"^{name}: dtype is {str(dtype).removeprefix('torch.')}|^{name}: dtype is {dtype}"):
        update(**arguments)


def test_complex_mask(problem, device):
    x, parameters = problem
    with pytest.raises(ValueError, match="^mask: dtype"):
        update(x, mask=torch.ones(5, 5, dtype=torch.complex64, device=device), **parameters)


@pytest.mark.parametrize("name", ["x", "mask", *cases.PARAMETERS, "out"])
def test_layouts_and_devices(problem, name, device):
    x, parameters = problem
    arguments = {"x": x, "mask": torch.ones(5, 5, device=device), **parameters, "out": torch.empty_like(x)}
    others = [torch.empty_like(arguments[name], device="meta")]
    if torch.cuda.is_available():
        others.append(arguments[name].to("cpu" if device == "cuda" else "cuda"))
    for other in others:
        with pytest.raises(ValueError, match=f"{name if name != 'x' else '(mask|_weight|_bias|x)'}: .*(device|is on|expected)"):
            update(**{**arguments, name: other})
    with pytest.raises(ValueError, match=f"^{name}: layout is torch.sparse_coo"):
        update(**{**arguments, name: arguments[name].to_sparse()})


def test_everything_on_meta_is_planning_not_an_error(problem):
    x, parameters = problem
    result = update(x.to("meta"), **{name: value.to("meta") for name, value in parameters.items()})
    assert result.is_meta and result.shape == x.shape and result.dtype is x.dtype


@pytest.mark.parametrize("shape", [(), (5,), (5, 6, 0), (4, 5), (2, 5, 4)], ids=str)
def test_shapes_of_x(problem, device, shape):
    x, parameters = problem
    wrong = torch.ones(*shape, x.shape[-1], device=device, dtype=x.dtype) if len(shape) > 1 else torch.ones(shape, device=device, dtype=x.dtype)
    with pytest.raises(ValueError, match="x: "):
        update(wrong, **parameters)
    with pytest.raises(ValueError, match="x: "):
        update(wrong)


def test_width_of_x(problem):
    x, parameters = problem
    with pytest.raises(ValueError, match="_weight: |_bias: ") as caught:
        update(x[..., :-1], **parameters)
    assert "C_z" in str(caught.value)


def test_out(problem, device):
    x, parameters = problem
    other = torch.float64 if x.dtype is not torch.float64 else torch.float32
    wrong = [
        torch.empty(5, 5, x.shape[-1] + 1, device=device, dtype=x.dtype), torch.empty(4, 5, x.shape[-1], device=device, dtype=x.dtype),
        torch.empty(2, *x.shape, device=device, dtype=x.dtype), torch.empty_like(x, dtype=other), torch.empty_like(x).transpose(0, 1),
        torch.empty_like(x).to(torch.int32), torch.empty(5, 5, 2 * x.shape[-1], device=device, dtype=x.dtype)[..., ::2],
        torch.empty(1, 1, x.shape[-1], device=device, dtype=x.dtype).expand(x.shape), torch._neg_view(torch.empty_like(x)),
    ]  # fmt: skip
    for out in wrong:
        with pytest.raises(ValueError, match="^out: "):
            update(x, out=out, **parameters)


def test_nothing_is_written_when_a_call_is_refused(problem, device):
    x, parameters = problem
    out = torch.full_like(x, 7)
    for wrong in ({"mask": torch.ones(4, 5, device=device)}, {"precision": 99}, {"eps": -1}, {"direction": "o"}, {"p_in_weight": x}):
        with pytest.raises(ValueError):
            update(x, out=out, **{**parameters, **wrong})
    assert (out == 7).all()


def test_too_many_dimensions(problem):
    x, parameters = problem
    with pytest.raises(ValueError, match="^x: number of dimensions is 40, expected at most 32"):
        update(x.view(*[1] * 37, *x.shape), **parameters)
    assert torch.equal(update(x.view(*[1] * 29, *x.shape), **parameters).view(x.shape), update(x, **parameters))


def test_fp64_on_a_gpu_is_not_served(rng):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    x, parameters = cases.random_x(rng, "cuda", 5), cases.random_parameters(rng, "cuda")
    with pytest.raises(NotImplementedError, match="fp64|float64"):
        update(x.double(), **parameters)


def test_out_of_memory():
    """The next smaller call works. An expanded x needs no memory, its copy would need 320 GB."""
    code = """
import resource
import torch, cases, trimul
torch.set_num_threads(1)  # more could not be started once memory is short
rng = torch.Generator().manual_seed(0)
x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
before = trimul.triangle_multiplicative_update(x, **parameters)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
huge = x[:1, :1].expand(70000, 70000, -1)
scale = x[:1, :1].double().expand(5000, 5000, -1)
for call, name in (
    (lambda: trimul.triangle_multiplicative_update(huge, **parameters), "x"),
    (lambda: trimul.triangle_multiplicative_update(scale, precision="bf16", **parameters), "out of memory"),
    (lambda: trimul.triangle_multiplicative_update(x[:1, :1].expand(2000, 5, 5, -1).contiguous(), mask=torch.ones(1, dtype=torch.uint16).expand(2000, 5, 5), **parameters), None),
):
    try:
        call()
    except torch.OutOfMemoryError as error:
        assert name is not None and name in str(error), error
    else:
        assert name is None
assert torch.equal(trimul.triangle_multiplicative_update(x, **parameters), before)
"""
    cases.run_python(code)


def test_a_refused_call_keeps_no_tensor(rng):
    """References to the arguments are given back on every road out of the operator."""
    parameters = cases.random_parameters(rng, "cpu")
    mask = torch.ones(4, 4)
    resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
    for round_ in range(60):
        x = torch.ones(120, 120, 16)  # 0.9 MB
        for arguments in ({"mask": mask}, {"out": x}, {"mask": mask, "out": torch.empty_like(x)}):
            with pytest.raises(ValueError):
                update(x.transpose(0, 1) if round_ % 2 else x, **arguments, **parameters)
        if round_ == 19:
            before = resident()
    assert resident() - before < 20e6
