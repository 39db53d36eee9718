# SPDX-License-Identifier: Apache-2.0
"""This library against PyTorch eager, torch.compile and cuEquivariance on one GPU, in one process, on the same values.

    python bench/gpu_vs_peers.py [--library build/lib/libtrimul.so] [--json FILE] [--tokens 128 256 ...] [--directions outgoing incoming]
                                 [--batch 1] [--windows 20] [--without compile eager]

bf16, C_z = C = 128, mask given, no biases. Timed is a CUDA graph of the call, replayed back to back ("hot") in windows in which the contenders
take turns; --cool rests 20 ms before every replay as well. The median of the windows is printed, the spread goes into the JSON. A contender
that is not importable is left out and named. Each result is first held against fp64 on the GPU.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

from trimul_ctypes import Trimul

ROOT = pathlib.Path(__file__).resolve().parents[1]
C = 128
F = torch.nn.functional
EPS = 1e-5


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


def contenders_of(library, x, mask, parameters, direction, without):
    """Name -> (function that runs it once, function that gives the result)."""
    out = torch.empty_like(x)
    plan = library.plan(tokens=x.shape[1], c_z=C, c_hidden=C, x=x, has_mask=True, direction=int(direction == "incoming"))
    execute = plan.bind(x, mask, parameters, out)
    found = {"trimul": lambda: (execute(), out)[1]}
    if "cuequivariance" not in without:
        try:
            from cuequivariance_torch import triangle_multiplicative_update
            found["cuequivariance"] = lambda: triangle_multiplicative_update(x, direction=direction, mask=mask, eps=EPS, **parameters)
        except ImportError as error:
            print(f"cuequivariance is left out: {error}", file=sys.stderr)
    if "compile" not in without:
        compiled = torch.compile(eager, dynamic=False)
        found["compile"] = lambda: compiled(x, mask, parameters, direction)
    if "eager" not in without:
        found["eager"] = lambda: eager(x, mask, parameters, direction)
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


def host_time(call):
    """Median host microseconds of a call with the stream idle before it."""
    times = []
    for _ in range(100):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


def measure(library, batch, tokens, direction, arguments):
    x, mask, parameters = make_case(batch, tokens)
    contenders, plan = contenders_of(library, x, mask, parameters, direction, arguments.without)
    exact = eager(x.double(), mask.double(), {k: v.double() for k, v in parameters.items()}, direction) if batch * tokens**2 <= 512**2 else None
    row = {"batch": batch, "tokens": tokens, "direction": direction, "implementation": plan.implementation, "floor_us": plan.floor_us,
           "host_us": {}, "relative_rms_error": {}, "hot_us": {}, "cool_us": {}}
    graphs = {}
    with torch.no_grad():
        for name, call in contenders.items():
            try:
                result = call()
                torch.cuda.synchronize()
                if exact is not None:
                    row["relative_rms_error"][name] = float((result.double() - exact).norm() / exact.norm())
                row["host_us"][name] = host_time(call)
                graphs[name] = capture(call)
            except Exception as error:  # noqa: BLE001  a peer that fails is a finding, not the end of the table
                row.setdefault("failures", {})[name] = f"{type(error).__name__}: {error}"[:300]
        del exact
        replays = max(2, int(3000 / max(plan.floor_us * 1.5, 5)))
        for kind in ["hot", "cool"] if arguments.cool else ["hot"]:
            times = {name: [] for name in graphs}
            for _ in range(arguments.windows):
                for name, graph in graphs.items():
                    times[name].append(window(graph, replays, kind == "cool"))
            row[f"{kind}_us"] = {name: {"median": statistics.median(v), "min": min(v), "max": max(v)} for name, v in times.items()}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=str(ROOT / "build/lib/libtrimul.so"))
    parser.add_argument("--json", help="file for every figure as JSON")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 192, 217, 256, 384, 500, 512, 768, 1024])
    parser.add_argument("--directions", nargs="+", default=["outgoing"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--cool", action="store_true")
    arguments = parser.parse_args()
    library = Trimul(arguments.library)
    report = {"command": " ".join(sys.argv), "commit": library.commit(), "device": torch.cuda.get_device_name(),
              "torch": torch.__version__, "cuda": torch.version.cuda, "rows": []}
    print(f"{report['device']}, torch {torch.__version__}; bf16, C_z = C = {C}, mask, us per graph replay, hot; commit {report['commit']}")
    for direction in arguments.directions:
        for tokens in arguments.tokens:
            row = measure(library, arguments.batch, tokens, direction, arguments)
            report["rows"].append(row)
            cells = "  ".join(f"{name} {t['median']:.1f}" for name, t in row["hot_us"].items())
            cool = "  ".join(f"{name} {t['median']:.1f}" for name, t in row["cool_us"].items())
            peer = row["hot_us"].get("cuequivariance", {}).get("median")
            ratio = f"  ratio {peer / row['hot_us']['trimul']['median']:.2f}" if peer else ""
            print(f"B {arguments.batch} N {tokens:>4} {direction}: {cells}{ratio}  floor {row['floor_us']:.1f}  host us "
                  + " ".join(f"{name} {t:.0f}" for name, t in row["host_us"].items()) + (f"  cool: {cool}" if cool else "")
                  + (f"  failures {row['failures']}" if "failures" in row else ""), flush=True)
            torch.cuda.empty_cache()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
