# SPDX-License-Identifier: Apache-2.0
"""Arguments that are no tensors: precision, eps, direction, residual, stream, autocast."""

import enum
import math

import pytest
import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


class Foreign(enum.Enum):
    """As a model may have imported it from another library."""

    DEFAULT = 0
    IEEE = 3
    BFLOAT16 = 5
    NAMED = "bf16"


class ForeignInt(enum.IntEnum):
    NONE = -1
    IEEE = 3


@pytest.fixture
def problem(device, rng):
    return cases.random_x(rng, device, 5), cases.random_parameters(rng, device)


def test_default_precision_in_every_spelling(problem):
    x, parameters = problem
    expected = cases.assert_update(x, **parameters)
    for precision in (None, "default", "DEFAULT", "none", "None", -1, 0, trimul.TriMulPrecision.NONE, trimul.TriMulPrecision.DEFAULT, Foreign.DEFAULT,
                      ForeignInt.NONE):  # fmt: skip
        assert torch.equal(update(x, precision=precision, **parameters), expected), precision


def test_other_precisions_on_the_cpu(rng):
    """Served in fp32 there; bf16 casts."""
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    expected = cases.assert_update(x, **parameters)
    for precision in ("tf32", "TF32", 1, "tf32x3", "TF32x3", "Tf32X3", 2, "ieee", "IEEE", 3, Foreign.IEEE, ForeignInt.IEEE, trimul.TriMulPrecision.TF32):
        assert torch.equal(update(x, precision=precision, **parameters), expected), precision
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for precision in ("bfloat16", "BFloat16", "bf16", "BF16", 5, Foreign.BFLOAT16, Foreign.NAMED, trimul.TriMulPrecision.BFLOAT16):
            result = update(x.to(dtype), precision=precision, **parameters)
            assert result.dtype is torch.bfloat16
            assert torch.equal(result, cases.assert_update(x.to(dtype).bfloat16(), **parameters)), (dtype, precision)


def test_precision_that_does_not_exist(problem):
    x, parameters = problem
    for precision in ("tf33", "", "fp32", "tf32 ", 6, 99, -2, 10**30, True, False):
        with pytest.raises(ValueError, match="^precision: .*'tf32x3'"):
            update(x, precision=precision, **parameters)
    for precision in (1.0, b"tf32", [1], torch.tensor(1), object()):
        with pytest.raises(TypeError, match="^precision: "):
            update(x, precision=precision, **parameters)


def test_mxfp8_is_not_served(problem):
    x, parameters = problem
    for precision in ("mxfp8", 4, trimul.TriMulPrecision.MXFP8):
        with pytest.raises(NotImplementedError, match="mxfp8"):
            update(x, precision=precision, **parameters)


def test_eps(problem):
    x, parameters = problem
    for eps in (0, 0.0, -1e-5, -0.0, math.nan, math.inf, -math.inf, 1e-60, 1e39, 10**400):
        with pytest.raises(ValueError, match="eps: is"):
            update(x, eps=eps, **parameters)
    for eps in ("1e-5", None, True, [1e-5], 1j, torch.tensor(1e-5)):
        with pytest.raises(TypeError, match="^eps: is"):
            update(x, eps=eps, **parameters)
    assert torch.equal(update(x, eps=1, **parameters), cases.assert_update(x, eps=1.0, **parameters))


def test_direction(problem):
    x, parameters = problem
    assert not torch.equal(update(x, "outgoing", **parameters), update(x, "incoming", **parameters))
    for direction in ("Outgoing", "INCOMING", "", "out", "outgoing "):
        with pytest.raises(ValueError, match="^direction: .*'outgoing' or 'incoming'"):
            update(x, direction, **parameters)
        with pytest.raises(ValueError, match="^direction: "):
            update(x, direction, out=torch.empty_like(x), **parameters)
    for direction in (None, 0, True, ["outgoing"], b"outgoing"):
        with pytest.raises(TypeError, match="^direction: "):
            update(x, direction, **parameters)


def test_residual_is_a_flag(problem):
    x, parameters = problem
    for residual in (None, "no", 0.5, [True], x):
        with pytest.raises(TypeError, match="^residual: "):
            update(x, residual=residual, **parameters)


def test_stream_on_the_cpu(rng):
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    for stream in (0, 1, "s"):
        with pytest.raises(ValueError, match="^stream: "):
            update(x, stream=stream, **parameters)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_stream_on_a_gpu(rng):
    x, parameters = cases.random_x(rng, "cuda", 33), cases.random_parameters(rng, "cuda")
    expected = cases.assert_update(x, **parameters)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for stream in (side, side.cuda_stream):
        result = update(x, stream=stream, **parameters)
        side.synchronize()
        assert torch.equal(result, expected)
    for stream in ("s", 1.5, True):
        with pytest.raises(TypeError, match="^stream: "):
            update(x, stream=stream, **parameters)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_x_once(rng, dtype):
    parameters = cases.random_parameters(rng, "cpu")
    for given in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = cases.random_x(rng, "cpu", 5, dtype=given)
        expected = cases.assert_update(x.to(dtype), **parameters)
        with torch.autocast("cpu", dtype=dtype):
            result = update(x, **parameters)
            out = update(x, out=torch.empty_like(expected), **parameters)
            with torch.autocast("cpu", enabled=False):
                assert update(x, **parameters).dtype is given
            with pytest.raises(ValueError, match="^out: "):
                update(x, out=torch.empty_like(x, dtype=torch.float64), **parameters)
        assert result.dtype is dtype and torch.equal(result, expected) and torch.equal(out, expected)


def test_autocast_of_another_device_does_nothing(rng):
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    with torch._C._DisableAutocast(), torch.autocast("cpu", enabled=False):
        torch.set_autocast_enabled("cuda", True)
        try:
            assert update(x, **parameters).dtype is torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)


def test_autocast_does_not_repair_an_integer_x(rng):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="^x: dtype"):
        update(torch.ones(5, 5, 16, dtype=torch.int32), **cases.random_parameters(rng, "cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_autocast_on_a_gpu(rng):
    x, parameters = cases.random_x(rng, "cuda", 9, dtype=torch.float32), cases.random_parameters(rng, "cuda", dtype=torch.float32)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = update(x, **parameters)
    assert result.dtype is torch.bfloat16 and torch.equal(result, cases.assert_update(x.bfloat16(), **parameters))
