# SPDX-License-Identifier: Apache-2.0
"""`out` may meet nothing but x itself with residual. Byte ranges decide, of the caller's tensors, also where the call makes copies of them."""

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


@pytest.fixture
def memory(device):
    """Bytes out of which a test cuts its tensors."""
    return torch.zeros(4 << 20, dtype=torch.uint8, device=device)


def cut(memory, start, shape, dtype):
    size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    return memory[start : start + size].view(dtype).view(shape)


def refused(other, x, *args, **kwargs):
    kept = kwargs["out"].clone()
    with pytest.raises(ValueError, match=rf"^out: .*\b{other}\b"):
        update(x, *args, **kwargs)
    assert torch.equal(kwargs["out"].view(torch.uint8), kept.view(torch.uint8))


def test_x(device, rng, memory):
    served, parameters = cases.served(device), cases.random_parameters(rng, device)
    shape = (5, 5, served.c_z)
    x = cut(memory, 16384, shape, served.dtype)
    x.copy_(cases.random_x(rng, device, 5))
    size = x.numel() * x.element_size()
    for start in (16384, 16384 + size - x.element_size(), 16384 - size + x.element_size()):
        out = cut(memory, start, shape, served.dtype)
        refused("x", x, out=out, **parameters)
        if start != 16384:
            refused("x", x, out=out, residual=True, **parameters)
    for start in (16384 + size, 16384 - size):
        out = cut(memory, start, shape, served.dtype)
        assert torch.equal(update(x, out=out, **parameters), cases.assert_update(x, **parameters))


def test_x_that_is_copied(device, rng, memory):
    served, parameters = cases.served(device), cases.random_parameters(rng, device)
    whole = cut(memory, 0, (5, 5, 2 * served.c_z), served.dtype)
    whole.normal_()
    views = [whole[..., ::2], whole[..., : served.c_z], whole[..., : served.c_z].transpose(0, 1)]
    for x in views:
        for start in (0, 512, whole.numel() * whole.element_size() - 1024):
            out = cut(memory, start, x.shape, served.dtype)
            refused("x", x, out=out, **parameters)
            refused("x", x, out=out, residual=True, **parameters)


def test_x_that_is_cast(rng):
    """By precision and by autocast: the operator sees the copy alone."""
    parameters = cases.random_parameters(rng, "cpu")
    memory = torch.zeros(1 << 16, dtype=torch.uint8)
    x = cut(memory, 1024, (5, 5, 16), torch.float32)
    x.normal_()
    for start in (1024, 1024 - 5 * 5 * 16 * 2 + 64, 1024 + 5 * 5 * 16 * 4 - 64):
        out = cut(memory, start, (5, 5, 16), torch.bfloat16)
        refused("x", x, precision="bf16", out=out, **parameters)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            refused("x", x, out=out, **parameters)
    out = cut(memory, 1024 + 5 * 5 * 16 * 4, (5, 5, 16), torch.bfloat16)
    assert torch.equal(update(x, precision="bf16", out=out, **parameters), update(x.bfloat16(), **parameters))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.int64, torch.uint16, torch.float8_e5m2], ids=str)
def test_mask(device, rng, memory, dtype):
    """Also of a dtype that is converted."""
    served, parameters = cases.served(device), cases.random_parameters(rng, device)
    x = cases.random_x(rng, device, 5)
    mask = cut(memory, 2048, (5, 5), dtype)
    mask.fill_(1)
    width = mask.element_size()
    size = x.numel() * x.element_size()
    for start in (2048, 2048 + 25 * width - width + (-width) % 8, 1024):
        start = start // 8 * 8
        if start + size > 2048 and start < 2048 + 25 * width:
            refused("mask", x, mask=mask, out=cut(memory, start, x.shape, served.dtype), **parameters)
    every_second = cut(memory, 2048, (5, 10), dtype)[:, ::2]
    refused("mask", x, mask=every_second, out=cut(memory, 2048, x.shape, served.dtype), **parameters)


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_parameters(device, rng, memory, name):
    """Contiguous ones and ones that are copied."""
    served, parameters = cases.served(device), cases.random_parameters(rng, device)
    x = cases.random_x(rng, device, 5)
    shape = parameters[name].shape
    for view in (cut(memory, 1024, shape, served.dtype), cut(memory, 1024, (*shape, 2), served.dtype)[..., 0]):
        refused(name, x, out=cut(memory, 1024, x.shape, served.dtype), **{**parameters, name: view.copy_(parameters[name])})


def test_in_place_by_another_view_of_x(device, rng):
    """Exactly x's bytes are x, whatever tensor object says so."""
    x, parameters = cases.random_x(rng, device, 1, 5), cases.random_parameters(rng, device)
    expected = update(x, residual=True, **parameters)
    for view in (lambda t: t.view(t.shape), lambda t: t[0], lambda t: t.detach()):
        again = x.clone()
        update(again, out=view(again), residual=True, **parameters)
        assert torch.equal(again, expected)
    with pytest.raises(ValueError, match="^out: .*x"):
        update(x, out=x, **parameters)
