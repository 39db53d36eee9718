# SPDX-License-Identifier: Apache-2.0
"""torch.export, packages of AOTInductor, torch.jit.trace."""

import sys

import pytest
import torch

import cases
import trimul
from test_compile import VIEWS, TwoBlocks, inputs


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def exported(rng, device, strict):
    module = TwoBlocks(rng, device, VIEWS["transposed"][1])
    tokens = torch.export.Dim("tokens", min=2, max=4096)
    shapes = {"x": {1: tokens, 2: tokens}, "mask": {1: tokens, 2: tokens}}
    return module, torch.export.export(module, inputs(rng, device, lambda x: x, 6), dynamic_shapes=shapes, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_export(device, rng, strict, tmp_path):
    """With the number of tokens left open; saved and loaded."""
    module, program = exported(rng, device, strict)
    targets = [str(node.target) for node in program.graph.nodes if "trimul" in str(node.target)]
    assert targets == ["trimul.update.default"] * 2
    torch.export.save(program, tmp_path / "two_blocks.pt2")
    loaded = torch.export.load(tmp_path / "two_blocks.pt2")
    for tokens in (5, 9, 33):
        x, mask = inputs(rng, device, lambda x: x, tokens)
        assert torch.equal(program.module()(x, mask), module(x, mask)) and torch.equal(loaded.module()(x, mask), module(x, mask))
    decomposed = program.run_decompositions()
    assert torch.equal(decomposed.module()(x, mask), module(x, mask))


def test_export_in_grad_mode_is_refused(rng):
    module = TwoBlocks(rng, "cpu").requires_grad_()
    with pytest.raises(Exception, match="no backward yet"):
        torch.export.export(module, inputs(rng, "cpu", lambda x: x, 5), strict=False)
    with torch.no_grad():
        torch.export.export(module, inputs(rng, "cpu", lambda x: x, 5), strict=False)


@pytest.mark.ci
def test_a_package_of_aotinductor(device, rng, tmp_path):
    """Made, loaded and run here, and in a process that does nothing but load the operators."""
    module, program = exported(rng, device, False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "two_blocks.pt2"))
    compiled = torch._inductor.aoti_load_package(path)
    for tokens in (5, 9):
        x, mask = inputs(rng, device, lambda x: x, tokens)
        assert torch.equal(compiled(x, mask), module(x, mask))
    torch.save({"x": x, "mask": mask, "expected": module(x, mask)}, tmp_path / "io.pt")
    code = f"""
import torch, trimul.torch
trimul.torch.backend()
io = torch.load({str(tmp_path / "io.pt")!r})
compiled = torch._inductor.aoti_load_package({path!r})
assert torch.equal(compiled(io["x"], io["mask"]), io["expected"])
"""
    cases.run_python(code)


@pytest.mark.filterwarnings("ignore")
def test_jit_trace(rng, tmp_path):
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    call = lambda x: trimul.triangle_multiplicative_update(x, **parameters)
    if sys.version_info >= (3, 14):
        pytest.skip("torch.jit is not served there")
    traced = torch.jit.trace(call, x)
    for tokens in (5, 9):
        x = cases.random_x(rng, "cpu", tokens)
        assert torch.equal(traced(x), call(x))
