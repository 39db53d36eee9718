# SPDX-License-Identifier: Apache-2.0
"""patch_openfold3 on the real package."""

import os
import subprocess
import sys

import openfold3.core.model.layers.triangular_multiplicative_update as module
import pytest
import torch
import trimul
from openfold3.core.model.latent.base_blocks import PairBlock
from model_cases import BF16_BOUND, randomised, relative_rms

CLASSES = (module.TriangleMultiplicativeUpdate, module.FusedTriangleMultiplicativeUpdate)


def state():
    return dict(vars(module)), [dict(vars(cls)) for cls in CLASSES]


@pytest.fixture(autouse=True)
def unpatched_after():
    yield
    trimul.unpatch_openfold3()


@pytest.mark.parametrize("present", [False, True])
def test_patch_is_reversible_and_idempotent(present, monkeypatch):
    if present:  # as on a machine with cuEquivariance
        monkeypatch.setattr(module, "triangle_multiplicative_update", len, raising=False)
    before = state()
    trimul.unpatch_openfold3()
    assert state() == before
    trimul.patch_openfold3()
    inside = state()
    trimul.patch_openfold3(always=True)
    assert state() not in (before, inside)
    trimul.patch_openfold3()
    assert state() == inside != before
    trimul.unpatch_openfold3()
    assert state() == before


def test_unpatch_leaves_what_others_assigned():
    trimul.patch_openfold3()
    module.triangle_multiplicative_update = len
    try:
        trimul.unpatch_openfold3()
        assert module.triangle_multiplicative_update is len
    finally:
        del module.triangle_multiplicative_update


def forward_of_another_release(self, z, mask=None, use_cueq_triangle_kernels=False):
    return z


@pytest.mark.parametrize("owner, name, value, message", [
    (module, "_cueq_triangle_mult", None, "_cueq_triangle_mult: got no such function"),
    (module, "_cueq_triangle_mult", lambda z: z, "which does not call triangle_multiplicative_update"),
    (module, "FusedTriangleMultiplicativeUpdate", None, "FusedTriangleMultiplicativeUpdate: got None"),
    (module.TriangleMultiplicativeUpdate, "forward", forward_of_another_release, "got the parameters self, z, mask, use_cueq"),
])
def test_an_unexpected_module_is_declined_and_left_alone(owner, name, value, message, monkeypatch):
    monkeypatch.setattr(owner, name, value)
    before = state()
    with pytest.raises(NotImplementedError, match=message) as caught:
        trimul.patch_openfold3(always=True)
    assert "openfold3 0.5.0" in str(caught.value)
    assert state() == before


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("inplace_safe", [False, True])
@pytest.mark.parametrize("switch", [False, True])
def test_always_serves_a_block_whatever_the_switch_says(fused, inplace_safe, switch, calls, device):
    torch.manual_seed(11)
    block = randomised(PairBlock(c_z=128, c_hidden_mul=128, c_hidden_pair_att=32, no_heads_pair=4, transition_type="swiglu", transition_n=4,
                                 pair_dropout=0.25, fuse_projection_weights=fused, inf=1e9).eval()).bfloat16().to(device)
    z = torch.randn(2, 61, 61, 128, device=device).bfloat16()
    mask = (torch.rand(2, 61, 61, device=device) > 0.3).bfloat16()
    with torch.no_grad():
        theirs = block.tri_mul_out_in(z.clone(), mask, inplace_safe=inplace_safe)
        assert not calls
        trimul.patch_openfold3(always=True)
        given = z.clone()
        ours = block.tri_mul_out_in(given, mask, inplace_safe=inplace_safe, use_cueq_triangle_kernels=switch)
    assert calls == ["outgoing", "incoming"]
    assert relative_rms(ours, theirs.double().cpu()) <= BF16_BOUND
    assert (ours is given) == (inplace_safe and not switch)
    assert torch.equal(given, z) != (inplace_safe and not switch)


@pytest.mark.parametrize("inplace_safe", [False, True])
def test_always_returns_the_bare_update_without_add(inplace_safe, calls, device):
    torch.manual_seed(12)
    update = randomised(module.TriangleMultiplicationOutgoing(128, 128).eval()).bfloat16().to(device)
    z = torch.randn(1, 61, 61, 128, device=device).bfloat16()
    with torch.no_grad():
        theirs = update(z.clone(), None, inplace_safe, False, False, False)
        trimul.patch_openfold3(always=True)
        ours = update(z.clone(), None, inplace_safe, False, False, False)
    assert calls == ["outgoing"]
    assert relative_rms(ours, theirs.double().cpu()) <= BF16_BOUND


def test_order_with_install_as_cuequivariance_where_there_is_a_gpu():
    """openfold3 decides at import, by find_spec and a GPU, to take attention from the ops package, which the stand-ins have not."""
    script = """
import sys, torch, trimul
torch.cuda.is_available = lambda: True
trimul.install_as_cuequivariance()
try:
    trimul.patch_openfold3()
except ImportError as error:
    assert error.name.startswith("cuequivariance") and "before install_as_cuequivariance()" in str(error), error
else:
    raise AssertionError("patched")
trimul.uninstall_as_cuequivariance()
trimul.patch_openfold3()
trimul.install_as_cuequivariance()
module = sys.modules["openfold3.core.model.layers.triangular_multiplicative_update"]
assert module.triangle_multiplicative_update.__module__.startswith("trimul")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
