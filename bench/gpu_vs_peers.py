# SPDX-License-Identifier: Apache-2.0
"""This library's PyTorch package against PyTorch eager, torch.compile and cuEquivariance on one GPU, in one process, on the same values.

    python bench/gpu_vs_peers.py [--package build/python] [--json FILE] [--tokens 128 256 ...] [--directions outgoing incoming]
                                 [--batch 1] [--width 128] [--windows 20] [--without compile torch]

bf16, C_z = C = --width, mask given, no biases. "trimul" is the drop-in call, which packs the weights every time, "plan" the class API on prepared
weights. Timed, in windows in which the contenders take turns: a CUDA graph of the call, replayed back to back ("hot"); with --cool also after
20 ms of rest; the call itself, back to back ("eager"), results kept for one call so that no buffer comes straight back; and the host's time for a
call on an idle stream ("host"), beside that of an add in place and of three empty kernels. Medians are printed, the spread goes into the JSON. A
contender that is not importable is left out and named. Each result is first held against fp64 on the GPU.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
C = 128  # --width
F = torch.nn.functional
EPS = 1e-5
HOST_CALLS = 20  # few enough that the driver's queue takes them without waiting for the device


def make_case(batch, tokens):
    generator = torch.Generator(device="cuda").manual_seed(tokens)
    draw = lambda *shape: torch.randn(shape, generator=generator, device="cuda")
    x = (1.3 * draw(batch, tokens, tokens, C) + 0.2).bfloat16()
    mask = (torch.rand((batch, tokens, tokens), generator=generator, device="cuda") < 0.95).bfloat16()
    matrix = lambda rows: (draw(rows, C) / C**0.5).bfloat16()
    parameters = {
        "norm_in_weight": (1 + 0.1 * draw(C)).bfloat16(), "norm_in_bias": (0.1 * draw(C)).bfloat16(), "p_in_weight": matrix(2 * C),
        "g_in_weight": matrix(2 * C), "norm_out_weight": (1 + 0.1 * draw(C)).bfloat16(), "norm_out_bias": (0.1 * draw(C)).bfloat16(),
        "p_out_weight": matrix(C), "g_out_weight": matrix(C),
    }
    return x, mask, parameters


def eager(x, mask, p, direction):
    """The plain composition that models run."""
    z = F.layer_norm(x, (C,), p["norm_in_weight"], p["norm_in_bias"], EPS)
    ab = torch.sigmoid(F.linear(z, p["g_in_weight"])) * F.linear(z, p["p_in_weight"]) * mask[..., None]
    a, b = (half.movedim(-1, 1) for half in ab.chunk(2, dim=-1))
    y = torch.matmul(a, b.transpose(-1, -2)) if direction == "outgoing" else torch.matmul(a.transpose(-1, -2), b)
    u = F.layer_norm(y.movedim(1, -1), (C,), p["norm_out_weight"], p["norm_out_bias"], EPS)
    return torch.sigmoid(F.linear(z, p["g_out_weight"])) * F.linear(u, p["p_out_weight"])


def contenders_of(x, mask, parameters, direction, without):
    """Name -> function that runs it once and returns the result; and the plan."""
    import trimul

    found = {"trimul": lambda: trimul.triangle_multiplicative_update(x, direction=direction, mask=mask, eps=EPS, **parameters)}
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, direction, c_hidden=C, eps=EPS)
    weights = trimul.prepare_weights(**parameters)
    workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=x.device)
    out = torch.empty_like(x)
    found["plan"] = lambda: (plan.execute(x, mask, weights, out, workspace), out)[1]
    if "cuequivariance" not in without:
        try:
            from cuequivariance_torch import triangle_multiplicative_update
            found["cuequivariance"] = lambda: triangle_multiplicative_update(x, direction=direction, mask=mask, eps=EPS, **parameters)
        except ImportError as error:
            print(f"cuequivariance is left out: {error}", file=sys.stderr)
    if "compile" not in without:
        torch._dynamo.reset()  # a graph for each N, and none of them counts against the limit of recompilations
        compiled = torch.compile(eager, dynamic=False)
        found["compile"] = lambda: compiled(x, mask, parameters, direction)
    if "torch" not in without:
        found["torch"] = lambda: eager(x, mask, parameters, direction)
    return found, plan


def capture(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def window(graph, replays, rest):
    """Microseconds per replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if rest:
        total = 0.0
        for _ in range(3):
            torch.cuda.synchronize()
            time.sleep(0.02)
            torch.cuda._sleep(200_000)  # 100 us in which the host queues the rest: the start of an idle stream is not timed
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            total += start.elapsed_time(end)
        return 1e3 * total / 3
    graph.replay()
    start.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / replays


def eager_window(call, calls):
    """Microseconds per call of `calls` in a row, the host's and the device's time together."""
    kept = call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        kept = call()
    torch.cuda.synchronize()
    del kept
    return 1e6 * (time.perf_counter() - start) / calls


def host_time(call):
    """Host microseconds of a call with the stream idle before it."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / HOST_CALLS


def summary(times):
    return {name: {"median": statistics.median(v), "min": min(v), "max": max(v)} for name, v in times.items()}


def measure(batch, tokens, direction, arguments):
    x, mask, parameters = make_case(batch, tokens)
    contenders, plan = contenders_of(x, mask, parameters, direction, arguments.without)
    exact = eager(x.double(), mask.double(), {k: v.double() for k, v in parameters.items()}, direction) if batch * tokens**2 <= 512**2 else None
    floor = plan.floor_us()
    row = {"batch": batch, "tokens": tokens, "direction": direction, "implementation": plan.implementation, "floor_us": floor, "relative_rms_error": {}}
    graphs = {}
    for name in list(contenders):
        try:
            result = contenders[name]()
            torch.cuda.synchronize()
            if exact is not None:
                row["relative_rms_error"][name] = float((result.double() - exact).norm() / exact.norm())
            del result
            graphs[name] = capture(contenders[name])
        except Exception as error:  # noqa: BLE001  a peer that fails is a finding, not the end of the table
            row.setdefault("failures", {})[name] = f"{type(error).__name__}: {error}"[:300]
            del contenders[name]
    del exact
    replays = max(2, int(3000 / max(floor * 1.5, 5)))
    kinds = {"hot": lambda name: window(graphs[name], replays, False), "eager": lambda name: eager_window(contenders[name], max(3, replays // 4))}
    if arguments.cool:
        kinds["cool"] = lambda name: window(graphs[name], replays, True)
    for kind, time_once in kinds.items():
        times = {name: [] for name in contenders}
        for _ in range(arguments.windows if kind == "hot" else (arguments.windows + 1) // 2):
            for name in times:
                times[name].append(time_once(name))
        row[f"{kind}_us"] = summary(times)
    small = torch.zeros(1024, device=x.device)
    calls = {"add_": lambda: small.add_(1), "three_empty": three_empty_kernels, **contenders}
    times = {name: [] for name in calls}
    for _ in range(20 if tokens <= 512 else 5):
        for name in times:
            times[name].append(host_time(calls[name]))
    row["host_us"] = summary(times)
    return row


def three_empty_kernels():
    """torch's spinning kernel, for no cycles: the least that a launch from Python costs, three times."""
    torch.cuda._sleep(0)
    torch.cuda._sleep(0)
    torch.cuda._sleep(0)


def print_row(row):
    print(f"B {row['batch']} N {row['tokens']:>4} {row['direction']}, floor {row['floor_us']:.1f} us" + (f", failures {row['failures']}" if "failures" in row else ""))
    for kind in ("hot", "cool", "eager", "host"):
        times = row.get(f"{kind}_us")
        if not times:
            continue
        peer = times.get("cuequivariance", {}).get("median")
        ratios = f"  ratio {peer / times['trimul']['median']:.2f}, plan {peer / times['plan']['median']:.2f}" if peer else ""
        print(f"    {kind:>5}: " + "  ".join(f"{name} {t['median']:.1f}" for name, t in times.items()) + ratios, flush=True)


def main():
    global C
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", default=str(ROOT / "build/python"), help="directory that holds the package trimul")
    parser.add_argument("--json", help="file for every figure as JSON")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 192, 217, 256, 384, 500, 512, 768, 1024])
    parser.add_argument("--directions", nargs="+", default=["outgoing"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--width", type=int, default=C)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--cool", action="store_true")
    arguments = parser.parse_args()
    C = arguments.width
    sys.path.insert(0, arguments.package)
    import trimul

    report = {"command": " ".join(sys.argv), "commit": trimul.build_info().get("commit", "unknown"), "device": torch.cuda.get_device_name(),
              "torch": torch.__version__, "cuda": torch.version.cuda, "operators": trimul.torch.backend(), "width": C, "rows": []}
    print(f"{report['device']}, torch {torch.__version__}; bf16, C_z = C = {C}, mask; commit {report['commit']}, operators by {report['operators']}")
    with torch.inference_mode():
        for direction in arguments.directions:
            for tokens in arguments.tokens:
                row = measure(arguments.batch, tokens, direction, arguments)
                report["rows"].append(row)
                print_row(row)
                torch.cuda.empty_cache()
                if arguments.json:  # after each row: a run that is cut off keeps what it has
                    pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
