# SPDX-License-Identifier: Apache-2.0
"""The class API: what a plan computes, tells and caches."""

import concurrent.futures
import copy
import pickle
import threading

import pytest
import torch

import cases
import trimul

Plan = trimul.TriangleMultiplicativeUpdateFwd


class Made:
    """A plan with everything an execute takes."""

    def __init__(self, device, rng, *, mask=True, biases=cases.PROJECTION_BIASES, tokens=9, batch=2, **kwargs):
        self.device, self.served = device, cases.served(device)
        self.x = cases.random_x(rng, device, batch, tokens)
        self.mask = cases.random_mask(rng, device, batch, tokens, tokens) if mask else None
        self.parameters = cases.random_parameters(rng, device, biases)
        flags = {"has_in_bias": bool({"p_in_bias", "g_in_bias"} & set(biases)), "has_out_bias": bool({"p_out_bias", "g_out_bias"} & set(biases))}
        self.plan = Plan(self.x, c_hidden=self.served.c, has_mask=mask, **flags, **kwargs)
        self.weights = trimul.prepare_weights(**self.parameters)
        self.out = torch.full_like(self.x, float("nan"))
        self.workspace = self.new_workspace()

    def new_workspace(self):
        return torch.full((self.plan.get_workspace_size(),), 0xFF, dtype=torch.uint8, device=self.device)

    def execute(self, **changed):
        arguments = {name: getattr(self, name) for name in ("x", "mask", "weights", "out", "workspace")}
        self.plan.execute(**{**arguments, **changed})
        return changed.get("out", self.out)


@pytest.mark.parametrize("direction", cases.DIRECTIONS)
@pytest.mark.parametrize("biases", [(), ("p_in_bias",), ("g_out_bias",), cases.PROJECTION_BIASES], ids=str)
@pytest.mark.parametrize("mask", [False, True])
def test_the_drop_in_is_bitwise_the_same(device, rng, direction, biases, mask):
    """And finds the plan in the cache the second time."""
    made = Made(device, rng, direction=direction, biases=biases, mask=mask)
    result = made.execute()
    cases.assert_matches(result, cases.reference(made.x, direction, made.mask, **made.parameters))
    call = lambda: trimul.triangle_multiplicative_update(made.x, direction, made.mask, **made.parameters)
    assert torch.equal(call(), result)
    before = trimul.plan_cache_info()
    assert torch.equal(call(), result)
    after = trimul.plan_cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_residual_in_place(device, rng):
    made = Made(device, rng, residual=True)
    expected = cases.assert_update(made.x, mask=made.mask, residual=True, **made.parameters)
    assert torch.equal(made.execute(), expected)
    x = made.x.clone()
    assert torch.equal(made.execute(x=x, out=x), expected)


def test_an_execute_depends_on_nothing_else(device, rng):
    """Neither on what the workspace holds nor on earlier executes; inputs stay."""
    made = Made(device, rng)
    kept = made.x.clone(), made.mask.clone()
    first = made.execute().clone()
    cases.assert_matches(first, cases.reference(made.x, mask=made.mask, **made.parameters))
    for fill in (0, 0x7F, 0xFF):
        made.workspace.fill_(fill)
        assert torch.equal(made.execute(out=torch.full_like(made.x, float("inf"))), first)
    assert torch.equal(made.x, kept[0]) and torch.equal(made.mask, kept[1])


def test_mask_forms(device, rng):
    made = Made(device, rng)
    expected = made.execute().clone()
    cases.assert_matches(expected, cases.reference(made.x, mask=made.mask, **made.parameters))
    for mask in (made.mask.bool(), made.mask.long(), made.mask[..., None], made.mask.mT.contiguous().mT, made.mask.half()):
        assert torch.equal(made.execute(mask=mask), expected)
    shared = made.execute(mask=made.mask[0]).clone()
    assert torch.equal(made.execute(mask=made.mask[:1].expand(2, -1, -1)), shared) and not torch.equal(shared, expected)


def test_weights_serve_many_plans(device, rng):
    """Other sizes, directions, masks, eps: one packing."""
    made = Made(device, rng)
    for tokens in (3, 17):
        for direction in cases.DIRECTIONS:
            x = cases.random_x(rng, device, tokens)
            plan = Plan(x, direction, made.served.c, has_mask=False, has_in_bias=True, has_out_bias=True, eps=1e-3)
            out, workspace = torch.empty_like(x), torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
            plan.execute(x, None, made.weights, out, workspace)
            assert torch.equal(out, cases.assert_update(x, direction, eps=1e-3, **made.parameters))


def test_descriptors_make_the_same_plan(device, rng):
    made = Made(device, rng)
    before = trimul.plan_cache_info()
    for dtype in (made.x.dtype, str(made.x.dtype).removeprefix("torch."), {torch.float32: "fp32", torch.bfloat16: "BF16".lower()}[made.x.dtype]):
        for place in (made.x.device, str(made.x.device), device):
            plan = Plan(trimul.TensorDesc(made.x.shape, dtype, place), c_hidden=made.served.c, has_in_bias=True, has_out_bias=True)
            assert plan.explain() == made.plan.explain()
    after = trimul.plan_cache_info()
    assert (after.hits, after.misses) == (before.hits + 9, before.misses)


def test_descriptors_are_values(device):
    desc = trimul.TensorDesc((2, 5, 5, 8), torch.bfloat16, torch.device(device), (200, 40, 8, 1))
    for again in (copy.copy(desc), copy.deepcopy(desc), pickle.loads(pickle.dumps(desc))):
        assert (again.shape, again.dtype, again.device, again.strides) == (desc.shape, desc.dtype, desc.device, desc.strides)
    with pytest.raises(AttributeError, match="immutable"):
        desc.shape = (1,)
    assert desc.is_contiguous() and not trimul.TensorDesc((2, 3), "fp32", device, (1, 2)).is_contiguous()
    assert trimul.TensorDesc((1, 3), "fp32", device, (77, 1)).is_contiguous()
    of = trimul.TensorDesc.of(torch.empty(2, 3, device=device).mT)
    assert (of.shape, of.strides) == ((3, 2), (1, 3))


def test_what_decides_a_plan(device, rng):
    """Each argument alone makes another plan; the same again is a hit."""
    served = cases.served(device)
    x = cases.random_x(rng, device, 7)
    base = {"direction": "outgoing", "c_hidden": served.c}
    others = [{}, {"direction": "incoming"}, {"has_mask": False}, {"has_in_bias": True}, {"has_out_bias": True}, {"eps": 1e-6}, {"residual": True}]
    others += [{"c_hidden": served.c + 1}, {"precision": "ieee"}, {"precision": "bf16"}]
    others += [{"impl": "reference"}, {"knobs": {"threads": 1}}] if device == "cpu" else [{"impl": "cuda:sm80"}, {"knobs": {"k2_tile": 0}}]
    trimul.clear_plan_cache()
    plans = [Plan(x, **{**base, **other}) for other in others]
    assert len({plan.explain() + str(plan._handle) for plan in plans}) == len(others)
    info = trimul.plan_cache_info()
    assert (info.hits, info.misses) == (0, len(others))
    for other in others:
        Plan(x, **{**base, **other}).compile()
    info = trimul.plan_cache_info()
    assert (info.hits, info.misses, info.entries) == (len(others), len(others), len(others))


def test_the_cache_is_bounded(device):
    served = cases.served(device)
    trimul.clear_plan_cache()
    capacity = trimul.plan_cache_info().capacity
    for tokens in range(1, capacity + 20):
        Plan(trimul.TensorDesc((tokens, tokens, served.c_z), served.dtype, device), c_hidden=served.c).compile()
    info = trimul.plan_cache_info()
    assert 0 < info.entries <= capacity == info.capacity and info.misses == capacity + 19


def test_what_a_plan_tells(device, rng):
    made = Made(device, rng, tokens=64)
    c_z, c, pairs, width = made.served.c_z, made.served.c, 2 * 64 * 64, made.x.element_size()
    assert made.plan.traffic_bytes() == pairs * (width * (3 * c_z + 6 * c) + 2)
    assert made.plan.flop() == 8 * pairs * c_z * c + 2 * c * 64 * pairs + 2 * pairs * c_z * (c + c_z)
    assert made.plan.implementation == cases.implementation_of(device)
    for text in ("B=2 N=64", f"C_z={c_z} C={c}", "outgoing", f"implementation: {made.plan.implementation}", "workspace_bytes: "):
        assert text in made.plan.explain()
    # The ceilings that a floor needs have been measured on one GPU.
    assert (made.plan.floor_us() > 0) == (device == "cuda" and torch.cuda.get_device_name() == "NVIDIA H200")
    assert "B=2 N=64" in repr(made.plan) and f"C={c}" in repr(made.weights)
    assert made.weights.nbytes > 0 and made.weights.implementation == made.plan.implementation
    assert (made.weights.c_z, made.weights.c_hidden, made.weights.has_in_bias, made.weights.has_out_bias) == (c_z, c, True, True)


def test_traffic_of_the_square_problem():
    """18 N^2 C B for 16-bit x with C = C_z, and 2 B N^2 for a mask."""
    for has_mask in (False, True):
        plan = Plan(trimul.TensorDesc((3, 50, 50, 128), "bf16", "cpu"), has_mask=has_mask)
        assert plan.traffic_bytes() == 18 * 2500 * 128 * 3 + (2 * 3 * 2500 if has_mask else 0)


def test_empty(device, rng):
    served = cases.served(device)
    for shape in ((0, 4, 4), (0, 0), (2, 0, 0)):
        x = torch.empty(*shape, served.c_z, dtype=served.dtype, device=device)
        plan = Plan(x, c_hidden=served.c, has_mask=False)
        workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
        plan.execute(x, None, trimul.prepare_weights(**cases.random_parameters(rng, device, ())), torch.empty_like(x), workspace)


@pytest.mark.parametrize("threads", [4])
def test_threads_share_a_plan(device, rng, threads):
    """Each with its own x, out and workspace; compiled by whoever comes first."""
    made = Made(device, rng, tokens=33)
    xs = [cases.random_x(rng, device, 2, 33) for _ in range(threads)]
    expected = [cases.assert_update(x, mask=made.mask, **made.parameters) for x in xs]
    for _ in range(5):
        plan = Plan(made.x, c_hidden=made.served.c, has_in_bias=True, has_out_bias=True)

        def work(k, plan=plan):
            out, workspace = torch.empty_like(xs[k]), made.new_workspace()
            for _ in range(10):
                plan.execute(xs[k], made.mask, made.weights, out.fill_(float("nan")), workspace)
                drop_in = trimul.triangle_multiplicative_update(xs[k], mask=made.mask, **made.parameters)
                assert torch.equal(out, expected[k]) and torch.equal(drop_in, expected[k])

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))


def test_a_plan_that_is_being_executed_is_not_replaced(device, rng, monkeypatch):
    """Two threads compile at a time; the second comes to its end after the first one has begun to use what it made."""
    from trimul import _library

    made = Made(device, rng)
    both_are_there, first_has_one = threading.Barrier(2), threading.Event()

    class SlowHandle(_library.PlanHandle):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if both_are_there.wait(timeout=30) == 0:
                first_has_one.wait(timeout=30)

    monkeypatch.setattr(_library, "PlanHandle", SlowHandle)
    plan = Plan(made.x, c_hidden=made.served.c, has_in_bias=True, has_out_bias=True)
    found = []

    def compile_it():
        plan.compile()
        found.append((plan._handle, plan._plan))
        first_has_one.set()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: compile_it(), range(2)))
    assert len(found) == 2 and found[0] == found[1]
    plan.execute(made.x, made.mask, made.weights, made.out, made.workspace)
    assert torch.equal(made.out, trimul.triangle_multiplicative_update(made.x, mask=made.mask, **made.parameters))


def test_cuda_graph(device, rng):
    made = Made(device, rng)
    if device == "cpu":
        with pytest.raises(NotImplementedError, match="graph"):
            made.plan.make_cuda_graph(made.x, made.mask, made.weights, made.out, made.workspace)
        return
    graph = made.plan.make_cuda_graph(made.x, made.mask, made.weights, made.out, made.workspace)
    for _ in range(2):
        made.x.copy_(cases.random_x(rng, device, 2, 9))
        made.mask.copy_(cases.random_mask(rng, device, 2, 9, 9))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(made.out, trimul.triangle_multiplicative_update(made.x, mask=made.mask, **made.parameters))
