# SPDX-License-Identifier: Apache-2.0
"""The problem sets hold what shapes/README.md says."""
import importlib.util
import itertools

import pytest

import command

SPEC = importlib.util.spec_from_file_location("generate", command.ROOT / "shapes/generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


PRECISIONS = ["tf32", "tf32x3", "ieee", "bfloat16"]


def axes_of(tier):
    return generate.PORTABLE_AXES if tier == "gpu_portable" else generate.AXES


def rows_of(tier):
    rows = []
    for line in (command.ROOT / f"shapes/{tier}.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        batch, tokens, c_z, c, dtype, direction, *rest = words
        row = {"B": int(batch), "N": int(tokens), "widths": (int(c_z), int(c)), "dtype": dtype, "direction": direction, "mask": "none", "bias": "nobias", "residual": ""}
        precision = [word for word in rest if word in PRECISIONS]
        row["form"] = " ".join([dtype, *precision])
        for word in rest:
            if word not in PRECISIONS:
                row[next(axis for axis in ("mask", "bias", "residual") if word in generate.AXES[axis])] = word
        rows.append(row)
    return rows


def test_axes_are_those_of_the_contract():
    tokens = [*range(1, 41), *range(63, 66), *range(95, 98), *range(99, 102), *range(127, 130), 191, 217, *range(255, 258), *range(383, 386), 500, *range(511, 514),
              *range(767, 770)]
    assert generate.AXES["N"] == tokens
    assert generate.AXES["B"] == [1, 2, 3, 5] and len(generate.AXES["widths"]) == 11
    assert len(generate.AXES["mask"]) == 6 and len(generate.AXES["bias"]) == 6


@pytest.mark.parametrize("tier", ["smoke", "ci", "full", "gpu_portable"])
def test_every_value_of_each_axis(tier):
    rows = rows_of(tier)
    for axis, values in axes_of(tier).items():
        assert set(values) <= {row[axis] for row in rows}, axis


@pytest.mark.parametrize("tier", ["smoke", "ci", "full", "gpu_portable"])
def test_every_pair_of_values(tier):
    rows, table = rows_of(tier), axes_of(tier)
    axes = [axis for axis in table if axis != "N" or tier in ("ci", "full")]
    for left, right in itertools.combinations(axes, 2):
        covered = {(row[left], row[right]) for row in rows}
        missing = set(itertools.product(table[left], table[right])) - covered
        assert not missing, (left, right, missing)


def test_smoke_is_affordable():
    assert sum(generate.multiply_adds(row) for row in rows_of("smoke")) < 1.1e11


def test_files_are_those_that_the_generator_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "__file__", str(tmp_path / "generate.py"))
    generate.main()
    for tier in ("smoke", "ci", "full", "gpu_portable"):
        assert (tmp_path / f"{tier}.txt").read_text() == (command.ROOT / f"shapes/{tier}.txt").read_text()


def test_the_portable_tier_is_affordable():
    """Of a GPU machine's minute: full fp64 references up to 1.5e9 multiply-adds, twice for bf16, and the inputs."""
    rows = rows_of("gpu_portable")
    assert sum(min(generate.multiply_adds(row), 1.5e9) for row in rows) < 1.3e11
    assert max(row["N"] ** 2 * row["B"] * row["widths"][0] for row in rows) < 2e7
    assert {row["form"] for row in rows} >= set(generate.PORTABLE_AXES["form"])


def test_tiny_problems_reach_every_arithmetic_in_both_directions():
    rows = rows_of("gpu_tiny")
    for form in ("bf16", "fp16", "fp32", "fp32 tf32", "fp32 ieee"):
        assert {row["direction"] for row in rows if row["form"] == form} == {"outgoing", "incoming"}
        for index in (0, 1):  # rows of x, rows of y
            assert any(row["widths"][index] > 1536 for row in rows if row["form"] == form), "rows that fit no shared memory"
    assert max(generate.multiply_adds(row) for row in rows) < 1e10


@pytest.mark.parametrize("tier", ["gpu", "gpu_tiny", "gpu_bench", "gpu_bench_portable", "gpu_portable"])
def test_files_for_a_gpu_are_read(tier, tmp_path):
    """By the command, each line: no implementation is run, since none of this name serves a CPU's problems."""
    result = command.run("verify", "--impl", "cuda:sm80", "--device", "cpu", "--shapes", command.ROOT / f"shapes/{tier}.txt")
    command.fails(result, 3, "cuda:sm80")


@pytest.mark.parametrize("word", PRECISIONS)
def test_the_word_for_a_precision(word, tmp_path):
    path = tmp_path / "shapes.txt"
    for line in (f"1 9 16 16 fp32 outgoing {word}", f"2 7 16 32 fp16 incoming {word} random all residual"):
        path.write_text(line)
        (entry,) = command.run_json("verify", "--impl", "cpu", "--seed", 1, "--shapes", path)["results"]
        assert entry["status"] == "passed" and entry["problem"].endswith(word)
        path.write_text(entry["problem"])  # as it is printed
        assert command.run_json("verify", "--impl", "cpu", "--seed", 1, "--shapes", path)["results"] == [entry]


def test_a_precision_decides_the_bounds(tmp_path):
    """bfloat16 has bf16's at any dtype of x: the result's, not those of x."""
    path = tmp_path / "shapes.txt"
    bounds = {}
    for word in ("", *PRECISIONS):
        path.write_text(f"1 9 32 32 fp32 outgoing {word}")
        bounds[word] = [command.run_json("verify", "--impl", name, "--shapes", path)["results"][0]["bound"] for name in ("cpu", "reference")]
    assert bounds == {"": [1e-5, 1e-7], "tf32": [1e-5, 1e-7], "tf32x3": [1e-5, 1e-7], "ieee": [1e-5, 1e-7], "bfloat16": [2.5e-3, 2.5e-3]}


@pytest.mark.parametrize("words, part", [("tf32 ieee", "ieee"), ("tf32 tf32", "tf32"), ("fp8", "fp8"), ("default", "default"), ("TF32", "TF32")])
def test_words_that_are_no_precision(words, part, tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text(f"1 9 16 16 fp32 outgoing {words}")
    command.fails(command.run("verify", "--shapes", path), 2, f"{path}:1", part, "one precision (tf32, tf32x3, ieee, bfloat16)")
