# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a GPU, with binaries that may have been built on another machine; nothing but Python's own library is needed.

    python3 tests/gpu/run.py BUILD_DIR OUT_DIR [--sanitize]

The C++ tests of the operator and `trimul verify` run side by side, then the Python package's where torch and pytest are there, then
compute-sanitizer when asked for, its tools and the implementations side by side, then `trimul bench` alone.
OUT_DIR receives each part's output, bench-sm90.json, bench-sm80.json with pages beside them, sweep.json and summary.json. The last line is
'N passed, N failed, N skipped'. An implementation that this machine's GPU does not run is one skipped part for each that it would have.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PART_SECONDS = 280  # most that one part may take; all of them stay below eight minutes
SANITIZE_SECONDS = 200
SANITIZERS = ["racecheck", "memcheck", "synccheck", "initcheck"]  # the slowest first
SANITIZED_AT_ONCE = max(2, min(12, (os.cpu_count() or 2) - 4))  # a checked process keeps a core busy, and racecheck some gigabytes
SANITIZED_PROBLEMS = 14  # most that one checked process takes: racecheck needs about four seconds for each
# What is verified and timed of each implementation.
SHAPES = {"cuda:sm90": "shapes/gpu.txt", "cuda:sm80": "shapes/gpu_portable.txt"}
BENCH_SHAPES = {"cuda:sm90": "shapes/gpu_bench.txt", "cuda:sm80": "shapes/gpu_bench_portable.txt"}
# Both serve these. One run of all checks them against one reference, which is what the time goes to.
COMMON_SHAPES = "shapes/gpu.txt"


class Run:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.parts = []
        self.declined = self.reasons_to_decline()

    def reasons_to_decline(self):
        """{implementation: reason} of those that do not run what both serve on this GPU: another generation, or not in the build."""
        command = [str(self.build / "bin/trimul"), "explain", "--shape", "1,64,128,128", "--dtype", "bf16", "--device", "cuda", "--json"]
        report = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout)
        return {entry["name"]: entry["reason"] for entry in report["rejected"] if entry["name"] in SHAPES}

    def served(self, part):
        """Implementations that run here; the others' parts are skipped. The portable one runs wherever a GPU is used."""
        for name, reason in self.declined.items():
            failures = [f"{part}: {name} declines: {reason}"] if name == "cuda:sm80" else []
            self.record(f"{part}-{short(name)}", 0, failures, 1 - len(failures), 0, reason=reason)
        return [name for name in SHAPES if name not in self.declined]

    def call(self, name, command, environment=None, seconds=PART_SECONDS):
        """Exit status (None: out of time) and seconds; the output goes to OUT_DIR/name.log, standard output alone to name.out."""
        start = time.monotonic()
        with open(self.out / f"{name}.out", "wb") as stdout, open(self.out / f"{name}.log", "wb") as stderr:
            try:
                code = subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=stderr, env={**os.environ, **(environment or {})}, timeout=seconds, check=False).returncode
            except subprocess.TimeoutExpired:
                code = None
        return code, time.monotonic() - start

    def record(self, name, passed, failures, skipped, seconds, **more):
        self.parts.append({"name": name, "passed": passed, "failed": len(failures), "skipped": skipped, "seconds": round(seconds, 1), "failures": failures, **more})
        print(f"{name}: {passed} passed, {len(failures)} failed, {skipped} skipped, {seconds:.0f} s", flush=True)
        for failure in failures[:20]:
            print(f"FAILED   {failure}", flush=True)

    def as_one_test(self, name, code, seconds, **more):
        self.record(name, int(code == 0), [] if code == 0 else [f"{name}: " + ("out of time" if code is None else f"exit status {code}")], 0, seconds, **more)

    def tests(self, shard, shards):
        report = self.out / f"test_ops-{shard}.xml"
        command = [str(self.build / "bin/test_ops"), "--gtest_filter=*/cuda_*", f"--gtest_output=xml:{report}"]
        code, seconds = self.call(f"test_ops-{shard}", command, {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard), "TRIMUL_NUM_THREADS": "2"})
        passed, failures, skipped = 0, [], 0
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else []:
            if case.get("status") == "notrun" or case.find("skipped") is not None:
                skipped += 1
            elif case.find("failure") is not None:
                failures.append(f"{case.get('classname')}.{case.get('name')}: {case.find('failure').get('message', '')[:600]}")
            else:
                passed += 1
        if code != 0 and not failures:
            failures.append(f"shard {shard}: " + ("out of time" if code is None else f"exit status {code}"))
        return passed, failures, skipped, seconds

    def verify(self, name, *arguments, implementations=()):
        """Every one of `implementations` must have passed something."""
        code, seconds = self.call(name, [str(self.build / "bin/trimul"), "verify", "--json", *arguments], {"TRIMUL_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2))})
        try:
            report = json.loads((self.out / f"{name}.out").read_text())
        except ValueError:
            return self.as_one_test(name, code if code else 1, seconds)
        results = [entry for entry in report["results"] if not implementations or entry["implementation"] in implementations]
        failures = [f"{entry['problem']}, {entry['implementation']}: {entry.get('reason', '')}" for entry in results if entry["status"] == "failed"]
        passed = [entry["implementation"] for entry in results if entry["status"] == "passed"]
        failures += [f"{name}: no problem was checked of {implementation}" for implementation in implementations if implementation not in passed]
        checked = [entry for entry in results if entry["status"] != "skipped" and entry["implementation"].startswith("cuda:")]
        largest = {field: max((entry.get(field) or 0 for entry in checked), default=0) for field in ("error", "kernel_error")}
        skipped = sum(entry["status"] == "skipped" for entry in results)
        return self.record(name, len(passed), failures, skipped, seconds, seed=report["seed"], largest=largest)

    def python(self):
        """What tests/python has for a GPU, with the package of the build tree."""
        missing = [name for name in ("torch", "pytest") if importlib.util.find_spec(name) is None]
        if missing:
            self.record("python", 0, [], 1, 0, reason=f"{' and '.join(missing)} cannot be imported by {sys.executable}")
            return
        report = self.out / "python.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", f"--junitxml={report}", "tests/python"]
        code, seconds = self.call("python", command, {"PYTHONPATH": str(self.build / "python"), "PYTHONDONTWRITEBYTECODE": "1"})
        cases = [case for case in ElementTree.parse(report).iter("testcase")] if report.exists() else []
        wrong = {case: next((part for part in case if part.tag in ("failure", "error")), None) for case in cases}
        failures = [f"{case.get('classname')}.{case.get('name')}: {part.get('message', '')[:600]}" for case, part in wrong.items() if part is not None]
        if code != 0 and not failures:
            failures.append("python: " + ("out of time" if code is None else f"exit status {code}"))
        skipped = sum(case.find("skipped") is not None for case in cases)
        self.record("python", len(cases) - len(failures) - skipped if cases else 0, failures, skipped, seconds)

    def sanitize(self):
        """Each tool over shapes/gpu_tiny.txt, a process for every SANITIZED_PROBLEMS of its lines."""
        lines = [line for line in (ROOT / "shapes/gpu_tiny.txt").read_text().splitlines() if line.split("#")[0].strip()]
        count = -(-len(lines) // SANITIZED_PROBLEMS)
        for part in range(count):
            (self.out / f"sanitized-{part}.txt").write_text("\n".join(lines[part::count]) + "\n")
        served = self.served("sanitize")
        parts = [(tool, name, part) for tool in SANITIZERS for name in served for part in range(count)]
        with concurrent.futures.ThreadPoolExecutor(SANITIZED_AT_ONCE) as pool:
            list(pool.map(lambda part: self.sanitize_part(*part), parts))

    def sanitize_part(self, tool, implementation, lines):
        part = f"sanitize-{tool}-{short(implementation)}-{lines}"
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
        command += [str(self.build / "bin/trimul"), "verify", "--device", "cuda", "--impl", implementation, "--shapes", str(self.out / f"sanitized-{lines}.txt")]
        try:
            code, seconds = self.call(part, command, {"TRIMUL_NUM_THREADS": "1"}, seconds=SANITIZE_SECONDS)
        except FileNotFoundError:
            self.record(part, 0, [], 1, 0, reason="compute-sanitizer is not on PATH")
            return
        text = (self.out / f"{part}.out").read_text(errors="replace")
        self.as_one_test(part, code, seconds, summary=[line for line in text.splitlines() if "SUMMARY" in line])

    def bench(self):
        for name in self.served("bench"):
            part = f"bench-{short(name)}"
            command = [str(self.build / "bin/trimul"), "bench", "--device", "cuda", "--impl", name, "--shapes", BENCH_SHAPES[name]]
            command += ["--json", str(self.out / f"{part}.json"), "--html", str(self.out / f"{part}.html")]
            code, seconds = self.call(part, command)
            failures = [f"exit status {code}"] if code != 0 else wrong_in_bench(json.loads((self.out / f"{part}.json").read_text()))
            self.record(part, int(not failures), [f"{part}: {failure}" for failure in failures], 0, seconds)
            print((self.out / f"{part}.out").read_text(), flush=True)

    def sweep(self):
        """Two N: that the command works, not which knobs are best."""
        command = [str(self.build / "bin/trimul"), "bench", "--sweep", "--shape", "1,64,128,128", "--shape", "1,320,128,128", "--json", str(self.out / "sweep.json")]
        code, seconds = self.call("sweep", command)
        failures = [f"exit status {code}"] if code != 0 else wrong_in_sweep(json.loads((self.out / "sweep.json").read_text()), (self.out / "sweep.out").read_text())
        self.record("sweep", int(not failures), [f"sweep: {failure}" for failure in failures], 0, seconds)


def short(implementation):
    """sm90 of cuda:sm90."""
    return implementation.split(":")[1]


def wrong_in_bench(report):
    """What a GPU's bench.json lacks; figures themselves are not judged."""
    wrong = [f"no {field}" for field in ("commit", "device", "command") if not report[field]]
    wrong += [f"no gpu.{field}" for field in ("name", "cuda_driver", "cuda_runtime") if not (report["gpu"] or {}).get(field)]
    for entry in report["results"]:
        place = entry["problem"]
        if "skipped" in entry:
            wrong.append(f"{place}: skipped: {entry['skipped']}")
            continue
        kinds = {"eager": True, "host": True, "three_empty_kernels_host": True, "rotated": entry["N"] <= 512, "cool": entry["N"] >= 768}
        wrong += [f"{place}: {kind} is {'missing' if wanted else 'there'}" for kind, wanted in kinds.items() if (entry[kind] is not None) != wanted]
        if [stage["name"] for stage in entry["stages"]] != ["input_projection", "triangle_contraction", "output_projection"]:
            wrong.append(f"{place}: stages are {[stage['name'] for stage in entry['stages']]}")
        for times in [entry, *entry["stages"], *(entry[kind] for kind in kinds if entry[kind])]:
            order = [times[field] for field in ("min_us", "quartile_1_us", "median_us", "quartile_3_us", "max_us")]
            if order[0] <= 0 or order != sorted(order):
                wrong.append(f"{place}: quartiles {order}")
    return wrong


def wrong_in_sweep(report, text):
    """What a sweep over two N lacks."""
    if len(report["tables"]) != 1 or [problem["N"] for problem in report["tables"][0]["problems"]] != [64, 320]:
        return ["not one table of N = 64 and 320"]
    combinations = 1
    for knob in report["knobs"]:
        combinations *= knob["most"] - knob["least"] + 1
    wrong = [f"N = {problem['N']}: {len(problem['combinations'])} combinations, expected {combinations}" for problem in report["tables"][0]["problems"]
             if len(problem["combinations"]) != combinations]
    if not re.search(r"^ {4}\{1, \{.*\}\},  // \d", text, re.MULTILINE):
        wrong.append("printed no row of a table")
    return wrong


def first_line(*command):
    """What a program prints first; nothing where it is not there."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("out", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--sanitize", action="store_true", help="compute-sanitizer over shapes/gpu_tiny.txt, each implementation by itself")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    info = json.loads(subprocess.run([str(arguments.build / "bin/trimul"), "info", "--json"], capture_output=True, check=True).stdout)
    gpus = [entry["description"] for entry in info["devices"] if entry["device"] != "cpu"]
    if not gpus:
        print("no GPU that this build can use is here\n0 passed, 0 failed, 1 skipped")
        return 3
    run = Run(arguments.build, arguments.out)
    shards = max(1, min(10, (os.cpu_count() or 2) - 2))
    with concurrent.futures.ThreadPoolExecutor(shards + 2) as pool:
        tests = [pool.submit(run.tests, shard, shards) for shard in range(shards)]
        served = run.served("verify-shapes")
        shapes = [pool.submit(run.verify, "verify-shapes-common", "--device", "cuda", "--shapes", COMMON_SHAPES, implementations=served)]
        shapes += [pool.submit(run.verify, f"verify-shapes-{short(name)}", "--device", "cuda", "--impl", name, "--shapes", SHAPES[name], implementations=[name])
                   for name in served if SHAPES[name] != COMMON_SHAPES]
        results = [future.result() for future in tests]
        for future in shapes:
            future.result()
    run.record("test_ops", sum(r[0] for r in results), [f for r in results for f in r[1]], sum(r[2] for r in results), max(r[3] for r in results))
    run.verify("verify", "--impl", "all")
    run.as_one_test("demo", *run.call("demo", [str(arguments.build / "bin/trimul"), "demo", "--out", str(arguments.out / "demo")]))
    run.python()
    if arguments.sanitize:
        run.sanitize()
    run.bench()
    run.sweep()

    totals = {field: sum(part[field] for part in run.parts) for field in ("passed", "failed", "skipped")}
    summary = {"version": info["version"], "gpus": gpus, "driver": first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
               "commit": first_line("git", "rev-parse", "HEAD"), "command": " ".join(sys.argv), "seconds": round(time.monotonic() - start, 1), **totals, "parts": run.parts}
    (arguments.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for part in run.parts:  # again, since the tables of the benchmark lie between them and the end
        for failure in part["failures"]:
            print(f"FAILED   {failure}")
    print(f"{summary['seconds']:.0f} s; the summary is {arguments.out / 'summary.json'}")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
