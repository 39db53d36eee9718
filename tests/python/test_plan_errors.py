# SPDX-License-Identifier: Apache-2.0
"""Refusals of the class API: of a plan's arguments, of its knobs, of an execute that is not the plan's."""

import itertools

import numpy
import pytest
import torch

import cases
import trimul
from test_plan import Made, Plan


def test_arguments_of_a_plan(device, rng):
    x = cases.random_x(rng, device, 5)
    for error, name, change in (
        (ValueError, "direction", {"direction": "Outgoing"}), (TypeError, "direction", {"direction": 0}), (ValueError, "eps", {"eps": 0}),
        (ValueError, "eps", {"eps": float("nan")}), (ValueError, "eps", {"eps": 1e-60}), (TypeError, "eps", {"eps": "1"}),
        (ValueError, "precision", {"precision": 99}), (ValueError, "precision", {"precision": "fp32"}), (ValueError, "c_hidden", {"c_hidden": 0}),
        (ValueError, "c_hidden", {"c_hidden": -1}), (ValueError, "c_hidden", {"c_hidden": 2**64 + 24}), (TypeError, "c_hidden", {"c_hidden": 2.0}),
        (TypeError, "residual", {"residual": "yes"}), (TypeError, "has_mask", {"has_mask": None}), (TypeError, "has_in_bias", {"has_in_bias": 0.5}),
        (TypeError, "has_out_bias", {"has_out_bias": x}), (ValueError, "implementation", {"impl": "fastest"}), (TypeError, "impl", {"impl": 1}),
        (TypeError, "knobs", {"knobs": [("threads", 1)]}), (ValueError, "'speed' is unknown", {"knobs": {"speed": 1}}),
        (TypeError, "knob threads", {"knobs": {"threads": 1.5}}), (TypeError, "knob k2_tile", {"k2_tile": True}),
    ):  # fmt: skip
        with pytest.raises(error, match=name):
            Plan(x, **change)


def test_x_of_a_plan(device, rng):
    x = cases.random_x(rng, device, 2, 5)
    for wrong in (x[0, 0], x[:, :4], x.transpose(1, 2), x[..., ::2], x.to(torch.int32), x.to(torch.complex64), torch.empty(5, 5, 0, device=device)):
        with pytest.raises(ValueError, match="^x: |c_z|C_z"):
            Plan(wrong)
    for wrong in (None, 5, [5, 5, 8], numpy.ones((5, 5, 8)), "x"):
        with pytest.raises(TypeError, match="^x: "):
            Plan(wrong)


def test_descriptors():
    Desc = trimul.TensorDesc
    for shape in ((2**64 + 5, 5, 8), (5, -1, 8)):
        with pytest.raises(ValueError, match="^shape: "):
            Desc(shape, "fp32", "cpu")
    for shape in (5, None, (5, 5.0, 8), ("5",), (True, 5, 5, 8)):
        with pytest.raises(TypeError, match="^shape: "):
            Desc(shape, "fp32", "cpu")
    for dtype in ("fp9", torch.complex64, None, 3):
        with pytest.raises(ValueError, match="^dtype: "):
            Desc((5, 5, 8), dtype, "cpu")
    for device in ("gpu", "cuda:x", "cuda:-1", "cuda:4294967296", "cuda:\u00b2", "meta", "", None):
        with pytest.raises(ValueError, match="^device: "):
            Desc((5, 5, 8), "fp32", device)
    with pytest.raises(ValueError, match="^strides: "):
        Desc((5, 5, 8), "fp32", "cpu", (1, 2))
    with pytest.raises(ValueError, match="leading dimensions"):
        Plan(Desc((2**33, 2**33, 5, 5, 8), "fp32", "cpu"))
    with pytest.raises(ValueError):
        Plan(Desc((2**40, 2**20, 2**20, 8), "fp32", "cpu"))


def test_knobs_of_the_cpu(rng):
    x = cases.random_x(rng, "cpu", 5)
    assert "threads: 1\n" in Plan(x, knobs={"threads": 1}).explain()
    assert Plan(x, knobs=trimul.TriMulKnobs(threads=1)).explain() == Plan(x, knobs={"threads": 1}).explain()
    for value in (0, -1, 4097, 2**31, 2**63, 2**64 + 1, -(2**70)):
        plan = Plan(x, knobs={"threads": value})
        for call in (plan.check_support, plan.compile, plan.explain, plan.get_workspace_size):
            with pytest.raises(NotImplementedError, match="threads"):
                call()
    with pytest.raises(ValueError, match="k2_tile"):
        Plan(x, k2_tile=1).check_support()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_knobs_of_a_gpu(rng):
    x = cases.random_x(rng, "cuda", 64)
    recommended = trimul.heuristics.recommend(64, 128, 1, "outgoing", arch=None)
    Plan(x, knobs=recommended).check_support()
    made, parameters = Plan(x, k2_tile=0, has_mask=False), cases.random_parameters(rng, "cuda", ())
    out, weights = torch.empty_like(x), trimul.prepare_weights(**parameters)
    made.execute(x, None, weights, out, torch.empty(made.get_workspace_size(), dtype=torch.uint8, device="cuda"))
    assert torch.equal(out, trimul.triangle_multiplicative_update(x, **parameters))
    with pytest.raises(NotImplementedError, match="k2_tile"):
        Plan(x, k2_tile=99).check_support()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_knobs_of_the_portable_implementation_on_a_gpu(rng):
    x, parameters = cases.random_x(rng, "cuda", 40, c_z=48, dtype=torch.float32), cases.random_parameters(rng, "cuda", (), c_z=48, c=40, dtype=torch.float32)
    recommended = trimul.heuristics.recommend(40, 40, c_z=48, dtype="float32", arch=None)
    assert recommended.as_dict().keys() == {"k1_tile", "k2_tile", "k3_tile"}
    expected = trimul.triangle_multiplicative_update(x, **parameters)
    for k1, k2, k3 in itertools.product(range(3), range(2), range(3)):
        made = Plan(x, c_hidden=40, has_mask=False, precision="tf32x3", impl="cuda:sm80", knobs={"k1_tile": k1, "k2_tile": k2, "k3_tile": k3})
        weights = trimul.prepare_weights(**parameters, impl="cuda:sm80")
        out, workspace = torch.empty_like(x), torch.empty(made.get_workspace_size(), dtype=torch.uint8, device="cuda")
        made.execute(x, None, weights, out, workspace)
        assert torch.equal(out, expected)
    with pytest.raises(ValueError, match="k1_parts"):
        Plan(x, c_hidden=40, knobs={"k1_parts": 1}).check_support()
    with pytest.raises(NotImplementedError, match="k3_tile"):
        Plan(x, c_hidden=40, knobs={"k3_tile": 3}).check_support()


def test_knobs_are_values():
    knobs = trimul.TriMulKnobs(k2_tile=1, threads=None)
    assert knobs.as_dict() == {"k2_tile": 1} and knobs.threads is None and knobs == trimul.TriMulKnobs(k2_tile=1)
    assert knobs.replace(threads=2) == trimul.TriMulKnobs(threads=2, k2_tile=1) and hash(knobs) == hash(trimul.TriMulKnobs(k2_tile=1))
    assert knobs != trimul.TriMulKnobs(k2_tile=2) and repr(knobs) == "TriMulKnobs(k2_tile=1)"
    with pytest.raises(AttributeError, match="immutable"):
        knobs.k2_tile = 2
    with pytest.raises(ValueError, match="unknown"):
        trimul.TriMulKnobs(tile=1)


GPU_ARCHITECTURES = "" if trimul.build_info()["cuda"] == "none" else trimul.build_info()["cuda"]


def test_recommend():
    recommend = trimul.heuristics.recommend
    assert recommend(100, device="cpu").as_dict().keys() == {"threads"}
    if GPU_ARCHITECTURES:
        for arch in ("sm80", "sm86", "sm89", "sm90", "sm100", "sm120"):
            for dtype, width in (("fp32", 64), ("fp16", 128), ("bf16", 384)):
                assert recommend(300, width, dtype=dtype, arch=arch).as_dict().keys() == {"k1_tile", "k2_tile", "k3_tile"}
            assert recommend(300, arch=arch, implementation="cuda:sm80") == recommend(300, arch=arch, implementation="cuda:sm80", direction="incoming")
        assert recommend(300, 64, arch="sm80") == trimul.TriMulKnobs(**recommend(300, 64, arch="sm80").as_dict())
        with pytest.raises(NotImplementedError, match="cuda:sm80"):
            recommend(300, dtype="fp64")
    if "90" in GPU_ARCHITECTURES:
        for arguments in ((64, 128, 1), (500, 128, 4, "incoming"), (2048, 128, 7)):
            assert recommend(*arguments).as_dict().keys() == {"k1_parts", "k2_tile", "overlap"}
            assert recommend(*arguments, arch="sm89").as_dict().keys() == {"k1_tile", "k2_tile", "k3_tile"}
        assert recommend(300, 128, 9) == recommend(300, 128, 4)
    for error, arguments in (
        (ValueError, {"N": -1}), (ValueError, {"N": 2**64 + 64}), (TypeError, {"N": 64.0}), (TypeError, {"N": "64"}), (TypeError, {"N": 64, "c": None}),
        (ValueError, {"N": 64, "c": 0}), (ValueError, {"N": 64, "B": -1}), (ValueError, {"N": 64, "direction": "o"}), (ValueError, {"N": 64, "arch": "sm13"}),
        (TypeError, {"N": 64, "arch": 90}), (ValueError, {"N": 64, "implementation": "x"}), (TypeError, {"N": 64, "implementation": 1}),
        (ValueError, {"N": 64, "dtype": "fp9"}), (ValueError, {"N": 64, "device": "tpu"}), (NotImplementedError, {"N": 64, "implementation": "cpu"}),
    ):  # fmt: skip
        with pytest.raises(error):
            recommend(**arguments)


def test_prepare_weights(device, rng):
    parameters = cases.random_parameters(rng, device)
    for name in cases.PROJECTIONS:
        with pytest.raises(ValueError, match=f"^{name}: is missing"):
            trimul.prepare_weights(**{**parameters, name: None})
    for name, value in parameters.items():
        for wrong in (value[:-1], value[None], value.to(torch.int32), value.to(torch.complex64), value.to("meta"), value.to_sparse()):
            with pytest.raises(ValueError, match="_weight|_bias" if name == "p_in_weight" else name):
                trimul.prepare_weights(**{**parameters, name: wrong})
        for wrong in ([1.0], numpy.ones(3), 1):
            with pytest.raises(TypeError, match=f"^{name}: "):
                trimul.prepare_weights(**{**parameters, name: wrong})
    for error, change in (
        (ValueError, {"impl": "fastest"}), (TypeError, {"impl": 1}), (ValueError, {"dtype": "fp9"}), (ValueError, {"dtype": torch.int32}),
    ):  # fmt: skip
        with pytest.raises(error):
            trimul.prepare_weights(**parameters, **change)
    if device == "cpu":
        with pytest.raises(NotImplementedError):
            trimul.prepare_weights(**parameters, impl="cuda:sm80")


def test_execute_of_something_else(device, rng):
    made = Made(device, rng)
    x, mask, out = made.x, made.mask, made.out
    other_rng = torch.Generator().manual_seed(1)
    c_z, c = made.served.c_z, made.served.c
    cases_of = [
        ("mask", {"mask": None}), ("mask", {"mask": mask[:, :-1]}), ("mask", {"mask": mask.to(torch.complex64)}), ("mask", {"mask": mask.to("meta")}),
        ("x", {"x": x[:1]}), ("x", {"x": x[:, :-1, :-1].contiguous()}), ("x", {"x": x[..., :-1].contiguous()}), ("x", {"x": x.half()}),
        ("x", {"x": x.transpose(1, 2)}), ("x", {"x": x[0, 0]}), ("x", {"x": x.to(torch.int32)}), ("x", {"x": x.to_sparse()}),
        ("out", {"out": out[:1]}), ("out", {"out": out.double()}), ("out", {"out": out.transpose(1, 2)}), ("out", {"out": x}),
        ("out", {"out": out.to("meta")}), ("out", {"out": torch._neg_view(out)}), ("x", {"x": torch._neg_view(x)}),
        ("weights", {"weights": trimul.prepare_weights(**cases.random_parameters(other_rng, device, ()))}),
        ("weights", {"weights": trimul.prepare_weights(**cases.random_parameters(other_rng, device, ("p_in_bias",)))}),
        ("workspace", {"workspace": None}), ("workspace", {"workspace": made.workspace[:-1]}), ("workspace", {"workspace": made.workspace[:0]}),
        ("workspace", {"workspace": made.workspace.to("meta")}), ("workspace", {"workspace": torch.empty_like(made.workspace.repeat(2))[::2]}),
    ]  # fmt: skip
    if device == "cpu":
        cases_of += [
            ("weights", {"weights": trimul.prepare_weights(**cases.random_parameters(other_rng, device, c_z=c_z, c=c + 1))}),
            ("weights", {"weights": trimul.prepare_weights(**cases.random_parameters(other_rng, device, c_z=c_z + 1, c=c))}),
            ("weights", {"weights": trimul.prepare_weights(**made.parameters, impl="reference")}), ("current_stream", {"current_stream": 1}),
        ]  # fmt: skip
    memory = torch.empty(made.workspace.numel() + 512, dtype=torch.uint8, device=device)
    aligned = -memory.data_ptr() % 256
    cases_of += [("workspace", {"workspace": memory[aligned + k : aligned + k + made.workspace.numel()]}) for k in (1, 2, 8, 32)]
    for name, change in cases_of:
        with pytest.raises(ValueError, match=rf"\b{name}"):
            made.execute(**change)
    with pytest.raises(ValueError, match="^mask: "):
        Made(device, rng, mask=False).execute(mask=mask)
    assert torch.isnan(out).all()
    made.execute(workspace=memory[aligned + 64 : aligned + 64 + made.workspace.numel()] if device == "cpu" else made.workspace)
    cases.assert_matches(out, cases.reference(x, mask=mask, **made.parameters))


def test_execute_of_wrong_types(device, rng):
    made = Made(device, rng)
    for name in ("x", "mask", "out", "workspace", "weights"):
        for wrong in (1, "x", [made.x], numpy.ones(3), made.plan, *((None,) if name in ("x", "out", "weights") else ())):
            with pytest.raises(TypeError, match=f"^{name}: "):
                made.execute(**{name: wrong})
    with pytest.raises(TypeError, match="^current_stream: "):
        made.execute(current_stream="0")


def test_aliasing(device, rng):
    """Every pair of out, workspace, x and mask; weights are a private copy."""
    made = Made(device, rng, tokens=5)
    size, served = made.plan.get_workspace_size(), made.served
    memory = torch.zeros(2 * size + (1 << 20), dtype=torch.uint8, device=device)
    memory = memory[-memory.data_ptr() % 256 :]
    used = made.x.numel() * made.x.element_size()
    x = memory[:used].view(served.dtype).view(made.x.shape)
    x.copy_(made.x)
    last = (used - 64) // 256 * 256
    for change in ({"out": x}, {"workspace": memory[last : last + size]}):
        with pytest.raises(ValueError, match=r"\bx\b"):
            made.execute(x=x, **change)
    mask = memory[:200].view(torch.float32).view(2, 5, 5)
    for change in ({"out": memory[128 : 128 + used].view(served.dtype).view(x.shape)}, {"workspace": memory[:size]}):
        with pytest.raises(ValueError, match="mask"):
            made.execute(mask=mask, **change)
    out = memory[size - 64 : size - 64 + used].view(served.dtype).view(x.shape) if device == "cuda" else memory[512 : 512 + used].view(served.dtype).view(x.shape)
    with pytest.raises(ValueError, match="out: .*workspace|workspace: .*out"):
        made.execute(out=out, workspace=memory[:size])


def test_unsupported_plans_tell_why():
    x = trimul.TensorDesc((5, 5, 8), "fp32", "cpu")
    for change in ({"impl": "cuda:sm90"}, {"impl": "cuda:sm80"}, {"precision": "mxfp8"}):
        plan = Plan(x, **change)
        for call in (plan.check_support, plan.compile, plan.get_workspace_size, plan.traffic_bytes, plan.explain, lambda p=plan: p.execute(1, 2, 3, 4, 5)):
            with pytest.raises(NotImplementedError, match="declined|no implementation"):
                call()
    if not torch.cuda.is_available():
        with pytest.raises(NotImplementedError, match="device: cuda:0 was asked for"):
            Plan(trimul.TensorDesc((5, 5, 128), "bf16", "cuda")).check_support()
