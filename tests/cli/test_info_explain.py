# SPDX-License-Identifier: Apache-2.0
import pytest

import command

NAMES = ["cuda:sm90", "cuda:sm80", "cpu", "reference"]
FIELDS = ["implementation", "device", "rejected", "workspace_bytes", "traffic_bytes", "floor_us"]


def explain(*options):
    return command.run("explain", "--json", *options)


def test_info_lists_devices_implementations_and_build():
    info = command.run_json("info")
    assert info["version"].count(".") == 2
    assert info["devices"][0]["device"] == "cpu" and "threads" in info["devices"][0]["description"]
    assert [entry["name"] for entry in info["implementations"]] == NAMES
    assert all(entry["description"] for entry in info["implementations"])
    assert isinstance(info["architectures"], list)
    text = command.succeeds(command.run("info"))
    for word in (info["version"], *NAMES, "CPU"):
        assert word in text


def test_explain_names_what_serves_and_why_the_others_do_not():
    report = command.json.loads(command.succeeds(explain("--shape", "1,256,128,128", "--device", "cpu")))
    assert list(report)[:6] == FIELDS
    assert report["implementation"] == "cpu" and report["device"] == "cpu"
    assert report["traffic_bytes"] == 18 * 256 * 256 * 128
    assert report["workspace_bytes"] > 0
    assert {entry["name"] for entry in report["rejected"]} == {"cuda:sm90", "cuda:sm80"}
    assert all(entry["reason"] for entry in report["rejected"])
    text = command.succeeds(command.run("explain", "--shape", "1,256,128,128", "--device", "cpu"))
    assert "implementation: cpu" in text and "declined cuda:sm90: " in text


def test_explain_lists_declines_behind_the_chosen_one_too():
    report = command.json.loads(command.succeeds(explain("--shape", "1,8,32,32", "--dtype", "fp64", "--device", "cpu")))
    assert report["implementation"] == "reference"
    assert [entry["name"] for entry in report["rejected"]] == ["cuda:sm90", "cuda:sm80", "cpu"]


@pytest.mark.parametrize("options", [
    ["--dtype", "bf16"], ["--dtype", "fp16", "--direction", "incoming"], ["--dtype", "fp32", "--precision", "ieee"], ["--dtype", "fp32", "--precision", "TF32"],
    ["--precision", "5"]])
def test_explain_takes_the_options_of_a_problem(options):
    report = command.json.loads(command.succeeds(explain("--shape", "2,37,48,96", "--device", "cpu", *options)))
    assert report["implementation"] == "cpu"


def test_explain_exits_3_when_nothing_serves_and_still_says_why():
    result = explain("--shape", "1,64,128,128", "--precision", "mxfp8", "--device", "cpu")
    command.fails(result, 3, "mxfp8")
    report = command.json.loads(result.stdout)
    assert report["implementation"] is None and report["workspace_bytes"] is None
    assert [entry["name"] for entry in report["rejected"]] == NAMES


def test_explain_for_an_architecture_without_its_device():
    """Whether a GPU implementation serves depends on the build; that the CPU ones decline does not."""
    result = explain("--shape", "1,64,128,128", "--arch", "sm90")
    assert result.returncode in (0, 3)
    report = command.json.loads(result.stdout)
    assert report["device"] == "sm90" and (report["implementation"] is None) == (result.returncode == 3)
    assert {"cpu", "reference"} <= {entry["name"] for entry in report["rejected"]}


def test_explain_prints_the_knobs_of_an_architecture():
    result = explain("--shape", "1,64,128,128", "--arch", "sm90")
    if result.returncode == 3:
        pytest.skip(result.stderr)  # not in this build
    lines = command.json.loads(result.stdout)["explain"].split("\n")
    for knob in ("k1_parts", "k2_tile", "overlap"):
        assert sum(line.startswith(f"{knob}: ") for line in lines) == 1


@pytest.mark.parametrize("widths, chosen", [("128,128", "cuda:sm90"), ("256,256", "cuda:sm90"), ("256,128", "cuda:sm80"), ("128,256", "cuda:sm80"), ("192,192", "cuda:sm80")])
def test_hoppers_own_kernels_take_two_widths(widths, chosen):
    result = explain("--shape", f"1,64,{widths}", "--dtype", "bf16", "--arch", "sm90")
    report = command.json.loads(result.stdout)
    reasons = {entry["name"]: entry["reason"] for entry in report["rejected"]}
    if "not in this build" in reasons.get("cuda:sm90", ""):
        pytest.skip(reasons["cuda:sm90"])
    assert report["implementation"] == chosen
    if chosen == "cuda:sm80":
        c_z, c = widths.split(",")
        assert reasons["cuda:sm90"] == f"C_z = C must be 128 or 256, got C_z = {c_z}, C = {c}"


@pytest.mark.parametrize("options, words", [
    (["--shape", "1,2,3"], ["--shape", "four sizes"]),
    (["--shape", "1,2,3,4,5"], ["--shape", "four sizes"]),
    (["--shape", "1,2,x,4"], ["C_z", "'x'"]),
    (["--shape", "1,2,0,4"], ["C_z", "'0'", "at least 1"]),
    (["--shape", "1,2,3,0"], ["--shape: C:", "at least 1"]),
    (["--shape=-1,2,3,4"], ["--shape: B:", "'-1'"]),
    (["--shape", "1,9223372036854775808,3,4"], ["N", "below 2^63"]),
    (["--shape", "1,9223372036854775807,3,4"], ["64-bit"]),
    (["--shape", "9223372036854775807,1,4096,4"], ["64-bit"]),
    (["--shape", "1,2,3,4", "--dtype", "int8"], ["'int8'", "bf16, fp16, fp32"]),
    (["--shape", "1,2,3,4", "--direction", "up"], ["--direction"]),
    (["--shape", "1,2,3,4", "--precision", "9"], ["--precision"]),
    (["--shape", "1,2,3,4", "--arch", "sm70"], ["arch", "'sm70'", "sm90"]),
    (["--shape", "1,2,3,4", "--arch", "sm90", "--device", "cpu"], ["--device"]),
])
def test_explain_refuses(options, words):
    command.fails(command.run("explain", *options), 2, *words)
