# SPDX-License-Identifier: Apache-2.0
"""trimul demo: what it computes from a structure, what it writes, and what it refuses."""

import csv
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import command

UBIQUITIN = command.ROOT / "examples/data/1ubi.csv"
HEADER = UBIQUITIN.read_text().splitlines()[0]
ALANINE = "A,1,ALA,0.0,1.4,0.0,0.0,0.0,0.0,1.5,0.0,0.0,-0.5,-0.8,1.2"


def demo(*arguments, **options):
    return command.run("demo", *arguments, **options)


def expected_distances(path):
    """CB-CB distances, computed from the file as the demo's page says."""
    rows = list(csv.DictReader(path.open()))
    points = {atom: np.array([[float(row[f"{atom}_{axis}"] or "nan") for axis in "xyz"] for row in rows]) for atom in ("n", "ca", "c", "cb")}
    b, c = points["ca"] - points["n"], points["c"] - points["ca"]
    ideal = points["ca"] - 0.58273431 * np.cross(b, c) + 0.56802827 * b - 0.54067466 * c
    beta = np.where(np.isnan(points["cb"]), ideal, points["cb"])
    return np.linalg.norm(beta[:, None] - beta[None], axis=-1)


def test_writes_the_distance_map_of_the_structure(tmp_path):
    result = demo("--structure", "1ubi", "--blocks", 1, "--c-z", 16, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    maps = load_file(tmp_path / "1ubi.safetensors")
    assert np.allclose(maps["distance"], expected_distances(UBIQUITIN), atol=1e-3)
    assert maps["pair_norm_before"].shape == maps["pair_norm_after"].shape == maps["mask"].shape == (76, 76)
    assert np.all(maps["mask"] == 1)
    assert list(maps["residue_number"]) == list(range(1, 77))
    assert "PDB 1UBI" in result.stdout


@pytest.mark.parametrize("dtype, allowed", [("fp32", 1e-5), ("bf16", 2.5e-3), ("fp16", 5e-4), ("fp64", 1e-12)])
def test_result_agrees_with_the_oracle_and_differs_from_the_input(tmp_path, dtype, allowed):
    result = demo("--structure", UBIQUITIN, "--blocks", 1, "--c-z", 32, "--dtype", dtype, "--out", tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)["structures"]
    assert row["dtype"] == dtype
    assert row["implementation"] == ("reference" if dtype == "fp64" else "cpu")
    assert 0 <= row["relative_rms_error"] <= allowed
    assert len(row["times_us"]) == 2 and row["checked_cells"] > 0
    assert row == json.loads((tmp_path / "1ubi.json").read_text())
    maps = load_file(tmp_path / "1ubi.safetensors")
    change = maps["pair_norm_after"] - maps["pair_norm_before"]
    assert np.all(np.isfinite(change)) and np.std(change) > 0.05 * np.mean(maps["pair_norm_before"])


def test_same_seed_same_maps(tmp_path):
    for name in ("one", "two"):
        assert demo("--structure", "1ubi", "--blocks", 1, "--c-z", 16, "--out", tmp_path / name).returncode == 0
    one, two = (load_file(tmp_path / name / "1ubi.safetensors") for name in ("one", "two"))
    assert all(np.array_equal(one[key], two[key], equal_nan=True) for key in one)


def test_residues_with_missing_atoms_are_masked(tmp_path):
    lines = UBIQUITIN.read_text().splitlines()
    fields = lines[5].split(",")
    fields[6:9] = ["", "", ""]  # no CA
    lines[5] = ",".join(fields)
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    assert demo("--structure", tmp_path / "gap.csv", "--blocks", 1, "--c-z", 16, "--out", tmp_path).returncode == 0
    maps = load_file(tmp_path / "gap.safetensors")
    expected = np.ones((76, 76))
    expected[4, :] = expected[:, 4] = 0
    assert np.array_equal(maps["mask"], expected)
    assert np.all(np.isfinite(maps["pair_norm_after"]))


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "line 1"),
        ("a,b\n", "line 1"),
        (HEADER + "\n", "holds no residue"),
        (HEADER + "\n" + ALANINE + ",7\n", "line 2 has 16 fields, expected 15"),
        (HEADER + "\n" + ALANINE.replace("1.4", "wide") + "\n", "line 2, field 5 is 'wide', expected a number"),
        (HEADER + "\n" + ALANINE.replace("1.4", "nan") + "\n", "line 2, field 5"),
        (HEADER + "\n" + ALANINE.replace("1.4", "1e300") + "\n", "line 2, field 5"),
        (HEADER + "\n" + ALANINE.replace("A,1,", "A,9999999999,") + "\n", "line 2, field 2"),
        (HEADER + "\n" + ALANINE.replace("1.4", "") + "\n", "line 2, field 5"),
    ],
)
def test_malformed_structures_are_refused(tmp_path, content, message):
    (tmp_path / "bad.csv").write_text(content)
    result = demo("--structure", tmp_path / "bad.csv", "--out", tmp_path)
    command.fails(result, 2, message)
    assert not (tmp_path / "bad.safetensors").exists()


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--structure", "no_such_protein"], 2, "neither a file nor the name"),
        (["--structure", "../../etc/passwd"], 2, "neither a file nor the name"),
        (["--structure", "1ubi", "--blocks", "0"], 2, "--blocks"),
        (["--structure", "1ubi", "--c-z", "-4"], 2, "--c-z"),
        (["--structure", "1ubi", "--dtype", "int8"], 2, "int8"),
        (["--structure", "1ubi", "--device", "tpu"], 2, "tpu"),
        (["--structure", "1ubi", "--out", "/proc/no/such/place"], 1, "cannot be created"),
    ],
)
def test_bad_arguments(tmp_path, arguments, code, message):
    command.fails(demo(*arguments, cwd=tmp_path), code, message)


def test_single_residue(tmp_path):
    (tmp_path / "one.csv").write_text(HEADER + "\n" + ALANINE + "\n")
    result = demo("--structure", tmp_path / "one.csv", "--blocks", 1, "--c-z", 8, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
