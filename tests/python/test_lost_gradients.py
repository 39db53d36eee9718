# SPDX-License-Identifier: Apache-2.0
"""Roads on which a gradient could get lost without a word: recorded programs, torch.func over vmap, tensors that are overwritten."""

import pytest
import torch

import cases
import trimul


@pytest.fixture
def problem(rng):
    return cases.random_x(rng, "cpu", 2, 5), cases.random_parameters(rng, "cpu")


def update(x, parameters, **more):
    return trimul.triangle_multiplicative_update(x, **parameters, **more)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["export", "trace", "operator"])
def test_a_recorded_update_refuses_backward(problem, kind):
    x, parameters = problem
    call = lambda x: update(x, parameters)
    module = torch.nn.Module()
    module.forward = call
    ordered = [parameters.get(name) for name in cases.PARAMETERS]
    recorded = {
        "export": lambda: torch.export.export(module, (x,), strict=False).module(),
        "trace": lambda: torch.jit.trace(call, x),
        "operator": lambda: lambda x: torch.ops.trimul.update(x, None, *ordered, 0, 1e-5, 0, False),
    }[kind]()
    leaf = x.clone().requires_grad_()
    result = recorded(leaf)
    assert torch.equal(result, call(x)) and result.requires_grad
    with pytest.raises(NotImplementedError, match="no backward yet"):
        result.sum().backward()
    with torch.no_grad():
        assert not recorded(leaf).requires_grad


def test_grad_over_vmap(problem):
    x, parameters = problem
    over = lambda x: torch.vmap(lambda sample: update(sample, parameters))(x).square().sum()
    with pytest.raises(NotImplementedError, match="no backward yet"):
        torch.func.grad(over)(x)
    with pytest.raises(NotImplementedError, match="no backward yet"):
        over(x.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(over(x.clone().requires_grad_()), over(x))


@pytest.mark.parametrize("kind", ["out", "residual in place", "execute"])
def test_what_autograd_has_kept_may_not_be_overwritten_unseen(problem, kind):
    x, parameters = problem
    kept, weight = x.clone(), torch.ones_like(x, requires_grad=True)
    loss = (weight * kept).sum()
    if kind == "out":
        update(x, parameters, out=kept)
    elif kind == "residual in place":
        update(kept, parameters, residual=True, out=kept)
    else:
        plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=cases.served("cpu").c, has_mask=False, has_in_bias=True, has_out_bias=True)
        plan.execute(x, None, trimul.prepare_weights(**parameters), kept, torch.empty(plan.get_workspace_size(), dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tensors_of_inference_mode_are_written_as_well(problem):
    x, parameters = problem
    with torch.inference_mode():
        out = torch.empty_like(x)
    assert torch.equal(update(x, parameters, out=out), update(x, parameters))


def test_the_reference_does_not_follow_the_default_device(problem):
    x, parameters = problem
    expected = cases.reference(x, **parameters)
    with torch.device("meta"):
        assert torch.equal(cases.reference(x, **parameters), expected)


def test_a_child_may_use_the_plans_that_a_thread_of_its_parent_was_busy_with():
    code = """
import ctypes, os, threading, time
import trimul._library as L
library, stop = L.load(), False

def hammer():
    tokens = 0
    while not stop:
        tokens = tokens % 400 + 1
        L.PlanHandle(L.Problem(batch=1, tokens=tokens, c_z=32, c_hidden=32, device=L.Device(1, 0), x_dtype=2, eps=1e-5), L.make_options())

threads = [threading.Thread(target=hammer, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(200):
    child = os.fork()
    if child == 0:
        info = L.CacheInfo()
        library.trimul_plan_cache_get_info(ctypes.byref(info))
        os._exit(0)
    deadline = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        assert time.monotonic() < deadline, "a child hangs"
        time.sleep(0.0005)
stop = True
for thread in threads:
    thread.join()
"""
    cases.run_python(code)
