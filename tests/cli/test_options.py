# SPDX-License-Identifier: Apache-2.0
"""Options of trimul run: what they take, what they refuse, and how."""
import json
import os
import re
import subprocess

import numpy as np
import pytest

import command
import oracle


def gpus():
    return [entry for entry in command.run_json("info")["devices"] if entry["device"].startswith("cuda")]


needs_no_gpu = pytest.mark.skipif("gpus()", reason="this machine has a GPU")

GOOD_EPS = ["1e-5", "0.1", "1", ".5", "2.", "1E-3", "1e+2", "+1e-5", "1e-45", "3.4e38", "0.000000001", "00.1"]
BAD_EPS = ["0", "-1e-5", "0.0", "1e-46", "1e-400", "3.5e38", "1e400", "nan", "inf", "-inf", "infinity", "0x1p-10", "0x1", "1e", "e5", ".", "", " 1", "1 ", "1e-5x",
           "1,5", "1e5.0", "1f", "++1", "1e--5", "١", "1_0"]


@pytest.mark.parametrize("eps", GOOD_EPS)
def test_eps_in_decimal_or_exponent_form(eps, small, tmp_path):
    command.succeeds(command.run("run", small, "-o", tmp_path / "out", "--eps", eps))


@pytest.mark.parametrize("eps", BAD_EPS)
def test_eps_anything_else(eps, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", f"--eps={eps}"), 2, "--eps")
    assert not (tmp_path / "out").exists()


def test_eps_does_not_follow_the_locale(small, tmp_path):
    environment = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
    command.succeeds(command.run("run", small, "-o", tmp_path / "out", "--eps", "0.5", env=environment))
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--eps", "0,5", env=environment), 2, "--eps: got '0,5'")


@pytest.mark.parametrize("precision", ["none", "None", "default", "DEFAULT", "tf32", "TF32", "tf32x3", "TF32x3", "ieee", "IEEE", "-1", "0", "1", "2", "3"])
def test_precisions_that_keep_the_dtype(precision, small, tmp_path):
    command.succeeds(command.run("run", small, "-o", tmp_path / "out", "--precision", precision))
    assert command.read_out(tmp_path / "out")[0] == "F32"


@pytest.mark.parametrize("precision", ["bfloat16", "bf16", "BFloat16", "BF16", "5"])
def test_precision_bf16_gives_bf16(precision, tmp_path, rng):
    tensors = command.random_tensors(rng, (6,), 32, 32)
    path = command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", path, "-o", tmp_path / "out", "--precision", precision))
    dtype, out = command.read_out(tmp_path / "out")
    assert dtype == "BF16"
    rounded = tensors | {"x": command.stored(tensors["x"], "BF16")}
    assert oracle.relative_rms(out, oracle.update(rounded)) < 5e-3


@pytest.mark.parametrize("precision", ["mxfp8", "MXFP8", "4"])
def test_precision_that_does_not_exist_yet(precision, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--precision", precision), 3, "mxfp8")


@pytest.mark.parametrize("precision", ["6", "-2", "99", "fp32", "tf32x2", "1.0", "0x1", "bf 16"])
def test_precision_outside_the_contract(precision, small, tmp_path):
    line = command.fails(command.run("run", small, "-o", tmp_path / "out", f"--precision={precision}"), 2, "--precision", "expected", "tf32x3", "bfloat16")
    assert f"got '{precision}'" in line


@pytest.mark.parametrize("direction", ["Outgoing", "INCOMING", "in", "0", "outgoing "])
def test_direction_is_case_sensitive(direction, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", f"--direction={direction}"), 2, "--direction", f"got '{direction}'", "expected outgoing or incoming")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda: 0", "cpu:0", "CPU", "cuda:0:0", "cuda0"])
def test_device_malformed(device, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", f"--device={device}"), 2, "--device", "expected auto, cpu, cuda or cuda:INDEX")


@needs_no_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7", "cuda:99999999999999999999"])
def test_device_without_a_gpu(device, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--device", device), 3, "--device", "GPU", "expected cpu or auto")


@pytest.mark.skipif("not gpus()", reason="this machine has no GPU")
def test_device_index_out_of_range(small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--device", "cuda:99"), 2, "99")


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_device_served(device, small, tmp_path):
    assert command.run_json("run", small, "-o", tmp_path / "out", "--device", device)["device"] == "cpu" or gpus()


def test_implementation_by_name(small, tmp_path):
    for name in ("cpu", "reference"):
        assert command.run_json("run", small, "-o", tmp_path / "out", "--device", "cpu", "--impl", name)["implementation"] == name
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--impl", "cudnn"), 2, "cudnn", "cuda:sm90, cuda:sm80, cpu, reference")
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--impl", "CPU"), 2, "'CPU'")


@needs_no_gpu
@pytest.mark.parametrize("name", ["cuda:sm80", "cuda:sm90"])
def test_implementation_that_cannot_serve(name, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", "--impl", name), 3, f"declined {name}: ")


def test_fp64_goes_through_the_reference(tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 32, 32)
    path = command.write_inputs(tmp_path / "in", tensors, {name: "F64" for name in tensors})
    report = command.run_json("run", path, "-o", tmp_path / "out")
    assert report["implementation"] == "reference"
    assert "cpu" in {entry["name"] for entry in report["rejected"]}
    command.fails(command.run("run", path, "-o", tmp_path / "out", "--impl", "cpu"), 3, "cpu", "fp64")


@pytest.mark.parametrize("repeat", ["0", "-1", "x", "1.5", "99999999999999999999", "0x2"])
def test_repeat_refused(repeat, small, tmp_path):
    command.fails(command.run("run", small, "-o", tmp_path / "out", f"--repeat={repeat}"), 2, "--repeat", "at least 1")


def test_repeat_runs_on_unchanged_input(small, tmp_path):
    once = command.run_json("run", small, "-o", tmp_path / "once", "--residual")
    many = command.run_json("run", small, "-o", tmp_path / "many", "--residual", "--repeat", "4")
    assert len(once["times_us"]) == 1 and len(many["times_us"]) == 4
    assert (tmp_path / "once").read_bytes() == (tmp_path / "many").read_bytes()


def test_json_is_one_object_with_the_fixed_fields(small, tmp_path):
    result = command.run("run", small, "-o", tmp_path / "out", "--json")
    report = json.loads(command.succeeds(result))
    assert list(report) == ["implementation", "device", "rejected", "workspace_bytes", "traffic_bytes", "floor_us", "times_us"]
    assert all(set(entry) == {"name", "reason"} and entry["reason"] for entry in report["rejected"])
    assert report["workspace_bytes"] >= 0 and all(time > 0 for time in report["times_us"])
    # 3 * 3 pairs of fp32: x twice, out once, six planes of two channels.
    assert report["traffic_bytes"] == 9 * 4 * (3 * 4 + 6 * 2)
    assert report["floor_us"] is None or gpus()


@pytest.mark.parametrize("arguments, words", [
    ([], ["subcommand"]),
    (["frobnicate"], ["'frobnicate'", "run, info, explain, verify, bench"]),
    (["run", "in", "-o", "a", "--eps="], ["--eps"]),
    (["run", "in", "-o", "a", "--repeat="], ["--repeat"]),
    (["run"], ["input"]),
    (["run", "in"], ["output"]),
    (["run", "in", "-o"], ["output"]),
    (["run", "in", "-o", "a", "extra"], ["extra"]),
    (["run", "in", "-o", "a", "--frobnicate"], ["--frobnicate"]),
    (["run", "in", "-o", "a", "--eps", "1", "--eps", "2"], ["--eps"]),
    (["explain"], ["--shape"]),
    (["info", "extra"], ["extra"]),
    (["verify", "--shapes"], ["--shapes"]),
    (["bench", "--shape", "1,2,3,4", "--shapes", "f"], ["--shape"]),
])
def test_usage_errors(arguments, words):
    command.fails(command.run(*arguments), 2, *words)


EMPTY = {
    "run": [["--output"], ["--weights"], ["--direction"], ["--device"], ["--impl"], ["--precision"], ["--eps"], ["--repeat"], ["-o", "--output"]],
    "explain": [["--shape"], ["--dtype"], ["--direction"], ["--precision"], ["--device"], ["--arch"]],
    "verify": [["--device"], ["--impl"], ["--shapes"], ["--seed"]],
    "bench": [["--shapes"], ["--shape"], ["--dtype"], ["--direction"], ["--device"], ["--impl"], ["--json"], ["--html"]],
    "demo": [["--structure"], ["--blocks"], ["--c-z"], ["--device"], ["--dtype"], ["--out"]],
}


@pytest.mark.parametrize("name, option", [(name, option) for name, options in EMPTY.items() for option in options])
def test_an_empty_value_is_not_an_option_left_out(name, option, small, tmp_path):
    """As from a script's variable that is not set; a command that takes it for left out starts to work."""
    needed = {"run": [small, "-o", tmp_path / "out"], "explain": ["--shape", "1,4,8,8"]}.get(name, [])
    if name == "run" and option[-1] == "--output":
        needed = [small]
    if option == ["--shape"]:
        needed = []
    result = command.run(name, *needed, option[0], "", cwd=tmp_path)
    assert command.fails(result, 2) == f"trimul: error: {option[-1]}: got '', expected a value (see trimul --help)"
    assert result.stdout == "" and not (tmp_path / "out").exists()


def test_every_option_that_takes_a_value_is_among_those():
    for name, options in EMPTY.items():
        # An option's type is in capitals; a flag has none, or the name of what it excludes.
        listed = set(re.findall(r"(--[a-z-]+) (?!Excludes)[A-Z]", command.succeeds(command.run(name, "--help"))))
        assert listed == {option[-1] for option in options}, name


def test_version_and_help():
    assert command.succeeds(command.run("--version")).strip() == f"trimul {command.run_json('info')['version']}"
    for arguments in (["--help"], *([name, "--help"] for name in ("run", "info", "explain", "verify", "bench", "demo"))):
        assert "Usage" in command.succeeds(command.run(*arguments)), arguments


def test_text_output_names_what_ran(small, tmp_path):
    text = command.succeeds(command.run("run", small, "-o", tmp_path / "out", "--device", "cpu"))
    assert "cpu" in text and "fp32" in text and "[3, 3, 4]" in text


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["explain", "--shape", "1,64,32,32"]])
def test_output_that_cannot_be_printed(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([command.CLI, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and "standard output" in result.stderr


@pytest.fixture
def slow(tmp_path, rng):
    """A few seconds of fp64 loops, from a small file."""
    return command.write_inputs(tmp_path / "in", command.random_tensors(rng, (110,), 4, 384)), ["--impl", "reference"]


def test_nothing_on_stderr_that_is_no_terminal(slow, tmp_path):
    path, options = slow
    assert command.run("run", path, "-o", tmp_path / "out", *options).stderr == ""


def test_long_work_shows_progress_on_a_terminal(slow, tmp_path):
    path, options = slow
    terminal, other_end = os.openpty()
    process = subprocess.Popen([command.CLI, "run", path, "-o", tmp_path / "out", *options, "--repeat", "500"], stdout=subprocess.PIPE, stderr=other_end)
    os.close(other_end)
    shown = b""
    while b" of 500, 1 s" not in shown and len(shown) < 100_000:
        shown += os.read(terminal, 4096)  # fails when the command ends without it
    process.kill()
    process.wait()
    os.close(terminal)
    assert b"computing, run " in shown
