# SPDX-License-Identifier: Apache-2.0
"""Devices other than the CPU, on a stand-in (stand_in_gpu.c) that refuses whatever does not lie in its own memory."""
import shutil
import subprocess

import pytest

import command
import oracle

pytestmark = [pytest.mark.needs_plain_build, pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")]


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Environment in which the machine has one GPU."""
    library = tmp_path_factory.mktemp("stand_in") / "stand_in.so"
    source = command.ROOT / "tests/cli/stand_in_gpu.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-I", command.ROOT / "include", source, "-o", library, "-ldl"], check=True)
    return {**command.os.environ, "LD_PRELOAD": str(library)}


@pytest.fixture
def inputs(tmp_path, rng):
    tensors = command.random_tensors(rng, (2, 7), 32, 48, command.BIASES) | {"mask": (rng.random((7, 7)) < 0.6).astype(float)}
    return tensors, command.write_inputs(tmp_path / "in", tensors)


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_run_on_a_gpu(device, inputs, gpu, tmp_path):
    tensors, path = inputs
    result = command.run("run", path, "-o", tmp_path / "out", "--device", device, "--residual", "--repeat", "3", "--json", env=gpu)
    report = command.json.loads(command.succeeds(result))
    assert report["device"] == "cuda:0" and len(report["times_us"]) == 3
    assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors, residual=True)) < 1e-5


def test_empty_problem_on_a_gpu(gpu, tmp_path, rng):
    tensors = command.random_tensors(rng, (1,), 32, 32) | {"x": command.np.zeros((0, 3, 3, 32))}
    path = command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", path, "-o", tmp_path / "out", "--device", "cuda", env=gpu))
    assert command.read_out(tmp_path / "out")[1].shape == (0, 3, 3, 32)


def test_auto_goes_to_the_cpu_for_what_the_gpu_declines(gpu, tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 32, 32)
    path = command.write_inputs(tmp_path / "in", tensors, {name: "F64" for name in tensors})
    result = command.run("run", path, "-o", tmp_path / "out", "--json", env=gpu)
    report = command.json.loads(command.succeeds(result))
    assert report["device"] == "cpu" and report["implementation"] == "reference"
    command.fails(command.run("run", path, "-o", tmp_path / "out", "--device", "cuda", env=gpu), 3)


def test_forced_cpu_implementation_runs_on_the_cpu(inputs, gpu, tmp_path):
    result = command.run("run", inputs[1], "-o", tmp_path / "out", "--impl", "cpu", "--json", env=gpu)
    assert command.json.loads(command.succeeds(result))["device"] == "cpu"


@pytest.mark.parametrize("device", ["cuda:1", "cuda:99999999999999999999"])
def test_index_out_of_range(device, inputs, gpu, tmp_path):
    command.fails(command.run("run", inputs[1], "-o", tmp_path / "out", "--device", device, env=gpu), 2, "--device", "GPU index", "expected below 1")


def test_device_error_is_exit_4_and_leaves_the_old_output(inputs, gpu, tmp_path):
    (tmp_path / "out").write_bytes(b"old content")
    command.fails(command.run("run", inputs[1], "-o", tmp_path / "out", "--device", "cuda", env=gpu | {"STAND_IN_FAIL": "1"}), 4, "the stand-in failed")
    assert (tmp_path / "out").read_bytes() == b"old content"


def test_verify_and_bench_on_a_gpu(gpu, tmp_path):
    (tmp_path / "shapes").write_text("2 9 32 32 fp32 incoming random all residual\n1 12 64 64 fp32 outgoing padded\n")
    result = command.run("verify", "--shapes", tmp_path / "shapes", "--device", "cuda", "--json", env=gpu)
    report = command.json.loads(command.succeeds(result))
    assert {entry["implementation"] for entry in report["results"] if entry["status"] == "passed"} == {"cuda:sm90"} and report["passed"] == 2
    arguments = ["--shapes", tmp_path / "shapes", "--json", tmp_path / "out"]
    command.succeeds(command.run("bench", *arguments, env=gpu))
    timed = {entry["implementation"]: entry for entry in command.json.loads((tmp_path / "out").read_text())["results"] if "skipped" not in entry}
    assert set(timed) == {"cuda:sm90", "cpu"}
    # No CUDA runtime reaches the stand-in: its executes are timed by the host's clock, and there is nothing to sweep.
    assert timed["cuda:sm90"]["timing"].startswith("host time") and "stages" not in timed["cuda:sm90"]
    command.fails(command.run("bench", "--sweep", env=gpu), 3, "--sweep")
    # The stand-in's ceilings are unknown, the CPU's have been measured.
    assert timed["cuda:sm90"]["floor_us"] is None and timed["cpu"]["floor_us"] > 0


def test_demo_on_a_gpu_takes_bf16(gpu, tmp_path):
    result = command.run("demo", "--structure", "1ubi", "--blocks", "1", "--c-z", "16", "--out", tmp_path, "--json", env=gpu)
    (row,) = command.json.loads(command.succeeds(result))["structures"]
    assert row["device"] == "cuda:0" and row["dtype"] == "bf16" and len(row["times_us"]) == 2
    assert 0 < row["relative_rms_error"] < 2.5e-3  # the stand-in computes as the CPU does
    command.fails(command.run("demo", "--structure", "1ubi", "--dtype", "fp64", "--device", "cuda", "--out", tmp_path, env=gpu), 3, "--dtype fp64")


def test_info_and_explain_name_the_gpu(gpu):
    devices = command.json.loads(command.succeeds(command.run("info", "--json", env=gpu)))["devices"]
    assert [entry["device"] for entry in devices] == ["cpu", "cuda:0"]
    report = command.json.loads(command.succeeds(command.run("explain", "--shape", "1,64,128,128", "--json", env=gpu)))
    assert report["device"] == "cuda:0"
