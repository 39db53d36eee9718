# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a weight between two drop-in calls takes effect on the next; prepared weights are a copy."""

import copy
import gc

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


class Follows:
    """A module, its x, and the call. `changed` asserts that the result moved, and that it is what fresh copies of the weights give."""

    def __init__(self, device, rng):
        served = cases.served(device)
        self.module = trimul.nn.TriangleMultiplicativeUpdate(served.c_z, served.c, bias=True, device=device, dtype=served.dtype)
        self.module.load_state_dict(cases.random_parameters(rng, device))
        self.x = cases.random_x(rng, device, 5)
        self.last = self.call()

    def call(self):
        with torch.no_grad():
            return self.module(self.x)

    def changed(self):
        result = self.call()
        assert not torch.equal(result, self.last)
        fresh = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        cases.assert_update(self.x, **fresh)
        assert torch.equal(result, update(self.x, **fresh))
        self.last = result


@pytest.fixture
def follows(device, rng):
    return Follows(device, rng)


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_in_place_writes(follows, name):
    parameter = getattr(follows.module, name)
    with torch.no_grad():
        parameter.mul_(1.5)
        follows.changed()
        parameter.flatten()[0] += 4
        follows.changed()
        parameter.data.zero_()
        follows.changed()
    with torch.inference_mode():
        parameter.data.view(parameter.shape).fill_(2)
    follows.changed()


def test_data_assignment(follows):
    for name in cases.PARAMETERS:
        parameter = getattr(follows.module, name)
        parameter.data = torch.flip(parameter.data, (0,)) * 2
        follows.changed()


def test_load_state_dict(follows, rng, device):
    for assign in (False, True):
        follows.module.load_state_dict(cases.random_parameters(rng, device), assign=assign)
        follows.changed()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_optimizer_steps(follows, kind):
    optimizer = getattr(torch.optim, kind)(follows.module.parameters(), lr=0.1)
    for _ in range(3):
        for parameter in follows.module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        follows.changed()


def test_swapped_averages(follows, rng, device):
    """EMA as trainers do it: the averages in, evaluation, the weights back."""
    first = follows.last
    averages = cases.random_parameters(rng, device)
    parameters = dict(follows.module.named_parameters())
    kept = {name: parameter.data for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        parameter.data = averages[name]
    follows.changed()
    for name, parameter in parameters.items():
        parameter.data = kept[name]
    follows.changed()
    assert torch.equal(follows.last, first)
    result = torch.func.functional_call(follows.module.requires_grad_(False), averages, (follows.x,))
    assert torch.equal(result, update(follows.x, **averages))


def test_reused_addresses(device, rng):
    """A new tensor where a freed one was, of the same shape and version."""
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    seen, reused = set(), 0
    for k in range(20):
        weight = parameters["p_out_weight"] * (k + 1)
        reused += weight.data_ptr() in seen
        seen.add(weight.data_ptr())
        result = update(x, **{**parameters, "p_out_weight": weight})
        expected = cases.reference(x, **{**parameters, "p_out_weight": weight})
        cases.assert_matches(result, expected)
        del weight
    assert reused > 0


def test_inference_mode_tensors(device, rng):
    """They have no version counter."""
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    with torch.inference_mode():
        weights = {name: value.clone() for name, value in parameters.items()}
        before = update(x, **weights)
        weights["g_out_weight"].mul_(-1)
        after = update(x, **weights)
    assert not torch.equal(before, after)
    assert torch.equal(after, update(x, **{**parameters, "g_out_weight": -parameters["g_out_weight"]}))


def test_moves_and_casts_of_a_module(follows):
    if follows.x.is_cuda:
        pytest.skip("one dtype is served there")
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        follows.module.to(dtype)
        result = follows.call()
        assert torch.equal(result, cases.assert_update(follows.x, **{name: value.detach() for name, value in follows.module.state_dict().items()}))


def test_prepared_weights_are_a_copy(device, rng):
    served = cases.served(device)
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    expected = cases.assert_update(x, **parameters)
    weights = trimul.prepare_weights(**parameters)
    for value in parameters.values():
        value.fill_(float("nan"))
    del parameters, value
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=served.c, has_mask=False, has_in_bias=True, has_out_bias=True)
    out, workspace = torch.empty_like(x), torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
    plan.execute(x, None, weights, out, workspace)
    assert torch.equal(out, expected)
    # A shallow copy shares what it was packed into, and keeps it.
    shared = copy.copy(weights)
    del weights
    gc.collect()
    plan.execute(x, None, shared, out.zero_(), workspace)
    assert torch.equal(out, expected)
    with pytest.raises(Exception, match="pickle"):
        copy.deepcopy(shared)
