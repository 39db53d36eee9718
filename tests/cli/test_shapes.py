# SPDX-License-Identifier: Apache-2.0
"""The problem sets hold what shapes/README.md says."""
import importlib.util
import itertools

import pytest

import command

SPEC = importlib.util.spec_from_file_location("generate", command.ROOT / "shapes/generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


def rows_of(tier):
    rows = []
    for line in (command.ROOT / f"shapes/{tier}.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        batch, tokens, c_z, c, dtype, direction, *rest = words
        row = {"B": int(batch), "N": int(tokens), "widths": (int(c_z), int(c)), "dtype": dtype, "direction": direction, "mask": "none", "bias": "nobias", "residual": ""}
        for word in rest:
            row[next(axis for axis in ("mask", "bias", "residual") if word in generate.AXES[axis])] = word
        rows.append(row)
    return rows


def test_axes_are_those_of_the_contract():
    tokens = [*range(1, 41), *range(63, 66), *range(95, 98), *range(99, 102), *range(127, 130), 191, 217, *range(255, 258), *range(383, 386), 500, *range(511, 514),
              *range(767, 770)]
    assert generate.AXES["N"] == tokens
    assert generate.AXES["B"] == [1, 2, 3, 5] and len(generate.AXES["widths"]) == 11
    assert len(generate.AXES["mask"]) == 6 and len(generate.AXES["bias"]) == 6


@pytest.mark.parametrize("tier", ["smoke", "ci", "full"])
def test_every_value_of_each_axis(tier):
    rows = rows_of(tier)
    for axis, values in generate.AXES.items():
        assert set(values) <= {row[axis] for row in rows}, axis


@pytest.mark.parametrize("tier, axes", [("smoke", [axis for axis in generate.AXES if axis != "N"]), ("ci", list(generate.AXES)), ("full", list(generate.AXES))])
def test_every_pair_of_values(tier, axes):
    rows = rows_of(tier)
    for left, right in itertools.combinations(axes, 2):
        covered = {(row[left], row[right]) for row in rows}
        missing = set(itertools.product(generate.AXES[left], generate.AXES[right])) - covered
        assert not missing, (left, right, missing)


def test_smoke_is_affordable():
    assert sum(generate.multiply_adds(row) for row in rows_of("smoke")) < 1.1e11


def test_files_are_those_that_the_generator_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "__file__", str(tmp_path / "generate.py"))
    generate.main()
    for tier in ("smoke", "ci", "full"):
        assert (tmp_path / f"{tier}.txt").read_text() == (command.ROOT / f"shapes/{tier}.txt").read_text()
