# SPDX-License-Identifier: Apache-2.0
"""torch.compile: no graph break, no recompilation per N, results equal to eager."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import cases
import trimul


class TwoBlocks(torch.nn.Module):
    """Two chained updates, whose second x is a contiguous result or a view of one."""

    def __init__(self, rng, device, between=lambda x: x):
        super().__init__()
        served = cases.served(device)
        make = lambda direction: trimul.nn.TriangleMultiplicativeUpdate(
            served.c_z, served.c, direction, bias=True, device=device, dtype=served.dtype
        )
        self.outgoing, self.incoming, self.between = make("outgoing"), make("incoming"), between
        for block in (self.outgoing, self.incoming):
            block.load_state_dict(cases.random_parameters(rng, device))
        self.requires_grad_(False)

    def forward(self, x, mask):
        return self.incoming(self.between(self.outgoing(x, mask)), mask, residual=True)


VIEWS = {
    "contiguous": (lambda x: x, lambda x: x),
    "transposed": (lambda x: x.transpose(-2, -3), lambda x: x.transpose(-2, -3)),
    "sliced": (lambda x: torch.nn.functional.pad(x, (0, 3, 1, 2, 0, 1))[..., :-1, 1:-2, :-3], lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]]),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def inputs(rng, device, view, tokens):
    return view(cases.random_x(rng, device, 2, tokens)), cases.random_mask(rng, device, 2, tokens, tokens)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_two_blocks(device, rng, view, dynamic):
    """One graph whatever N is under dynamic=True, one a shape otherwise; aot_eager is all of torch.compile but the code it generates. (The backend
    may be asked twice for a graph: torch begins anew where it meets a float, as eps, that it took for dynamic.)"""
    of_x, between = VIEWS[view]
    module = TwoBlocks(rng, device, between)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend=counter)
    sizes = (5, 9, 12, 17) if dynamic else (5, 9)
    for tokens in sizes * 2:
        x, mask = inputs(rng, device, of_x, tokens)
        result, expected = compiled(x, mask), module(x, mask)
        assert torch.equal(result, expected) and result.stride() == expected.stride()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (1 if dynamic else len(sizes))
    assert counter.frame_count <= 2 * (1 if dynamic else len(sizes))
    targets = [str(node.target) for node in counter.graphs[-1].graph.nodes if "trimul" in str(node.target)]
    assert targets == ["trimul.update.default"] * 2


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_two_blocks_through_inductor(device, rng, dynamic):
    module = TwoBlocks(rng, device, VIEWS["transposed"][1])
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic)
    for tokens in (5, 9) if dynamic else (5,):
        x, mask = inputs(rng, device, VIEWS["sliced"][0], tokens)
        assert torch.equal(compiled(x, mask), module(x, mask))


def test_modes_and_options(rng):
    """Autocast, inference mode, no_grad, precision, out and residual inside of compiled code."""
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    update = trimul.triangle_multiplicative_update

    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return update(x, **parameters)

    needing = {name: value.clone().requires_grad_() for name, value in parameters.items()}

    def no_grad(x):
        with torch.no_grad():
            return update(x * 1, **needing)

    def into(x):
        out = torch.empty_like(x)
        return update(x * 1, out=out, **parameters) + out

    def in_place(x):
        x = x.clone()
        return update(x, out=x, residual=True, **parameters)

    for function in (
        cast, no_grad, into, in_place, lambda x: update(x, precision="bf16", **parameters), lambda x: update(x, "incoming", eps=1, **parameters),
        lambda x: update(x, precision=trimul.TriMulPrecision.IEEE, residual=True, **parameters),
    ):  # fmt: skip
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        expected = function(x.clone())
        result = compiled(x.clone())
        assert result.dtype is expected.dtype and torch.equal(result, expected)
        with torch.inference_mode():
            again = compiled(x.clone())
        assert torch.equal(again, expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outside = torch.compile(lambda x: update(x, **parameters), fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(outside, cast(x))


def test_an_out_that_is_an_argument(device, rng):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    compiled = torch.compile(lambda x, out: trimul.triangle_multiplicative_update(x, out=out, **parameters), fullgraph=True, backend="aot_eager")
    out = torch.empty_like(x)
    result = compiled(x, out)
    expected = trimul.triangle_multiplicative_update(x, **parameters)
    assert torch.equal(out, expected) and torch.equal(result, expected)


def test_weights_follow_their_tensors(device, rng):
    module = TwoBlocks(rng, device)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x, mask = inputs(rng, device, lambda x: x, 5)
    before = compiled(x, mask)
    module.outgoing.p_in_weight.mul_(-1)
    module.incoming.load_state_dict(cases.random_parameters(rng, device))
    after = compiled(x, mask)
    assert torch.equal(after, module(x, mask)) and not torch.equal(after, before)


def test_gradients_are_refused(device, rng):
    module = TwoBlocks(rng, device)
    x, mask = inputs(rng, device, lambda x: x, 5)
    compiled = torch.compile(module, backend="aot_eager")
    assert torch.equal(compiled(x, mask), module(x, mask))
    for fullgraph in (False, True):
        with pytest.raises(Exception, match="no backward yet|NotImplementedError"):
            torch.compile(module, fullgraph=fullgraph, backend="aot_eager")(x.clone().requires_grad_(), mask)
