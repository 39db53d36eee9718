# SPDX-License-Identifier: Apache-2.0
"""Values of the drop-in against the fp64 reference: sizes, widths, dtypes, biases, ranks."""

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 9, 33])
def test_tokens(device, rng, direction, tokens):
    parameters = cases.random_parameters(rng, device)
    x = cases.random_x(rng, device, 2, tokens)
    mask = cases.random_mask(rng, device, 2, tokens, tokens)
    cases.assert_update(x, direction, mask, **parameters)
    cases.assert_update(x[0], direction, **parameters)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("c_z, c", [(128, 128), (64, 128), (128, 64), (48, 48), (7, 13), (33, 1), (1, 3)])
def test_widths_and_dtypes(rng, dtype, c_z, c):
    """Against the reference, and against plain torch in the same dtype: at most twice its error."""
    parameters = cases.random_parameters(rng, "cpu", c_z=c_z, c=c, dtype=dtype)
    x = cases.random_x(rng, "cpu", 9, c_z=c_z, dtype=dtype)
    mask = cases.random_mask(rng, "cpu", 9, 9)
    result = update(x, "incoming", mask, **parameters)
    assert result.dtype is dtype
    expected = cases.reference(x, "incoming", mask, **parameters)
    noise = {torch.bfloat16: 2**-9, torch.float16: 2**-12, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    by_torch = cases.plain(x, "incoming", mask, dtype=dtype, **parameters)
    cases.assert_matches(result, expected, 2 * cases.relative_rms(by_torch, expected) + noise)
    if c >= 32:
        cases.assert_matches(result, expected)


BIASES = [(), *((name,) for name in cases.PROJECTION_BIASES), ("p_in_bias", "g_out_bias"), cases.PROJECTION_BIASES]


@pytest.mark.parametrize("biases", BIASES, ids=lambda names: "+".join(names) or "none")
def test_biases(device, rng, biases):
    x = cases.random_x(rng, device, 9)
    parameters = cases.random_parameters(rng, device, biases)
    result = cases.assert_update(x, **parameters)
    if biases:
        assert not torch.equal(result, update(x, **{**parameters, biases[-1]: None}))


@pytest.mark.parametrize("absent", ["norm_in_weight", "norm_in_bias", "norm_out_weight", "norm_out_bias"])
def test_absent_norms_are_the_identity(device, rng, absent):
    x = cases.random_x(rng, device, 5)
    parameters = cases.random_parameters(rng, device)
    identity = torch.ones_like(parameters[absent]) if absent.endswith("weight") else torch.zeros_like(parameters[absent])
    given = update(x, **{**parameters, absent: identity})
    without = update(x, **{**parameters, absent: None})
    assert torch.equal(given, without)
    assert not torch.equal(given, update(x, **parameters))


@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 3), (2, 1, 2)], ids=str)
def test_ranks(device, rng, leading):
    """Leading dimensions are a batch, whose samples do not know of each other."""
    x = cases.random_x(rng, device, *leading, 5)
    mask = cases.random_mask(rng, device, *leading, 5, 5)
    parameters = cases.random_parameters(rng, device)
    result = cases.assert_update(x, "incoming", mask, **parameters)
    flat_x, flat_mask, flat = x.reshape(-1, *x.shape[-3:]), mask.reshape(-1, 5, 5), result.reshape(-1, *x.shape[-3:])
    for sample in range(len(flat_x)):
        assert torch.equal(update(flat_x[sample], "incoming", flat_mask[sample], **parameters), flat[sample])


@pytest.mark.parametrize("shape", [(0, 5, 5), (0, 0), (3, 0, 0), (2, 0, 3, 3)], ids=str)
def test_empty(device, rng, shape):
    c_z = cases.served(device).c_z
    x = torch.empty(*shape, c_z, device=device, dtype=cases.served(device).dtype)
    parameters = cases.random_parameters(rng, device)
    mask = torch.ones(shape, device=device)
    for result in (update(x, **parameters), update(x, mask=mask, **parameters), update(x, residual=True, **parameters)):
        assert result.shape == x.shape and result.dtype is x.dtype and result.device == x.device
    out = torch.empty_like(x)
    assert update(x, out=out, **parameters) is out


def test_mixed_weight_dtypes(rng):
    """Weights of any float dtype, each its own, are taken at the values they hold."""
    x = cases.random_x(rng, "cpu", 5)
    parameters = cases.random_parameters(rng, "cpu")
    dtypes = [torch.float64, torch.bfloat16, torch.float16, torch.float32]
    mixed = {name: value.to(dtypes[k % 4]) for k, (name, value) in enumerate(parameters.items())}
    cases.assert_update(x, **mixed)


def test_wider_weights_on_narrow_x(device, rng):
    """fp32 weights under bf16 x: Boltz under autocast."""
    x = cases.random_x(rng, device, 9, dtype=torch.bfloat16)
    cases.assert_update(x, **cases.random_parameters(rng, device, dtype=torch.float32))


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
def test_residual(device, rng, direction):
    x = cases.random_x(rng, device, 2, 5)
    parameters = cases.random_parameters(rng, device)
    result = cases.assert_update(x, direction, residual=True, **parameters)
    assert torch.equal(result, update(x, direction, residual=1, **parameters))
    in_place = x.clone()
    assert update(in_place, direction, residual=True, out=in_place, **parameters) is in_place
    assert torch.equal(in_place, result)


def test_out_is_returned_as_given(device, rng):
    x = cases.random_x(rng, device, 1, 5)
    parameters = cases.random_parameters(rng, device)
    expected = cases.assert_update(x, **parameters)
    for shape in (x.shape, x.shape[1:]):
        out = torch.full(shape, float("nan"), device=device, dtype=x.dtype)
        address = out.data_ptr()
        assert update(x, out=out, **parameters) is out
        assert out.data_ptr() == address and torch.equal(out, expected.reshape(shape))


def test_inputs_stay_and_runs_repeat(device, rng):
    x = cases.random_x(rng, device, 2, 9)
    mask = cases.random_mask(rng, device, 9, 9)
    parameters = cases.random_parameters(rng, device)
    kept = [tensor.clone() for tensor in (x, mask, *parameters.values())]
    results = [cases.assert_update(x, mask=mask, **parameters) for _ in range(3)]
    assert all(torch.equal(result, results[0]) for result in results)
    assert all(torch.equal(a, b) for a, b in zip(kept, (x, mask, *parameters.values())))


def test_eps_counts_in_both_norms(device, rng):
    x = cases.random_x(rng, device, 5) * 1e-3
    parameters = cases.random_parameters(rng, device)
    for eps in (1e-5, 0.1, 1):
        cases.assert_update(x, eps=eps, **parameters)


def test_large_means(rng):
    """A one-pass variance would lose these rows."""
    x = cases.random_x(rng, "cpu", 5) + 4e4
    cases.assert_update(x, **cases.random_parameters(rng, "cpu"))
