# SPDX-License-Identifier: Apache-2.0
import copy
import math
import pickle

import pytest
import torch

import cases
import trimul

Module = trimul.nn.TriangleMultiplicativeUpdate


@pytest.mark.parametrize("bias", [False, True])
def test_state_dict_has_the_names_of_the_operator(bias):
    module = Module(12, 20, bias=bias)
    expected = {name: torch.Size(shape) for name, shape in cases.shapes(12, 20).items() if bias or name not in cases.PROJECTION_BIASES}
    assert {name: value.shape for name, value in module.state_dict().items()} == expected
    assert list(module.state_dict()) == [name for name in cases.PARAMETERS if name in expected]
    assert all(parameter.requires_grad for parameter in module.parameters())
    for name in cases.PROJECTION_BIASES:
        assert (getattr(module, name) is not None) == bias


def test_initialisation():
    """AlphaFold's: identity norms, LeCun values, open gates, an output projection of zero."""
    torch.manual_seed(5)
    module = Module(256, 192, bias=True)
    std = math.sqrt(1 / 256)
    weight = module.p_in_weight.detach()
    assert abs(float(weight.std()) / std - 1) < 3 / math.sqrt(2 * weight.numel()) and weight.abs().max() <= 2 * std / 0.87962566 * (1 + 1e-6)
    for name, value in (("norm_in_weight", 1), ("norm_in_bias", 0), ("norm_out_weight", 1), ("norm_out_bias", 0), ("g_in_weight", 0), ("g_in_bias", 1),
                        ("g_out_weight", 0), ("g_out_bias", 1), ("p_out_weight", 0), ("p_out_bias", 0), ("p_in_bias", 0)):  # fmt: skip
        assert (getattr(module, name) == value).all(), name
    x = torch.randn(5, 5, 256)
    with torch.no_grad():
        assert (module(x) == 0).all() and torch.equal(module(x, residual=True), x)
    torch.manual_seed(5)
    assert torch.equal(Module(256, 192, bias=True).p_in_weight, module.p_in_weight)
    with torch.no_grad():
        module.p_out_weight.fill_(3)
        module.reset_parameters()
    assert (module.p_out_weight == 0).all() and not torch.equal(module.p_in_weight, weight.clone().zero_())


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
@pytest.mark.parametrize("biases", [(), cases.PROJECTION_BIASES], ids=["plain", "biases"])
def test_forward_is_the_function(device, rng, direction, biases):
    served = cases.served(device)
    module = Module(served.c_z, served.c, direction, bool(biases), eps=1e-3, device=device, dtype=served.dtype)
    parameters = cases.random_parameters(rng, device, biases)
    module.load_state_dict(parameters)
    x, mask = cases.random_x(rng, device, 2, 5), cases.random_mask(rng, device, 5, 5)
    with torch.no_grad():
        for residual in (False, True):
            result = module(x, mask, residual=residual)
            assert torch.equal(result, trimul.triangle_multiplicative_update(x, direction, mask, eps=1e-3, residual=residual, **parameters))
            cases.assert_matches(result, cases.reference(x, direction, mask, eps=1e-3, residual=residual, **parameters))
        assert torch.equal(module(x), trimul.triangle_multiplicative_update(x, direction, eps=1e-3, **parameters))
    with pytest.raises(NotImplementedError, match="backward"):
        module(x)


def test_copies(rng):
    module = Module(16, 24, "incoming", True, precision="bf16")
    module.load_state_dict(cases.random_parameters(rng, "cpu"))
    x = cases.random_x(rng, "cpu", 5)
    with torch.no_grad():
        expected = module(x)
        assert expected.dtype is torch.bfloat16
        for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.copy(module)):
            assert torch.equal(again(x), expected) and repr(again) == repr(module)
        other = copy.deepcopy(module)
        other.p_in_weight.zero_()
        assert torch.equal(module(x), expected) and not torch.equal(other(x), expected)


def test_repr():
    assert repr(Module(8)) == "TriangleMultiplicativeUpdate(8, c_hidden=8, direction='outgoing', bias=False)"
    text = repr(Module(8, 4, "incoming", True, precision="ieee"))
    assert text == "TriangleMultiplicativeUpdate(8, c_hidden=4, direction='incoming', bias=True, precision='ieee')"


def test_devices_and_dtypes():
    assert all(p.dtype is torch.bfloat16 for p in Module(8, dtype=torch.bfloat16).parameters())
    module = Module(8, device="meta")
    assert all(p.is_meta for p in module.parameters())
    module.to_empty(device="cpu").reset_parameters()
    assert (module.norm_in_weight == 1).all()
    assert Module(8).half().p_in_weight.dtype is torch.float16


def test_wrong_arguments():
    for error, name, arguments in (
        (ValueError, "direction", {"direction": "both"}), (TypeError, "direction", {"direction": 1}), (ValueError, "c_z", {"c_z": 0}),
        (TypeError, "c_z", {"c_z": 8.0}), (ValueError, "c_hidden", {"c_hidden": -1}), (TypeError, "c_hidden", {"c_hidden": "8"}),
        (ValueError, "eps", {"eps": 0}), (TypeError, "eps", {"eps": "0"}), (ValueError, "precision", {"precision": "fp32"}),
        (TypeError, "c_z", {"c_z": True}), (TypeError, "c_hidden", {"c_hidden": torch.tensor(8)}),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{name}: "):
            Module(**{"c_z": 8, **arguments})
    with pytest.raises(RuntimeError, match="p_in_weight"):
        Module(8).load_state_dict({})
