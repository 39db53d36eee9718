# SPDX-License-Identifier: Apache-2.0
"""Projections that are None are drawn: truncated normal, from torch's generator of x's device."""

import math

import pytest
import torch

import cases
import trimul
from trimul import _drop_in

update = trimul.triangle_multiplicative_update


def drawn(x, p_in=None, g_in=None, p_out=None, g_out=None, p_in_bias=None, g_in_bias=None, norm_out_weight=None, norm_out_bias=None):
    _drop_in._is_loaded()
    return _drop_in._draw_missing(x, p_in, g_in, p_out, g_out, p_in_bias, g_in_bias, norm_out_weight, norm_out_bias)


def test_the_seed_decides(device, rng):
    x = cases.random_x(rng, device, 5)
    torch.manual_seed(7)
    first = update(x)
    other = update(x)
    torch.manual_seed(7)
    assert torch.equal(update(x), first) and not torch.equal(first, other)
    torch.manual_seed(8)
    assert not torch.equal(update(x), first)
    torch.manual_seed(7)
    names = ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight")
    assert torch.equal(update(x, **dict(zip(names, drawn(x)))), first)


def test_only_what_is_missing_is_drawn(device, rng):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    state = torch.get_rng_state()
    expected = update(x, **parameters)
    assert torch.equal(torch.get_rng_state(), state)
    for name in cases.PROJECTIONS:
        torch.manual_seed(3)
        result = update(x, **{**parameters, name: None})
        torch.manual_seed(3)
        assert torch.equal(result, update(x, **{**parameters, name: None})) and not torch.equal(result, expected)


def test_distribution(device):
    """Standard deviation sqrt(1 / fan_in) after the cut at two of the uncut normal's; 3 standard errors."""
    c_z, c = 96, 384
    x = torch.zeros(1, 1, c_z, device=device)
    torch.manual_seed(11)
    weights = drawn(x, norm_out_weight=torch.ones(c, device=device))
    for weight, shape in zip(weights, [(2 * c, c_z), (2 * c, c_z), (c_z, c), (c_z, c_z)]):
        assert weight.shape == shape and weight.device.type == device and not weight.requires_grad
        std = math.sqrt(1 / shape[1])
        cut = 2 * std / 0.87962566
        assert 0.95 * cut < weight.abs().max() <= cut * (1 + 1e-6)
        assert abs(float(weight.std()) / std - 1) < 3 / math.sqrt(2 * weight.numel())
        assert abs(float(weight.mean())) < 3 * std / math.sqrt(weight.numel())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_dtype_is_that_of_x(rng, dtype):
    x = cases.random_x(rng, "cpu", 3, dtype=dtype)
    assert all(weight.dtype is dtype for weight in drawn(x))
    assert update(x).dtype is dtype


def test_c_is_read_from_whatever_knows_it(rng):
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    for name, value in parameters.items():
        if name in ("norm_in_weight", "norm_in_bias", "p_out_bias", "g_out_bias", "g_out_weight"):
            continue
        assert torch.isfinite(update(x, **{name: value})).all(), name
    assert drawn(x)[0].shape == (32, 16)
    with pytest.raises(ValueError, match="norm_out_weight"):
        update(x, p_in_weight=parameters["p_in_weight"], norm_out_weight=torch.ones(5))


def test_impossible_sizes_are_errors_of_the_operator():
    for wrong in (torch.tensor(1.0), torch.ones(3), torch.ones(3, 3), torch.ones(3, 3, 0), torch.ones(2, 3, 8)):
        with pytest.raises(ValueError, match="x: |C_z|p_in_weight: "):
            update(wrong)
    x = torch.ones(3, 3, 8)
    for rows in (0, 1, 3):
        with pytest.raises(ValueError, match="p_in_weight: "):
            update(x, p_in_weight=torch.ones(rows, 8))
    with pytest.raises(ValueError, match="p_in_weight: "):
        update(x, p_in_weight=torch.tensor(1.0))


def test_without_gradients_in_grad_mode(device, rng):
    assert not update(cases.random_x(rng, device, 3)).requires_grad
