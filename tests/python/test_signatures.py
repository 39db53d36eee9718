# SPDX-License-Identifier: Apache-2.0
"""Names, order, defaults and kinds of what users call. A change here is a change of the interface."""

import inspect

import pytest

import cases
import trimul

TWELVE = tuple((name, None) for name in cases.PARAMETERS)
NEEDED = inspect.Parameter.empty


def described(function):
    """((name, default) of those that may be positional, (name, default) of the keyword-only ones)."""
    kinds = inspect.Parameter
    parameters = inspect.signature(function).parameters.values()
    assert all(p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY) for p in parameters)
    by_kind = lambda kind: tuple((p.name, p.default) for p in parameters if p.kind is kind)
    return by_kind(kinds.POSITIONAL_OR_KEYWORD), by_kind(kinds.KEYWORD_ONLY)


def test_drop_in():
    expected = (
        (("x", NEEDED), ("direction", "outgoing"), ("mask", None), *TWELVE, ("eps", 1e-5), ("precision", None)),
        (("out", None), ("stream", None), ("residual", False)),
    )
    assert described(trimul.triangle_multiplicative_update) == expected
    assert trimul.torch.triangle_multiplicative_update is trimul.triangle_multiplicative_update


def test_reference():
    positional, keywords = described(trimul.reference.triangle_multiplicative_update_reference)
    assert positional == described(trimul.triangle_multiplicative_update)[0]
    assert keywords == (("residual", False), ("rounding", "kernel"))


def test_class_api():
    assert described(trimul.prepare_weights) == (TWELVE, (("dtype", None), ("impl", None)))
    plan = trimul.TriangleMultiplicativeUpdateFwd
    assert described(plan) == (
        (("x", NEEDED), ("direction", "outgoing"), ("c_hidden", None), ("has_mask", True), ("has_in_bias", False), ("has_out_bias", False),
         ("eps", 1e-5), ("precision", None), ("residual", False), ("impl", None), ("k2_tile", None), ("knobs", None)),
        (),
    )  # fmt: skip
    tensors = tuple((name, NEEDED) for name in ("self", "x", "mask", "weights", "out", "workspace"))
    assert described(plan.execute) == ((*tensors, ("current_stream", None)), ())
    assert described(plan.make_cuda_graph) == (tensors, ())
    for name in ("check_support", "compile", "get_workspace_size", "traffic_bytes", "explain"):
        assert described(getattr(plan, name)) == ((("self", NEEDED),), ()), name
    assert described(trimul.TensorDesc) == ((("shape", NEEDED), ("dtype", NEEDED), ("device", "cuda"), ("strides", None)), ())


def test_recommend():
    positional, keywords = described(trimul.heuristics.recommend)
    assert positional == (("N", NEEDED), ("c", 128), ("B", 1), ("direction", "outgoing"))
    assert {name for name, _ in keywords} == {"c_z", "dtype", "implementation", "device", "arch"}


def test_module():
    positional, keywords = described(trimul.nn.TriangleMultiplicativeUpdate)
    assert positional == (("c_z", NEEDED), ("c_hidden", None), ("direction", "outgoing"), ("bias", False))
    assert keywords == (("eps", 1e-5), ("precision", None), ("device", None), ("dtype", None))
    assert described(trimul.nn.TriangleMultiplicativeUpdate.forward) == ((("self", NEEDED), ("x", NEEDED), ("mask", None)), (("residual", False),))


def test_precision_has_the_numbers_of_the_peer():
    assert {p.name: int(p) for p in trimul.TriMulPrecision} == {
        "NONE": -1, "DEFAULT": 0, "TF32": 1, "TF32x3": 2, "IEEE": 3, "MXFP8": 4, "BFLOAT16": 5,
    }  # fmt: skip


def test_names_of_the_package():
    for name in ("triangle_multiplicative_update", "TriMulPrecision", "prepare_weights", "TriangleMultiplicativeUpdateFwd", "TensorDesc", "TriMulKnobs",
                 "install_as_cuequivariance", "uninstall_as_cuequivariance", "plan_cache_info", "clear_plan_cache", "build_info"):  # fmt: skip
        assert name in trimul.__all__
        assert name in dir(trimul)
    with pytest.raises(AttributeError, match="no_such_name"):
        trimul.no_such_name
