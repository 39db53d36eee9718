# SPDX-License-Identifier: Apache-2.0
"""Run by test_ctypes_road.py in a process whose operators go over ctypes: values, errors, schemas and compilation as over the extension."""

import os

import torch

import cases
import trimul
from trimul import _operators

_operators.load(prefer_extension=False)
assert trimul.torch.backend() == "ctypes (asked for)"
update = trimul.triangle_multiplicative_update


def check_schemas():
    for schema in _operators.SCHEMAS:
        registered = getattr(torch.ops.trimul, schema.partition("(")[0]).default._schema
        assert str(registered) == str(torch._C.parse_schema(f"trimul::{schema}")), registered


def expect(error, text, call):
    try:
        call()
    except error as caught:
        assert type(caught) is error and text in str(caught), (type(caught), caught)
    else:
        raise AssertionError(f"no {error.__name__} about {text}")


def check_values(device):
    rng = torch.Generator().manual_seed(1)
    x, parameters = cases.random_x(rng, device, 2, 9), cases.random_parameters(rng, device)
    mask = cases.random_mask(rng, device, 2, 9, 9)
    for direction in cases.DIRECTIONS:
        expected = cases.assert_update(x, direction, mask, **parameters)
        for view in (x.transpose(1, 2).contiguous().transpose(1, 2), torch._neg_view(-x)):
            assert torch.equal(update(view, direction, mask.to(torch.uint16), **parameters), expected)
        for form in (mask[..., None], mask.bool(), mask.mT.contiguous().mT):
            assert torch.equal(update(x, direction, form, **parameters), expected)
        out = torch.empty_like(x)
        assert update(x, direction, mask, out=out, **parameters) is out and torch.equal(out, expected)
        strided = {name: torch.stack([value, value], -1)[..., 0] for name, value in parameters.items()}
        assert torch.equal(update(x, direction, mask, **strided), expected)
    in_place = x.clone()
    update(in_place, out=in_place, residual=True, **parameters)
    assert torch.equal(in_place, update(x, residual=True, **parameters))
    assert update(x[:0], **parameters).shape == x[:0].shape
    if device == "cpu":
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            cases.assert_update(x.to(dtype), **parameters)
        assert update(x, precision="bf16", **parameters).dtype is torch.bfloat16


def check_errors(device):
    rng = torch.Generator().manual_seed(2)
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    for name in cases.PARAMETERS:
        for wrong in (parameters[name][:-1], parameters[name][None], parameters[name].to(torch.int32), parameters[name].to("meta")):
            expect(ValueError, "" if name == "p_in_weight" else name, lambda: update(x, **{**parameters, name: wrong}))
        expect(TypeError, name, lambda: update(x, **{**parameters, name: [1.0]}))
    expect(ValueError, "mask", lambda: update(x, mask=torch.ones(4, 5, device=device), **parameters))
    expect(ValueError, "mask", lambda: update(x, mask=torch.ones(5, 5, device=device, dtype=torch.complex64), **parameters))
    expect(ValueError, "x: ", lambda: update(x[0], **parameters))
    expect(ValueError, "x: ", lambda: update(x.to(torch.int64), **parameters))
    expect(ValueError, "out: ", lambda: update(x, out=torch.empty_like(x).transpose(0, 1), **parameters))
    expect(ValueError, "out: ", lambda: update(x, out=x, **parameters))
    expect(ValueError, "x, expected", lambda: update(x.transpose(0, 1), out=x, **parameters))
    memory = torch.zeros(x.numel(), dtype=x.dtype, device=device)
    mask = memory.view(torch.uint16)[:50].view(5, 10)[:, ::2]
    expect(ValueError, "mask", lambda: update(x, mask=mask, out=memory.view(x.shape), **parameters))
    expect(NotImplementedError, "mxfp8", lambda: update(x, precision="mxfp8", **parameters))
    expect(NotImplementedError, "backward", lambda: update(x.clone().requires_grad_(), **parameters))


def check_plan(device):
    rng = torch.Generator().manual_seed(3)
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=cases.served(device).c, has_mask=False, has_in_bias=True, has_out_bias=True)
    weights, out = trimul.prepare_weights(**parameters), torch.full_like(x, float("nan"))
    size = plan.get_workspace_size()
    workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device=device)
    plan.execute(x, None, weights, out, workspace)
    assert torch.equal(out, update(x, **parameters))
    before = trimul.plan_cache_info().misses
    update(x, **parameters)
    assert trimul.plan_cache_info().misses == before
    for text, arguments in (
        ("workspace: size", (x, None, weights, out, workspace[:-1])), ("workspace", (x, None, weights, out, None)), ("mask", (x, x, weights, out, workspace)),
        ("workspace", (x, None, weights, out, torch.empty(size + 300, dtype=torch.uint8, device=device)[3:])), ("out", (x, None, weights, x, workspace)),
        ("workspace", (x, None, weights, out, workspace.to("meta"))), ("out: is a view", (x, None, weights, torch._neg_view(out), workspace)),
    ):  # fmt: skip
        expect(ValueError, text, lambda: plan.execute(*arguments))
    expect(TypeError, "x: ", lambda: plan.execute([1], None, weights, out, workspace))
    if device == "cpu":
        expect(ValueError, "current_stream", lambda: plan.execute(x, None, weights, out, workspace, 1))


def check_tracing(device):
    rng = torch.Generator().manual_seed(4)
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    compiled = torch.compile(lambda x: update(x, residual=True, **parameters), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), update(x, residual=True, **parameters))


check_schemas()
for place in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
    for check in (check_values, check_errors, check_plan):
        check(place)
    if os.environ.get("TRIMUL_TEST_TIER", "smoke") != "smoke":
        check_tracing(place)
