# SPDX-License-Identifier: Apache-2.0
"""Each model's triangle multiplication, its kernel path led here, against its own PyTorch path."""

import pytest
import torch
import trimul
from model_cases import FORMATS, MODELS, random_input, randomised, reference, relative_rms

TOKENS = {"cpu": 45, "cuda": 217}
DIRECTIONS = ("outgoing", "incoming")


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def problem(model, direction, form, device):
    torch.manual_seed(7)
    model, form = MODELS[model], FORMATS[form]
    module = model.make(direction).to(form.stored).to(device)
    x, mask = random_input(model, TOKENS[device.type], device)
    return model, form, module, x.to(form.stored), mask.to(form.stored)


def run(form, module, x, mask, keywords):
    with torch.autocast(x.device.type, torch.bfloat16, enabled=form.autocast):
        return module(x.clone(), mask, **keywords)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("model, form", [(name, form) for name, model in MODELS.items() for form in model.formats])
def test_kernel_path_is_as_exact_as_their_own(problem, direction, served, calls, record_property):
    model, form, module, x, mask = problem
    theirs = run(form, module, x, mask, model.plain)
    assert not calls
    ours = run(form, module, x, mask, model.kernel)
    assert calls == [direction]
    assert ours.dtype == form.result and ours.device == x.device

    exact = reference(model, module, x, mask)
    errors = {"ours": relative_rms(ours, exact), "theirs": relative_rms(theirs, exact)}
    print(errors)
    for name, error in errors.items():
        record_property(name, error)
    assert errors["ours"] <= form.bound(errors["theirs"]), errors


def _flipped(direction):
    return {"outgoing": "incoming", "incoming": "outgoing"}[direction]


MISTAKES = {
    "zeros": lambda real, x, direction, mask, w: torch.zeros_like(x),
    "a copy of x": lambda real, x, direction, mask, w: x.clone(),
    "the other direction": lambda real, x, direction, mask, w: real(x, _flipped(direction), mask, **w),
    "no mask": lambda real, x, direction, mask, w: real(x, direction, None, **w),
    "the mask transposed": lambda real, x, direction, mask, w: real(x, direction, mask.mT, **w),
    "gates for projections": lambda real, x, direction, mask, w: real(
        x, direction, mask, **{**w, "p_in_weight": w["g_in_weight"], "g_in_weight": w["p_in_weight"]}),
    "a for b": lambda real, x, direction, mask, w: real(
        x, direction, mask, **{**w, **{name: w[name].roll(w[name].shape[0] // 2, 0) for name in ("p_in_weight", "g_in_weight")}}),
    "the norms swapped": lambda real, x, direction, mask, w: real(
        x, direction, mask, **{**w, "norm_in_weight": w["norm_out_weight"], "norm_out_weight": w["norm_in_weight"]}),
}


@pytest.mark.parametrize("form", ["autocast"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("model", ["boltz-128", "protenix-128", "openfold3-128"])
def test_bound_tells_a_wrong_kernel(problem, served, monkeypatch):
    model, form, module, x, mask = problem
    real = trimul.triangle_multiplicative_update
    exact = reference(model, module, x, mask)
    for name, mistake in MISTAKES.items():
        monkeypatch.setattr(trimul, "triangle_multiplicative_update", lambda *args, **kwargs: mistake(real, **_arguments(*args, **kwargs)))
        assert relative_rms(run(form, module, x, mask, model.kernel), exact) > 5 * form.bound(1.0), name


def _arguments(x, direction, mask, norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias, norm_out_weight, norm_out_bias,
               p_out_weight, p_out_bias, g_out_weight, g_out_bias, eps, precision, **_):
    weights = dict(norm_in_weight=norm_in_weight, norm_in_bias=norm_in_bias, p_in_weight=p_in_weight, g_in_weight=g_in_weight,
                   norm_out_weight=norm_out_weight, norm_out_bias=norm_out_bias, p_out_weight=p_out_weight, g_out_weight=g_out_weight, eps=eps)
    assert precision is p_in_bias is g_in_bias is p_out_bias is g_out_bias is None
    return dict(x=x, direction=direction, mask=mask, w=weights)


@pytest.mark.parametrize("form", ["autocast"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("model", ["boltz-128", "protenix-128"])
def test_kernel_path_needs_the_installation(problem, calls):
    """It is the hard-coded import that leads here: without the installation it fails, and does so again after it."""
    model, form, module, x, mask = problem
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="cuequivariance_torch"):
            run(form, module, x, mask, model.kernel)
        assert not calls
        trimul.install_as_cuequivariance()
        try:
            run(form, module, x, mask, model.kernel)
        finally:
            trimul.uninstall_as_cuequivariance()
        assert len(calls) == 1
        calls.clear()


@pytest.mark.parametrize("form", ["bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("model", ["protenix-128"])
def test_protenix_adds_in_place_and_goes_without_a_mask(problem, served, calls):
    model, form, module, x, mask = problem
    for given in (mask, None):
        keywords = {"inplace_safe": True, "_add_with_inplace": True}
        theirs = run(form, module, x, given, {**model.plain, **keywords})
        ours = run(form, module, x, given, {**model.kernel, **keywords})
        assert relative_rms(ours, theirs.double().cpu()) <= form.bound(1.0)
    assert len(calls) == 2


@pytest.mark.parametrize("form", ["autocast"])
@pytest.mark.parametrize("direction", ["outgoing"])
@pytest.mark.parametrize("model", ["boltz-128"])
def test_boltz_pairformer_with_an_expanded_mask(problem, served, calls):
    """A whole layer, triangle attention on their own path; the template module's mask has stride 0."""
    from boltz.model.layers.pairformer import PairformerNoSeqLayer

    _, form, _, x, mask = problem
    layer = randomised(PairformerNoSeqLayer(128).eval()).to(x.device)
    mask = mask[:1].expand(2, -1, -1)
    theirs = run(form, layer, x, mask, {})
    assert relative_rms(run(form, layer, x, mask, {"use_cuequiv_mul": True}), theirs.double().cpu()) <= form.bound(1.0)
    assert calls == ["outgoing", "incoming"]
