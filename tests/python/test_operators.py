# SPDX-License-Identifier: Apache-2.0
"""torch.ops.trimul.*: what the dispatcher is told, and dtypes and shapes under fake tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import cases
import trimul
from trimul import _operators


@pytest.fixture(autouse=True)
def loaded():
    _operators.load()


def arguments(x, mask, parameters, direction=0, eps=1e-5, precision=0, residual=False):
    return (x, mask, *[parameters.get(name) for name in cases.PARAMETERS], direction, eps, precision, residual)


def samples(rng, device):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    batch = cases.random_x(rng, device, 2, 5)
    mask = cases.random_mask(rng, device, 5, 5)
    few = {name: parameters[name] for name in cases.PROJECTIONS}
    yield arguments(x, None, few)
    yield arguments(batch, mask, parameters, 1, residual=True)
    yield arguments(batch.transpose(1, 2), mask.bool()[None].expand(2, 5, 5), parameters)
    yield arguments(batch[:, :0, :0], None, parameters)
    if device == "cpu":
        yield arguments(x, mask[..., None], {name: value.half() for name, value in parameters.items()}, precision=5)


def test_opcheck(device, rng):
    for sample in samples(rng, device):
        checks = torch.library.opcheck(torch.ops.trimul.update.default, sample)
        assert set(checks.values()) == {"SUCCESS"}


def test_opcheck_out(device, rng):
    for sample in samples(rng, device):
        dtype = torch.bfloat16 if sample[-2] == 5 else sample[0].dtype
        out = torch.zeros(sample[0].shape, dtype=dtype, device=device)
        checks = torch.library.opcheck(torch.ops.trimul.update_out.default, sample, {"out": out})
        assert set(checks.values()) == {"SUCCESS"}


def test_schemas():
    """The extension's are those that the Python side defines over ctypes."""
    assert trimul.torch.backend() == "stable ABI"
    for schema in _operators.SCHEMAS:
        registered = getattr(torch.ops.trimul, schema.partition("(")[0]).default._schema
        assert registered == torch._C.parse_schema(f"trimul::{schema}")
        assert str(registered) == str(torch._C.parse_schema(f"trimul::{schema}"))


def test_fake_tensors(device, rng):
    """Shapes, strides, dtypes and devices as of the real call; tensors on two devices are told."""
    x, parameters = cases.random_x(rng, device, 2, 5), cases.random_parameters(rng, device)
    views = [x, x.transpose(1, 2), x[:, :3, :3], x[:1].expand(4, -1, -1, -1), x[0]]
    with FakeTensorMode() as mode:
        fakes = {name: mode.from_tensor(value) for name, value in parameters.items()}
        results = [trimul.triangle_multiplicative_update(mode.from_tensor(view), **fakes) for view in views]
        with pytest.raises(ValueError, match="p_in_bias: is on meta"):
            trimul.triangle_multiplicative_update(mode.from_tensor(x), **{**fakes, "p_in_bias": torch.empty(2, device="meta")})
    for view, fake in zip(views, results):
        real = trimul.triangle_multiplicative_update(view, **parameters)
        assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (real.shape, real.stride(), real.dtype, real.device)


def test_dispatch_modes_see_the_operator(device, rng):
    """Profilers, counters and loggers of torch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    with Log():
        result = trimul.triangle_multiplicative_update(x, **parameters)
    assert seen == ["trimul._update.default"]
    cases.assert_matches(result, cases.reference(x, **parameters))


def test_subclasses_of_tensors(device, rng):
    class Named(torch.Tensor):
        pass

    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    expected = cases.assert_update(x, **parameters)
    assert torch.equal(trimul.triangle_multiplicative_update(x.as_subclass(Named), **parameters), expected)
    assert torch.equal(trimul.triangle_multiplicative_update(torch.nn.Parameter(x, requires_grad=False), **parameters), expected)
