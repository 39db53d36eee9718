# SPDX-License-Identifier: Apache-2.0
"""What only a GPU has: graphs, streams, several devices, its allocator. bf16 and C_z = C = 128 where nothing else is said."""

import threading

import pytest
import torch

import cases
import trimul

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
several_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def problem(rng, tokens, device="cuda", batch=1):
    x = cases.random_x(rng, device, batch, tokens) if device == "cuda" else cases.random_x(rng, "cuda", batch, tokens).to(device)
    mask = cases.random_mask(rng, device, batch, tokens, tokens)
    parameters = {name: value.to(device) for name, value in cases.random_parameters(rng, "cuda").items()}
    return x, mask, parameters


def update(x, mask, parameters, **more):
    return trimul.triangle_multiplicative_update(x, mask=mask, **parameters, **more)


def busy(stream, milliseconds=20):
    """Work in front of what is tested on a stream, so that an order that is not kept shows."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(milliseconds * 1.8e6))


@pytest.mark.parametrize("tokens", [1, 33, 100, 128, 217])
def test_a_captured_call_follows_x_mask_and_weights(rng, tokens):
    """Captured after one call, as users do; the replay reads what the tensors hold then."""
    x, mask, parameters = problem(rng, tokens)
    update(x, mask, parameters)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = update(x, mask, parameters)
    for _ in range(3):
        fresh = problem(rng, tokens)
        x.copy_(fresh[0])
        mask.copy_(fresh[1])
        for name, value in parameters.items():
            value.copy_(fresh[2][name])
        graph.replay()
        assert torch.equal(out, update(*fresh))


def test_the_first_call_of_a_shape_may_be_a_captured_one(rng):
    x, mask, parameters = problem(rng, 59)
    update(*problem(rng, 8))  # the allocator and the libraries, as in a model's first layers
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = update(x, mask, parameters)
    graph.replay()
    assert torch.equal(out, update(x, mask, parameters))


def test_a_graph_of_a_plan_keeps_its_tensors_and_follows_them(rng):
    x, mask, parameters = problem(rng, 64)
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, has_in_bias=True, has_out_bias=True)
    out = torch.full_like(x, float("nan"))
    graph = plan.make_cuda_graph(
        x, mask, trimul.prepare_weights(**parameters), out, torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device="cuda")
    )
    for _ in range(2):
        graph.replay()
        assert torch.equal(out, update(x, mask, parameters))
        x.copy_(cases.random_x(rng, "cuda", 1, 64))
        torch.empty(1 << 24, device="cuda").fill_(float("nan"))  # into memory that nobody keeps


@pytest.mark.parametrize("priority", [0, -1])
def test_a_call_belongs_to_the_current_stream(rng, priority):
    """x is written late on the stream that the call is made on; the result is read on it."""
    source, mask, parameters = problem(rng, 128)
    expected = update(source, mask, parameters)
    stream = torch.cuda.Stream(priority=priority)
    x = torch.zeros_like(source)
    torch.cuda.synchronize()
    for _ in range(5):
        busy(stream)
        with torch.cuda.stream(stream):
            x.copy_(source)
            out = update(x, mask, parameters)
            kept = out.clone()
            x.zero_()
        stream.synchronize()
        assert torch.equal(kept, expected)


@pytest.mark.parametrize("kind", ["handle", "stream"])
def test_the_stream_argument(rng, kind):
    source, mask, parameters = problem(rng, 96)
    expected = update(source, mask, parameters)
    stream = torch.cuda.Stream()
    x, out = torch.zeros_like(source), torch.empty_like(source)
    torch.cuda.synchronize()
    busy(stream)
    with torch.cuda.stream(stream):
        x.copy_(source)
    argument = stream.cuda_stream if kind == "handle" else stream
    assert update(x, mask, parameters, out=out, stream=argument) is out
    fresh = update(x, mask, parameters, stream=argument)
    stream.synchronize()
    assert torch.equal(out, expected) and torch.equal(fresh, expected)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_plan_on_a_stream_of_the_callers(rng):
    source, mask, parameters = problem(rng, 96)
    plan = trimul.TriangleMultiplicativeUpdateFwd(source, has_in_bias=True, has_out_bias=True)
    weights = trimul.prepare_weights(**parameters)
    workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device="cuda")
    expected = update(source, mask, parameters)
    stream = torch.cuda.Stream()
    x, out = torch.zeros_like(source), torch.empty_like(source)
    torch.cuda.synchronize()
    for argument in (stream.cuda_stream, stream):
        busy(stream)
        with torch.cuda.stream(stream):
            x.copy_(source)
        plan.execute(x, mask, weights, out, workspace, argument)
        with torch.cuda.stream(stream):
            x.zero_()
        stream.synchronize()
        assert torch.equal(out, expected)


def test_execute_allocates_nothing_and_waits_for_nothing(rng):
    x, mask, parameters = problem(rng, 200)
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, has_in_bias=True, has_out_bias=True)
    weights = trimul.prepare_weights(**parameters)
    workspace, out = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device="cuda"), torch.empty_like(x)
    torch.cuda.synchronize()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    free = torch.cuda.mem_get_info()[0]
    busy(torch.cuda.current_stream(), 200)
    after_sleep = torch.cuda.Event()
    after_sleep.record()
    plan.execute(x, mask, weights, out, workspace)
    assert not after_sleep.query()  # came back while the stream was still asleep
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    assert torch.cuda.mem_get_info()[0] == free  # nothing else may use this GPU meanwhile; ./dev gpu-test sees to that


def test_threads_on_streams_of_their_own(rng):
    """Each with its own x and weights, over the same plans of the cache; nobody's parameters reach another's kernels."""
    problems = [problem(rng, tokens) for tokens in (64, 64, 100, 128, 64, 100)]
    expected = [update(*each) for each in problems]
    torch.cuda.synchronize()
    wrong, start = [], threading.Barrier(len(problems))

    def run(index):
        stream = torch.cuda.Stream()
        start.wait()
        with torch.inference_mode(), torch.cuda.stream(stream):
            results = [update(*problems[index]) for _ in range(100)]
            stream.synchronize()
            wrong.extend(index for result in results if not torch.equal(result, expected[index]))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_streams_that_take_turns_keep_their_parameters_apart(rng):
    """Calls that are submitted long before they run: what a later call sets may not reach them."""
    problems = [problem(rng, 64) for _ in range(4)]
    expected = [update(*each) for each in problems]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for stream in streams:
        busy(stream, 50)
    results = []
    for turn in range(24):
        with torch.cuda.stream(streams[turn // 3 % 2]):
            results.append(update(*problems[turn % 4]))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected[turn % 4]) for turn, result in enumerate(results))


def test_out_of_memory_is_torchs_error_and_the_next_smaller_call_works(rng):
    total = torch.cuda.get_device_properties(0).total_memory
    x, mask, parameters = problem(rng, 65)
    expected = update(x, mask, parameters)
    tokens = int((total * 0.45 / 256) ** 0.5)  # x alone fits twice, x with three planes does not
    large = torch.empty(1, tokens, tokens, 128, dtype=torch.bfloat16, device="cuda")
    for more in ({}, {"out": torch.empty_like(large)}):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            trimul.triangle_multiplicative_update(large, **parameters, **more)
    del large, more
    torch.cuda.empty_cache()
    assert torch.equal(update(x, mask, parameters), expected)


def test_peak_memory_is_the_result_and_the_workspace(rng):
    x, mask, parameters = problem(rng, 256)
    update(x, mask, parameters)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = update(x, mask, parameters)
    planes = 3 * 128 * 256 * 256 * 2
    assert torch.cuda.max_memory_allocated() - before <= out.numel() * 2 + planes + (2 << 20)
    assert torch.cuda.memory_allocated() - before <= out.numel() * 2 + 512


def test_fp64_is_declined_with_reasons(rng):
    x, mask, parameters = problem(rng, 8)
    with pytest.raises(NotImplementedError, match="cuda:sm80.*fp64"):
        update(x.double(), mask, parameters)


@pytest.mark.parametrize("c_z, c", [(128, 128), (64, 64), (64, 128), (256, 256), (48, 40), (33, 5), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_other_dtypes_and_widths_are_served(rng, dtype, c_z, c):
    x, mask = cases.random_x(rng, "cuda", 2, 21, c_z=c_z, dtype=dtype), cases.random_mask(rng, "cuda", 2, 21, 21)
    parameters = cases.random_parameters(rng, "cuda", c_z=c_z, c=c, dtype=dtype)
    for direction in cases.DIRECTIONS:
        result = update(x, mask, parameters, direction=direction)
        assert result.dtype == dtype
        if c >= 32:  # the bounds' sweep
            cases.assert_matches(result, cases.reference(x, direction, mask, **parameters))
        else:
            assert torch.isfinite(result).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_views_that_start_anywhere_and_other_strides(rng, dtype):
    """One element off an aligned address, and a transposed x, which the drop-in copies."""
    x, mask = cases.random_x(rng, "cuda", 19, c_z=48, dtype=dtype), cases.random_mask(rng, "cuda", 19, 19)
    parameters = cases.random_parameters(rng, "cuda", c_z=48, c=40, dtype=dtype)
    expected = update(x, mask, parameters)
    memory = torch.empty(x.numel() + 1, dtype=dtype, device="cuda")
    shifted, out = memory[1:].view(x.shape).copy_(x), torch.empty(x.numel() + 3, dtype=dtype, device="cuda")[3:].view(x.shape)
    moved = {name: torch.empty(value.numel() + 1, dtype=dtype, device="cuda")[1:].view(value.shape).copy_(value) for name, value in parameters.items()}
    assert torch.equal(update(shifted, mask, moved, out=out), expected)
    assert torch.equal(update(x.transpose(0, 1).contiguous().transpose(0, 1), mask, parameters), expected)


def test_every_precision_of_fp32_is_what_it_says(rng):
    x, mask = cases.random_x(rng, "cuda", 40, c_z=64, dtype=torch.float32), cases.random_mask(rng, "cuda", 40, 40)
    parameters = cases.random_parameters(rng, "cuda", c_z=64, c=64, dtype=torch.float32)
    exact = cases.reference(x, mask=mask, **parameters)
    error = {name: cases.relative_rms(update(x, mask, parameters, precision=name), exact) for name in ("tf32", "tf32x3", "ieee", "bfloat16")}
    assert 1e-5 < error["tf32"] <= cases.TF32_BOUND and error["bfloat16"] > 1e-3, error
    assert max(error["tf32x3"], error["ieee"]) <= 1e-5, error


def test_the_default_of_fp32_reads_torchs_switch_at_every_call(rng):
    x, mask = cases.random_x(rng, "cuda", 40, c_z=64, dtype=torch.float32), cases.random_mask(rng, "cuda", 40, 40)
    parameters = cases.random_parameters(rng, "cuda", c_z=64, c=64, dtype=torch.float32)
    by_name = {name: update(x, mask, parameters, precision=name) for name in ("tf32", "tf32x3")}
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (True, False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            assert torch.equal(update(x, mask, parameters), by_name["tf32" if allowed else "tf32x3"])
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_mixed_dtypes_as_autocast_has_them(rng):
    """fp32 weights beside bf16 x, and fp32 x under autocast."""
    x, mask = cases.random_x(rng, "cuda", 33, c_z=64, dtype=torch.float32), cases.random_mask(rng, "cuda", 33, 33)
    parameters = cases.random_parameters(rng, "cuda", c_z=64, c=64, dtype=torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        expected = update(x.to(dtype), mask, parameters)
        with torch.autocast("cuda", dtype):
            result = update(x, mask, parameters)
        assert result.dtype == dtype and torch.equal(result, expected)
        cases.assert_matches(result, cases.reference(x.to(dtype), mask=mask, **parameters))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_captured_call_of_the_portable_implementation_follows_its_tensors(rng, dtype):
    def draw():
        x = cases.random_x(rng, "cuda", 2, 50, c_z=48, dtype=dtype)
        return x, cases.random_mask(rng, "cuda", 2, 50, 50), cases.random_parameters(rng, "cuda", c_z=48, c=24, dtype=dtype)

    x, mask, parameters = draw()
    update(x, mask, parameters)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = update(x, mask, parameters)
    for _ in range(3):
        fresh = draw()
        x.copy_(fresh[0])
        mask.copy_(fresh[1])
        for name, value in parameters.items():
            value.copy_(fresh[2][name])
        graph.replay()
        assert torch.equal(out, update(*fresh))


def test_tensors_on_different_devices(rng):
    x, mask, parameters = problem(rng, 8)
    with pytest.raises(ValueError, match="mask: device is cpu, expected cuda:0"):
        update(x, mask.cpu(), parameters)
    with pytest.raises(ValueError, match="p_in_weight: device is cpu, expected cuda:0"):
        update(x, mask, {**parameters, "p_in_weight": parameters["p_in_weight"].cpu()})


@several_gpus
def test_a_device_that_is_not_the_current_one(rng):
    x, mask, parameters = problem(rng, 100)
    expected = update(x, mask, parameters)
    away = x.to("cuda:1"), mask.to("cuda:1"), {name: value.to("cuda:1") for name, value in parameters.items()}
    assert torch.cuda.current_device() == 0
    result = update(*away)
    plan = trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc(away[0].shape, torch.bfloat16, "cuda:1"), has_in_bias=True, has_out_bias=True)
    plan.compile()
    out = torch.empty_like(away[0])
    workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device="cuda:1")
    plan.execute(away[0], away[1], trimul.prepare_weights(**away[2]), out, workspace)
    graph = plan.make_cuda_graph(away[0], away[1], trimul.prepare_weights(**away[2]), out, workspace)
    assert torch.cuda.current_device() == 0
    assert torch.equal(result.cpu(), expected.cpu()) and torch.equal(out.cpu(), expected.cpu())
    out.zero_()
    graph.replay()
    assert torch.equal(out.cpu(), expected.cpu())
    with pytest.raises(ValueError, match="cuda:1|another device"):
        plan.execute(x, mask, trimul.prepare_weights(**parameters), torch.empty_like(x), workspace)
