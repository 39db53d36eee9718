# SPDX-License-Identifier: Apache-2.0
"""Views of every kind give what their contiguous copies give, bitwise."""

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update

# Each makes, of a contiguous [3, 5, 5, C], an equal tensor of another layout.
VIEWS = {
    "transposed tokens": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channels first": lambda x: x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
    "batch last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "slice of tokens": lambda x: torch.nn.functional.pad(x, (0, 0, 2, 1, 1, 3), value=float("nan"))[:, 1:6, 2:7],
    "slice of channels": lambda x: torch.nn.functional.pad(x, (1, 2), value=float("nan"))[..., 1:-2],
    "every second": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "offset of one": lambda x: torch.cat([x.new_full((1,), float("nan")), x.flatten()])[1:].view(x.shape),
    "offset of three": lambda x: torch.cat([x.new_full((3,), float("nan")), x.flatten(), x.new_zeros(5)])[3:-5].view(x.shape),
    "negated": lambda x: torch._neg_view(-x),
    "negated and transposed": lambda x: torch._neg_view((-x).transpose(1, 2).contiguous().transpose(1, 2)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_of_x(device, rng, view):
    x, parameters = cases.random_x(rng, device, 3, 5), cases.random_parameters(rng, device)
    viewed = view(x)
    assert torch.equal(viewed, x)
    for residual in (False, True):
        expected = cases.assert_update(x, residual=residual, **parameters)
        result = update(viewed, residual=residual, **parameters)
        assert result.is_contiguous() and torch.equal(result, expected)
        out = torch.empty_like(x)
        assert torch.equal(update(viewed, residual=residual, out=out, **parameters), expected)


def test_expanded_x(device, rng):
    x, parameters = cases.random_x(rng, device, 1, 5), cases.random_parameters(rng, device)
    assert torch.equal(update(x.expand(3, -1, -1, -1), **parameters), cases.assert_update(x, **parameters).expand(3, -1, -1, -1))
    same = x[:, :1, :1].expand(1, 5, 5, -1)
    assert torch.equal(update(same, **parameters), update(same.contiguous(), **parameters))


def test_views_of_parameters(device, rng):
    """Transposed, with a stride, expanded, at an offset of one element: each parameter alone."""
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    expected = cases.assert_update(x, **parameters)
    for name, value in parameters.items():
        views = [torch.stack([value, value + 1], -1)[..., 0], torch.cat([value.new_ones(1), value.flatten()])[1:].view(value.shape), torch._neg_view(-value)]
        if value.dim() == 2:
            views.append(value.mT.contiguous().mT)
        for viewed in views:
            assert torch.equal(viewed, value)
            assert torch.equal(update(x, **{**parameters, name: viewed}), expected), name
        constant = value.flatten()[:1].expand(value.numel()).view(value.shape) if value.dim() == 1 else value[:1].expand(value.shape)
        assert torch.equal(update(x, **{**parameters, name: constant}), update(x, **{**parameters, name: constant.contiguous()})), name


def test_prepared_weights_of_views(device, rng):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    viewed = {
        name: value.mT.contiguous().mT if value.dim() == 2 else torch._neg_view(-value) if k % 2 else torch.cat([value[:1], value])[1:]
        for k, (name, value) in enumerate(parameters.items())
    }
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=cases.served(device).c, has_mask=False, has_in_bias=True, has_out_bias=True)
    workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
    out = torch.empty_like(x)
    plan.execute(x, None, trimul.prepare_weights(**viewed), out, workspace)
    assert torch.equal(out, cases.assert_update(x, **parameters))


def test_out_with_an_offset(device, rng):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    memory = torch.full((x.numel() + 2,), 7.0, dtype=x.dtype, device=device)
    out = memory[1:-1].view(x.shape)
    update(x, out=out, **parameters)
    assert torch.equal(out, cases.assert_update(x, **parameters))
    assert memory[0] == 7 and memory[-1] == 7


def test_memory_of_the_result_is_its_own(device, rng):
    x, parameters = cases.random_x(rng, device, 5), cases.random_parameters(rng, device)
    first, second = cases.assert_update(x, **parameters), update(x, **parameters)
    assert len({tensor.data_ptr() for tensor in (x, first, second)}) == 3
    first.zero_()
    assert second.count_nonzero() > 0
