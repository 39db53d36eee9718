# SPDX-License-Identifier: Apache-2.0
"""This library against PyTorch eager on the CPU, in one process, on the same values and the same number of threads.

    python bench/cpu_vs_torch.py [--package build/python] [--json FILE] [--rounds 7] [--threads K] [--tokens 128 214]

Contenders take turns round by round; the table gives medians. Of this library the class API is timed, on weights that were prepared before.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
C_Z = C = 128
SHAPES = {
    "norm_in_weight": (C_Z,), "norm_in_bias": (C_Z,), "p_in_weight": (2 * C, C_Z), "g_in_weight": (2 * C, C_Z),
    "norm_out_weight": (C,), "norm_out_bias": (C,), "p_out_weight": (C_Z, C), "g_out_weight": (C_Z, C_Z),
}


def make_case(tokens, dtype):
    generator = torch.Generator().manual_seed(tokens)
    parameters = {}
    for name, shape in SHAPES.items():
        values = torch.randn(shape, generator=generator)
        parameters[name] = (values / shape[-1] ** 0.5 if len(shape) == 2 else 1 + 0.1 * values if "weight" in name else 0.1 * values).to(dtype)
    x = torch.randn((1, tokens, tokens, C_Z), generator=generator).to(dtype)
    mask = (torch.rand((tokens, tokens), generator=generator) < 0.9).to(dtype)
    return x, mask, parameters


def eager(x, mask, p):
    """The plain composition that models run, outgoing."""
    functional = torch.nn.functional
    z = functional.layer_norm(x, (C_Z,), p["norm_in_weight"], p["norm_in_bias"], 1e-5)
    ab = torch.sigmoid(functional.linear(z, p["g_in_weight"])) * functional.linear(z, p["p_in_weight"]) * mask[None, :, :, None]
    a, b = ab.chunk(2, dim=-1)
    y = torch.matmul(a.permute(0, 3, 1, 2), b.permute(0, 3, 2, 1)).permute(0, 2, 3, 1)
    u = functional.layer_norm(y, (C,), p["norm_out_weight"], p["norm_out_bias"], 1e-5)
    return torch.sigmoid(functional.linear(z, p["g_out_weight"])) * functional.linear(u, p["p_out_weight"])


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if pathlib.Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor() or "CPU")


def quartiles(times):
    return statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3


class Contest:
    """Eager and this library on one problem in one dtype, both checked against fp64."""

    def __init__(self, tokens, dtype, threads):
        import trimul

        self.tokens, self.dtype = tokens, str(dtype).removeprefix("torch.")
        x, mask, parameters = make_case(tokens, dtype)
        out = torch.empty_like(x)
        self.plan = trimul.TriangleMultiplicativeUpdateFwd(x, c_hidden=C, knobs={"threads": threads})
        weights = trimul.prepare_weights(**parameters)
        workspace = torch.empty(self.plan.get_workspace_size(), dtype=torch.uint8)
        execute = lambda: self.plan.execute(x, mask, weights, out, workspace)
        self.contenders = {"eager": lambda: eager(x, mask, parameters), "trimul": execute}
        expected = eager(x.double(), mask.double(), {name: value.double() for name, value in parameters.items()})
        results = {"eager": self.contenders["eager"](), "trimul": (execute(), out)[1]}
        self.errors = {name: float((value.double() - expected).norm() / expected.norm()) for name, value in results.items()}
        if not self.errors["trimul"] <= max(2 * self.errors["eager"], 1e-5):
            sys.exit(f"N = {tokens}, {dtype}: trimul is off by {self.errors['trimul']:.2e}, eager by {self.errors['eager']:.2e}")
        self.times = {name: [] for name in self.contenders}

    def round(self):
        for name, call in self.contenders.items():
            start = time.perf_counter()
            call()
            self.times[name].append(1e3 * (time.perf_counter() - start))

    def row(self):
        medians = {name: statistics.median(values) for name, values in self.times.items()}
        return {
            "tokens": self.tokens, "c_z": C_Z, "c_hidden": C, "dtype": self.dtype, "implementation": self.plan.implementation,
            "times_ms": self.times, "median_ms": medians, "quartiles_ms": {name: quartiles(values) for name, values in self.times.items()},
            "ratio": medians["eager"] / medians["trimul"], "gflop_per_s": self.plan.flop() / medians["trimul"] / 1e6,
            "relative_rms_error": self.errors,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", default=str(ROOT / "build/python"), help="directory that holds the package trimul")
    parser.add_argument("--json", help="file for every time as JSON")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 214, 256, 436])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sys.path.insert(0, arguments.package)
    import trimul

    report = {
        "command": " ".join(sys.argv), "commit": trimul.build_info().get("commit", "unknown"), "machine": platform.machine(), "device": cpu_name(),
        "torch": torch.__version__, "threads": arguments.threads, "rows": [],
    }
    print(f"{report['device']}; torch {torch.__version__}, {arguments.threads} threads; C_z = C = {C_Z}, B = 1, mask, outgoing; "
          f"medians of {arguments.rounds} rounds; commit {report['commit']}\n")
    print(f"{'dtype':<9} {'N':>5} {'eager ms':>10} {'trimul ms':>10} {'ratio':>6} {'quartiles ms':>17} {'GFLOP/s':>8} {'error':>8} {'eager error':>12}")
    for tokens in arguments.tokens:
        # All dtypes of one N take turns, so that their times can be compared as well.
        with torch.no_grad():
            contests = [Contest(tokens, getattr(torch, name), arguments.threads) for name in arguments.dtypes]
            for _ in range(arguments.rounds):
                for contest in contests:
                    contest.round()
        for row in (contest.row() for contest in contests):
            report["rows"].append(row)
            low, _, high = row["quartiles_ms"]["trimul"]
            print(f"{row['dtype']:<9} {tokens:>5} {row['median_ms']['eager']:>10.1f} {row['median_ms']['trimul']:>10.1f} {row['ratio']:>6.2f} "
                  f"{low:>8.1f} {high:>8.1f} {row['gflop_per_s']:>8.1f} {row['relative_rms_error']['trimul']:>8.1e} "
                  f"{row['relative_rms_error']['eager']:>12.1e}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
