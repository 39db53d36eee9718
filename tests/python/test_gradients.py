# SPDX-License-Identifier: Apache-2.0
"""Until there is a backward: no result that silently lost its gradient."""

import pytest
import torch
from torch.autograd import forward_ad

import cases
import trimul

update = trimul.triangle_multiplicative_update


@pytest.fixture
def arguments(device, rng):
    x = cases.random_x(rng, device, 5)
    return {"x": x, "mask": torch.rand(5, 5, generator=rng).to(device), **cases.random_parameters(rng, device), "out": torch.empty_like(x)}


@pytest.mark.parametrize("name", ["x", "mask", *cases.PARAMETERS, "out"])
def test_drop_in(arguments, name):
    expected = cases.assert_update(**{**arguments, "out": None})
    needing = {**arguments, name: arguments[name].clone().requires_grad_()}
    without_out = {**needing, "out": None}
    for call in (needing, without_out) if name != "out" else (needing,):
        with pytest.raises(NotImplementedError, match="backward.*no_grad"):
            update(**call)
        with torch.no_grad():
            assert torch.equal(update(**call), expected)
            with torch.enable_grad(), pytest.raises(NotImplementedError, match="backward"):
                update(**call)
    with torch.inference_mode():
        result = update(**without_out)
    assert torch.equal(result, expected) and not result.requires_grad
    if name != "out":
        assert result.is_inference()


def test_in_the_middle_of_a_network(arguments, device):
    """x that is no leaf."""
    x = arguments.pop("x").requires_grad_()
    with pytest.raises(NotImplementedError, match="backward"):
        update(x * 2, **arguments)
    update((x * 2).detach(), **arguments)


def test_inference_tensors(arguments):
    expected = cases.assert_update(**{**arguments, "out": None})
    with torch.inference_mode():
        cloned = {name: value.clone() for name, value in arguments.items()}
    assert all(value.is_inference() for value in cloned.values())
    with torch.inference_mode():
        assert torch.equal(update(**cloned), expected)
    assert torch.equal(update(**{**cloned, "out": None}), expected)


def test_class_api(arguments, device):
    served = cases.served(device)
    x, mask, out = (arguments.pop(name) for name in ("x", "mask", "out"))
    for name in arguments:
        needing = {**arguments, name: arguments[name].clone().requires_grad_()}
        with pytest.raises(NotImplementedError, match="backward"):
            trimul.prepare_weights(**needing)
        with torch.no_grad():
            weights = trimul.prepare_weights(**needing)
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=served.c, has_in_bias=True, has_out_bias=True)
    workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
    plan.execute(x, mask, weights, out, workspace)
    expected = cases.assert_update(x, mask=mask, **arguments)
    assert torch.equal(out, expected)
    for index in (0, 1, 3):
        call = [x, mask, weights, out, workspace]
        call[index] = call[index].clone().requires_grad_()
        with pytest.raises(NotImplementedError, match="backward"):
            plan.execute(*call)
        with torch.no_grad():
            plan.execute(*call)
        assert torch.equal(call[3], expected)
    with torch.inference_mode():
        plan.execute(x, mask, weights, torch.empty_like(x), workspace)


@pytest.mark.parametrize("name", ["x", "mask", *cases.PARAMETERS])
def test_forward_mode(arguments, name):
    """Tangents pass through no_grad as through grad mode."""
    expected = cases.assert_update(**{**arguments, "out": None})
    with forward_ad.dual_level():
        dual = {**arguments, name: forward_ad.make_dual(arguments[name], torch.ones_like(arguments[name]))}
        for mode in (torch.enable_grad(), torch.no_grad()):
            with mode, pytest.raises(NotImplementedError, match="forward-mode"):
                update(**{**dual, "out": None})
        if name not in ("x", "mask"):
            with pytest.raises(NotImplementedError, match="forward-mode"):
                trimul.prepare_weights(**{key: dual[key] for key in cases.PARAMETERS})
        assert torch.equal(update(**{**arguments, "out": None}), expected)


def test_transforms_of_functions(arguments):
    x = arguments.pop("x")
    arguments.pop("out")
    call = lambda x: update(x, **arguments)
    for transform in (
        lambda: torch.func.grad(lambda x: call(x).float().sum())(x), lambda: torch.func.vjp(call, x), lambda: torch.func.jvp(call, (x,), (x,)),
        lambda: torch.func.jacfwd(call)(x), lambda: torch.func.jacrev(call)(x), lambda: torch.func.hessian(lambda x: call(x).float().sum())(x),
        lambda: torch.autograd.functional.jvp(call, x, x), lambda: torch.utils.checkpoint.checkpoint(call, x.clone().requires_grad_(), use_reentrant=False),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match="backward|forward-mode"):
            transform()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap(arguments):
    """torch runs the operator once per sample: the same values. `out` is refused by torch."""
    x = torch.stack([arguments["x"], arguments["x"].flip(0), arguments["x"] * 2])
    scales = torch.stack([arguments["p_out_bias"] * k for k in (1, 2, 3)])
    mask = arguments["mask"]
    rest = {name: value for name, value in arguments.items() if name not in ("x", "mask", "out", "p_out_bias")}
    call = lambda x, bias: update(x, "incoming", mask, p_out_bias=bias, **rest)
    result = torch.vmap(call)(x, scales)
    for k in range(3):
        assert torch.equal(result[k], cases.assert_update(x[k], "incoming", mask, p_out_bias=scales[k], **rest))
    with pytest.raises(RuntimeError, match="vmap|Batching rule|out="):
        torch.vmap(lambda x: update(x, out=torch.empty_like(arguments["x"]), mask=mask, **rest))(x)
