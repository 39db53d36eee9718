# SPDX-License-Identifier: Apache-2.0
"""Every form of a mask, against the reference and against the same mask as plain fp32."""

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.fixture
def problem(device, rng):
    return cases.random_x(rng, device, 3, 5), cases.random_parameters(rng, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(problem, rng, device, dtype):
    x, parameters = problem
    mask = cases.random_mask(rng, device, 3, 5, 5)
    result = update(x, "incoming", mask.to(dtype), **parameters)
    assert torch.equal(result, update(x, "incoming", mask, **parameters))
    cases.assert_matches(result, cases.reference(x, "incoming", mask, **parameters))
    out = torch.empty_like(x)
    assert torch.equal(update(x, "incoming", mask.to(dtype), out=out, **parameters), result)


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
def test_shapes(problem, rng, device, direction):
    x, parameters = problem
    full = cases.random_mask(rng, device, 3, 5, 5) * torch.randn(3, 5, 5, generator=rng).to(device)
    one = full[:1].expand(3, 5, 5)
    for expanded, forms in (
        (full, [full, full[..., None], full.mT.contiguous().mT, full.flip(0).flip(0), torch.stack([full, -full], -1)[..., 0]]),
        (one, [full[0], full[:1], full[0][..., None], full[:1, ..., None], one, one[..., None]]),
    ):
        expected = cases.reference(x, direction, expanded.contiguous(), **parameters)
        for mask in forms:
            cases.assert_matches(update(x, direction, mask, **parameters), expected)
    assert cases.relative_rms(update(x, direction, full.mT, **parameters), cases.reference(x, direction, full, **parameters)) > 1e-2


def test_leading_dimensions_broadcast(rng, device):
    x, parameters = cases.random_x(rng, device, 2, 3, 5), cases.random_parameters(rng, device)
    for shape in [(5, 5), (1, 5, 5), (3, 5, 5), (1, 3, 5, 5), (2, 1, 5, 5), (2, 3, 5, 5), (2, 1, 5, 5, 1)]:
        mask = cases.random_mask(rng, device, *shape)
        solid = (mask[..., 0] if len(shape) == 5 else mask).expand(2, 3, 5, 5).contiguous()
        assert torch.equal(update(x, mask=mask, **parameters), cases.assert_update(x, mask=solid, **parameters))


def test_stride_zero(problem, rng, device):
    """A batch that was expanded, rows and columns that were, and one number for all."""
    x, parameters = problem
    row = torch.randn(5, generator=rng).to(device)
    for mask in (row.expand(3, 5, 5), row[:, None].expand(3, 5, 5), row[:1, None].expand(5, 5)):
        assert 0 in mask.stride()
        cases.assert_matches(update(x, mask=mask, **parameters), cases.reference(x, mask=mask.contiguous(), **parameters))


def test_odd_offsets(problem, rng, device):
    """Addresses aligned to the element alone."""
    x, parameters = problem
    for dtype in (torch.bool, torch.float16, torch.float64):
        mask = cases.random_mask(rng, device, 76, dtype=dtype)[1:].view(3, 5, 5)
        cases.assert_matches(update(x, mask=mask, **parameters), cases.reference(x, mask=mask.clone(), **parameters))


def test_fractions_negatives_and_beyond_one(problem, rng, device):
    x, parameters = problem
    mask = 3 * torch.randn(3, 5, 5, generator=rng).to(device)
    for direction in cases.DIRECTIONS:
        cases.assert_update(x, direction, mask, **parameters)


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), 3e38])
def test_zero_selects(problem, device, hole):
    """Padding may hold anything; the cell's own output alone depends on it."""
    x, parameters = problem
    mask = torch.ones(5, 5, device=device)
    mask[4, :] = mask[:, 4] = 0
    filled = x.clone()
    filled[:, 4, :], filled[:, :, 4] = hole, hole
    for direction in cases.DIRECTIONS:
        result = update(filled, direction, mask, **parameters)
        assert torch.equal(result[:, :4, :4], cases.assert_update(x, direction, mask, **parameters)[:, :4, :4])


def test_all_zero(problem, device):
    """y = 0: the result is what the output's norm and projection make of it."""
    x, parameters = problem
    mask = torch.zeros(5, 5, device=device, dtype=torch.bool)
    cases.assert_update(x, mask=mask, **parameters)


def test_a_mask_that_negates(problem, rng, device):
    x, parameters = problem
    mask = torch._neg_view(torch.randn(5, 5, generator=rng).to(device))
    assert torch.equal(update(x, mask=mask, **parameters), cases.assert_update(x, mask=mask.resolve_neg(), **parameters))


def test_one_token(rng, device):
    """[B, 1, 1, 1] is read as [B, N, N, 1] where N = 1."""
    x, parameters = cases.random_x(rng, device, 2, 1), cases.random_parameters(rng, device)
    mask = torch.tensor([0.5, 0.0], device=device)
    expected = update(x, mask=mask.view(2, 1, 1), **parameters)
    assert torch.equal(update(x, mask=mask.view(2, 1, 1, 1), **parameters), expected)
    assert not torch.equal(expected, update(x, **parameters))


@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (1, 5), (5, 1), (1, 1), (5,), (), (2, 5, 5), (3, 1, 5), (5, 5, 2), (3, 3, 5, 5), (3, 5, 5, 5)], ids=str)
def test_wrong_shapes(problem, device, shape):
    x, parameters = problem
    with pytest.raises(ValueError, match="^mask: "):
        update(x, mask=torch.ones(shape, device=device), **parameters)
