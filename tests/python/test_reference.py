# SPDX-License-Identifier: Apache-2.0
"""The reference against the formulas in plain torch."""

import pytest
import torch

import cases
from trimul.reference import triangle_multiplicative_update_reference


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 9])
def test_reference_is_the_formula(rng, direction, tokens):
    for batch, c_z, c in [(1, 16, 24), (3, 7, 5), (2, 1, 1)]:
        x = cases.random_x(rng, "cpu", batch, tokens, c_z=c_z, dtype=torch.float64)
        mask = torch.randn(batch, tokens, tokens, generator=rng, dtype=torch.float64)
        parameters = cases.random_parameters(rng, "cpu", c_z=c_z, c=c, dtype=torch.float64)
        for kwargs in ({}, {"residual": True}, {"eps": 0.25}):
            expected = cases.plain(x, direction, mask, **kwargs, **parameters)
            result = triangle_multiplicative_update_reference(x, direction, mask, rounding="none", **kwargs, **parameters)
            assert result.dtype is torch.float64
            assert cases.relative_rms(result, expected) < 1e-12


def test_each_parameter_counts(rng):
    """Each of the twelve, the mask, eps, direction and residual changes the result, alone."""
    x = cases.random_x(rng, "cpu", 2, 5)
    parameters = cases.random_parameters(rng, "cpu")
    mask = cases.random_mask(rng, "cpu", 2, 5, 5)
    base = cases.reference(x, "outgoing", mask, **parameters)
    for name in parameters:
        changed = {**parameters, name: parameters[name] + torch.randn(parameters[name].shape, generator=rng)}
        assert cases.relative_rms(cases.reference(x, "outgoing", mask, **changed), base) > 1e-2, name
    for other in (
        cases.reference(x, "incoming", mask, **parameters), cases.reference(x, "outgoing", mask.mT, **parameters),
        cases.reference(x, "outgoing", None, **parameters), cases.reference(x, "outgoing", mask, eps=0.5, **parameters),
        cases.reference(x, "outgoing", mask, residual=True, **parameters),
    ):  # fmt: skip
        assert cases.relative_rms(other, base) > 1e-2


def test_rounding_kernel_rounds_where_the_kernels_do(rng):
    x = cases.random_x(rng, "cpu", 9, c_z=32, dtype=torch.bfloat16)
    parameters = cases.random_parameters(rng, "cpu", c_z=32, c=32, dtype=torch.bfloat16)
    error = cases.relative_rms(triangle_multiplicative_update_reference(x, **parameters), cases.reference(x, **parameters))
    assert 5e-4 < error < 1e-2


def test_views_that_negate_are_read_as_what_they_are(rng):
    x = torch._neg_view(cases.random_x(rng, "cpu", 4))
    parameters = cases.random_parameters(rng, "cpu")
    mask = torch._neg_view(cases.random_mask(rng, "cpu", 4, 4))
    negated = {**parameters, "p_in_weight": torch._neg_view(parameters["p_in_weight"])}
    solid = {**parameters, "p_in_weight": -parameters["p_in_weight"]}
    assert torch.equal(cases.reference(x, "outgoing", mask, **negated), cases.reference(x.resolve_neg(), "outgoing", mask.resolve_neg(), **solid))


def test_wrong_arguments(rng):
    x = cases.random_x(rng, "cpu", 4)
    parameters = cases.random_parameters(rng, "cpu")
    with pytest.raises(ValueError, match="rounding"):
        triangle_multiplicative_update_reference(x, rounding="some", **parameters)
    with pytest.raises(TypeError, match="p_out_weight"):
        triangle_multiplicative_update_reference(x, **{**parameters, "p_out_weight": None})
    with pytest.raises(ValueError, match="g_in_weight"):
        triangle_multiplicative_update_reference(x, **{**parameters, "g_in_weight": torch.ones(3, 3)})
    with pytest.raises(ValueError, match="mask"):
        triangle_multiplicative_update_reference(x, mask=torch.ones(3, 3), **parameters)
