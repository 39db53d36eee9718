# SPDX-License-Identifier: Apache-2.0
"""verify and bench: they pass what is right, fail what is wrong, and say what they left out."""
import re
import resource
import shutil
import subprocess

import pytest

import command
import known_answer

SHAPES = "# comment\n1 9 32 32 fp32 incoming random all residual  # more\n\n2 7 48 32 bf16 outgoing\n1 5 32 32 fp64 outgoing\n1 6 8 4 fp16 outgoing fractional g_in\n"


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text(SHAPES)
    return path


def test_the_built_in_checks_pass():
    report = command.run_json("verify", "--device", "cpu")
    assert report["failed"] == 0 and report["passed"] > 40
    ran = {entry["implementation"] for entry in report["results"] if entry["status"] == "passed"}
    assert ran == {"cpu", "reference"}
    assert {entry["implementation"] for entry in report["results"] if "known answer" in entry["problem"] and entry["status"] == "passed"} == ran
    assert all(entry["reason"] for entry in report["results"] if entry["status"] == "skipped")
    for entry in report["results"]:
        assert entry["status"] == "skipped" or 0 <= entry["error"] <= entry["bound"]


def test_known_answers_are_those_of_the_formula():
    text = (command.ROOT / "cli/known_answer.cpp").read_text()
    for direction in ("outgoing", "incoming"):
        (table,) = re.findall(rf"k{direction.capitalize()}\{{([^}}]*)\}}", text)
        assert [number.strip() for number in table.split(",")] == known_answer.table(direction)


def test_shapes_file(shapes):
    report = command.run_json("verify", "--shapes", shapes, "--device", "cpu")
    assert [report["passed"], report["failed"]] == [7, 0]
    declined = [entry for entry in report["results"] if entry["status"] == "skipped" and entry["implementation"] == "cpu"]
    assert [entry["problem"] for entry in declined] == ["1 5 32 32 fp64 outgoing"] and "fp64" in declined[0]["reason"]
    assert report["results"][0]["problem"] == "1 9 32 32 fp32 incoming random all residual"


def test_seed_repeats_the_inputs(shapes):
    first, second, other = (command.run_json("verify", "--shapes", shapes, "--seed", seed) for seed in ("7", "7", "8"))
    assert first == second and first["results"] != other["results"]
    text = command.succeeds(command.run("verify", "--shapes", shapes, "--seed", "7"))
    assert text.startswith("seed 7\n") and text.endswith("7 passed, 0 failed, 9 skipped\n")


def test_one_implementation(shapes):
    report = command.run_json("verify", "--shapes", shapes, "--impl", "reference")
    assert report["passed"] == 4 and report["skipped"] == 0
    command.fails(command.run("verify", "--impl", "nothing"), 2, "'nothing'", "cpu, reference")


@pytest.mark.skipif("command.run_json('info')['devices'][1:]", reason="this machine has a GPU")
def test_nothing_checked_is_not_a_pass(shapes):
    for name in ("verify", "bench"):
        command.fails(command.run(name, "--shapes", shapes, "--impl", "cuda:sm90"), 3, "cuda:sm90: ")
        command.fails(command.run(name, "--shapes", shapes, "--device", "cuda"), 3, "--device")


@pytest.mark.parametrize("line, words", [
    ("1 2 3", ["3 words"]),
    ("1 2 3 4 fp32 sideways", ["'sideways'"]),
    ("1 2 3 4 int8 outgoing", ["'int8'"]),
    ("1 2 0 4 fp32 outgoing", ["C_z", "at least 1"]),
    ("-1 2 3 4 fp32 outgoing", ["B", "'-1'"]),
    ("1 2 3 4 fp32 outgoing random padded", ["'padded'", "at most one mask"]),
    ("1 2 3 4 fp32 outgoing all p_in", ["'p_in'"]),
    ("1 2 3 4 fp32 outgoing residual residual", ["'residual'"]),
    ("1 2 3 4 fp32 outgoing frobnicate", ["'frobnicate'"]),
    ("# nothing", ["holds no problem"]),
])
def test_shapes_files_that_are_refused(line, words, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text(f"# heading\n{line}\n")
    place = "bad.txt" if "holds" in words[0] else "bad.txt:2"
    for name in ("verify", "bench"):
        command.fails(command.run(name, "--shapes", path), 2, place, *words)
    command.fails(command.run("verify", "--shapes", tmp_path / "absent"), 2, "absent")


# Byte counts that wrap around in 64 bits, some of them to numbers that look harmless.
WRAPPING = ["1,2147483648,1,1", "1,1,1,4611686018427387904", "1,1,4611686018427387904,1", "4611686018427387904,1,1,1", "4294967296,4294967296,1,1",
            "1,4294967296,1,1", "0,9223372036854775807,1,1", "0,1,4294967296,1", "9223372036854775807,9223372036854775807,9223372036854775807,9223372036854775807"]


@pytest.mark.parametrize("shape", WRAPPING)
def test_shapes_whose_byte_counts_wrap_are_refused_before_anything_else(shape, tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text(f"1 5 8 8 fp32 outgoing\n{shape.replace(',', ' ')} fp32 outgoing random\n")
    for place, arguments in (("--shape", ["bench", "--shape", shape, "--impl", "cpu"]), ("shapes.txt:2", ["bench", "--shapes", path]),
                             ("--shape", ["explain", "--shape", shape]), ("shapes.txt:2", ["verify", "--shapes", path])):
        result = command.run(*arguments)
        command.fails(result, 2, place, "do not fit into 64-bit byte counts")
        assert result.stdout == "", "something ran before"


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


@pytest.mark.needs_plain_build
@pytest.mark.parametrize("line", ["1 8000 32 32 fp32 outgoing", "1 500 32 320 fp32 outgoing", "1 5 200000 32 fp32 outgoing"])
def test_lack_of_memory_is_not_a_failed_check(line, tmp_path):
    """Of inputs, of the workspace, of the weights."""
    path = tmp_path / "shapes.txt"
    path.write_text(line)
    for arguments in (["verify", "--impl", "cpu", "--shapes", path], ["verify", "--impl", "reference", "--json", "--shapes", path], ["bench", "--impl", "cpu", "--shapes", path]):
        command.fails(command.run(*arguments, preexec_fn=limited(700)), 4, "memory")


@pytest.mark.parametrize("arguments", [["verify"], ["verify", "--json"], ["bench", "--shape", "1,4,8,8"], ["demo"], ["info"], ["info", "--json"]])
def test_malformed_number_of_threads_is_invalid_input(arguments, tmp_path):
    result = command.run(*arguments, env={**command.os.environ, "TRIMUL_NUM_THREADS": "abc"}, cwd=tmp_path)
    command.fails(result, 2, "TRIMUL_NUM_THREADS: is 'abc', expected a number from 1 to 4096")
    if arguments[0] == "info":
        assert "reference" in result.stdout and "TRIMUL_NUM_THREADS: is 'abc'" in result.stdout


def test_bench_writes_json_and_one_page(shapes, tmp_path):
    json_path, html_path = tmp_path / "bench.json", tmp_path / "bench.html"
    text = command.succeeds(command.run("bench", "--shapes", shapes, "--device", "cpu", "--json", json_path, "--html", html_path))
    assert "ceiling:" in text and "GFLOP/s" in text
    report = command.json.loads(json_path.read_text())
    assert set(report) == {"version", "commit", "device", "gpu", "command", "ceiling", "results"}
    assert report["commit"] and report["gpu"] is None
    assert "bench --shapes" in report["command"] and "CPU" in report["device"]
    assert report["ceiling"]["gb_per_s"] > 0 and report["ceiling"]["gflop_per_s"] > 0
    timed = [entry for entry in report["results"] if "skipped" not in entry]
    assert {entry["implementation"] for entry in timed} == {"cpu"} and len(timed) == 3
    for entry in timed:
        assert 0 < entry["min_us"] <= entry["quartile_1_us"] <= entry["median_us"] <= entry["quartile_3_us"] <= entry["max_us"]
        assert len(entry["times_us"]) >= 7 and entry["floor_us"] > 0 and entry["timing"].startswith("host time")
        assert entry["fraction_of_ceiling"] == pytest.approx(entry["floor_us"] / entry["median_us"])
    page = html_path.read_text()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page and "</html>" in page
    assert "http" not in page and "<script" not in page
    assert page.count("<svg") == 2 and "Roofline of the CPU" in page and "Roofline of the GPU" not in page
    for axis in ("N, tokens", "median time, ms", "FLOP per byte", "GFLOP/s"):
        assert axis in page


def test_bench_takes_shapes_from_the_command_line(tmp_path):
    command.succeeds(command.run("bench", "--shape", "1,8,32,32", "--shape", "2,8,32,32", "--dtype", "bf16", "--direction", "incoming", "--impl", "reference", "--json",
                                 tmp_path / "out"))
    results = command.json.loads((tmp_path / "out").read_text())["results"]
    assert [entry["problem"] for entry in results] == ["1 8 32 32 bf16 incoming", "2 8 32 32 bf16 incoming"]
    assert all(entry["implementation"] == "reference" and entry["median_us"] > 0 for entry in results)


@pytest.mark.parametrize("options, code, words", [
    (["--sweep", "--device", "cpu"], 3, ["--sweep", "a GPU"]),
    (["--sweep", "--html", "page"], 2, ["--sweep", "--html"]),
    (["--dtype", "int8"], 2, ["'int8'"]),
])
def test_bench_refuses(options, code, words):
    command.fails(command.run("bench", *options), code, *words)


def test_commit_of_a_report_is_that_of_the_build(tmp_path):
    command.succeeds(command.run("bench", "--shape", "1,8,32,32", "--device", "cpu", "--json", tmp_path / "out"))
    assert command.json.loads((tmp_path / "out").read_text())["commit"] == command.run_json("info")["build"]["commit"]


def test_bench_finds_unwritable_reports_first(tmp_path):
    command.fails(command.run("bench", "--json", tmp_path / "absent/out"), 1, "No such file")
    command.fails(command.run("bench", "--html", tmp_path), 1, "is a directory")


IMPOSTORS = {
    "does nothing": "(void)args;",
    "copies x": "memcpy(args->out->data, args->x->data, bytes_of(args->out));",
    "writes zeros": "memset(args->out->data, 0, bytes_of(args->out));",
    "writes one value too many": "memset(args->out->data, 0, bytes_of(args->out) + 1);",
}


@pytest.mark.needs_plain_build
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_one_wrong_value_fails_a_narrow_problem(tmp_path):
    """Off by a fifth of the values' RMS, of which the RMS of thousands of errors says nothing."""
    source = """
    #include <dlfcn.h>
    #include <stdint.h>
    #include "trimul/trimul.h"
    trimul_status trimul_execute(const trimul_plan* plan, const trimul_execute_args* args) {
      trimul_status (*execute)(const trimul_plan*, const trimul_execute_args*);
      *(void**)&execute = dlsym(RTLD_NEXT, "trimul_execute");
      const trimul_status status = execute(plan, args);
      union { uint32_t bits; float value; } number;
      uint16_t* out = args->out->data;
      number.bits = (uint32_t)out[777] << 16;
      number.value += 0.2f;
      out[777] = (uint16_t)(number.bits >> 16);
      return status;
    }"""
    (tmp_path / "impostor.c").write_text(source)
    library = tmp_path / "impostor.so"
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I", command.ROOT / "include", tmp_path / "impostor.c", "-o", library, "-ldl"], check=True)
    path = tmp_path / "shapes.txt"
    path.write_text("1 40 8 16 bf16 outgoing random all")
    for arguments in (["verify", "--seed", "1", "--impl", "cpu", "--shapes", path], ["bench", "--impl", "cpu", "--shapes", path]):
        command.fails(command.run(*arguments, env={**command.os.environ, "LD_PRELOAD": str(library)}), 1, "failed")
    assert "value 777 is" in command.run("verify", "--impl", "cpu", "--shapes", path, env={**command.os.environ, "LD_PRELOAD": str(library)}).stdout
    command.succeeds(command.run("verify", "--seed", "1", "--impl", "cpu", "--shapes", path))


# Seeds at which the sums of the plain composition hit upon a small error one way and a larger one the other: problem, twice the former.
LUCKY = [(122, "1 9 3 2 fp32 incoming", 2.7e-6), (106, "1 7 3 2 fp32 outgoing", 2.4e-6), (210, "1 18 3 2 fp32 incoming", 2.0e-6), (115, "1 7 3 2 fp32 incoming", 1.9e-6),
         (144, "1 14 3 2 fp32 incoming", 2.0e-6), (56, "1 5 3 2 fp32 outgoing", 5.0e-6), (79, "1 7 3 2 fp32 outgoing random all", 1.7e-6)]


def test_narrow_bounds_look_at_two_samples_of_the_plain_error(tmp_path):
    """Over two channels a single rounding decides, so that a right result fails a bound from the luckier sample alone."""
    path = tmp_path / "shapes.txt"
    raised = 0
    for seed, problem, from_one_sample in LUCKY:
        path.write_text(problem)
        (entry,) = command.run_json("verify", "--impl", "cpu", "--seed", seed, "--shapes", path)["results"]
        assert entry["status"] == "passed"
        raised += entry["bound"] > 2 * from_one_sample
    assert raised > len(LUCKY) / 2  # another machine's fused multiply-adds may have other luck


@pytest.mark.needs_plain_build
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_an_impostor_fails_its_checks(impostor, shapes, tmp_path):
    """A library in front of the real one replaces trimul_execute: verify and bench must notice on every problem."""
    source = f"""
    #include <string.h>
    #include "trimul/trimul.h"
    static size_t bytes_of(const trimul_tensor* t) {{
      size_t bytes = trimul_dtype_bytes((trimul_dtype)t->dtype);
      for (int d = 0; d < t->ndim; ++d) bytes *= (size_t)t->sizes[d];
      return bytes;
    }}
    trimul_status trimul_execute(const trimul_plan* plan, const trimul_execute_args* args) {{
      (void)plan; (void)bytes_of;
      {IMPOSTORS[impostor]}
      return TRIMUL_OK;
    }}"""
    (tmp_path / "impostor.c").write_text(source)
    library = tmp_path / "impostor.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", command.ROOT / "include", tmp_path / "impostor.c", "-o", library], check=True)
    environment = {**command.os.environ, "LD_PRELOAD": str(library)}
    for arguments in (["verify", "--shapes", shapes], ["bench", "--shapes", shapes, "--impl", "cpu"]):
        command.fails(command.run(*arguments, env=environment), 1, "failed")
    built_in = command.run("verify", "--json", env=environment)
    command.fails(built_in, 1, "failed")
    # A result of zeros is right where every projection of y is masked away.
    passed = {entry["problem"] for entry in command.json.loads(built_in.stdout)["results"] if entry["status"] == "passed"}
    assert passed <= ({"2 16 128 128 bf16 outgoing zero"} if impostor == "writes zeros" else set())
