# SPDX-License-Identifier: Apache-2.0
"""Tensors that no implementation could accept: exit 2, one line that names tensor, dimension, got and expected, nothing written."""
import resource

import numpy as np
import pytest

import command

# Of a problem with N = 5, C_z = 6, C = 4: what to replace, and the words that the message holds.
WRONG = {
    "x of two dimensions": ({"x": (5, 6)}, ["x:", "number of dimensions is 2", "[5, 6]", "at least 3"]),
    "x not square": ({"x": (5, 7, 6)}, ["x:", "dimension N", "is 7", "expected 5"]),
    "x of another width": ({"x": (5, 5, 8)}, ["norm_in_weight:", "C_z", "is 6", "expected 8"]),
    "mask of other tokens": ({"mask": (4, 5)}, ["mask:", "dimension N", "is 4", "expected 5"]),
    "mask of one token": ({"mask": (5, 1)}, ["mask:", "dimension N", "expected 5"]),
    "mask of one dimension": ({"mask": (5,)}, ["mask:", "number of dimensions is 1", "at least 2"]),
    "mask with a batch": ({"mask": (2, 5, 5)}, ["mask:", "is 2", "expected 1"]),
    "mask of another batch": ({"x": (3, 5, 5, 6), "mask": (2, 5, 5)}, ["mask:", "is 2", "expected 3"]),
    "p_in of odd rows": ({"p_in_weight": (7, 6)}, ["p_in_weight:", "2C", "is 7", "even"]),
    "p_in without rows": ({"p_in_weight": (0, 6)}, ["p_in_weight:", "2C", "is 0"]),
    "p_in of three dimensions": ({"p_in_weight": (8, 6, 1)}, ["p_in_weight:", "number of dimensions is 3", "expected 2"]),
    "p_in of one dimension": ({"p_in_weight": (48,)}, ["p_in_weight:", "number of dimensions is 1", "expected 2"]),
    "p_in transposed": ({"p_in_weight": (6, 8)}, ["p_in_weight:", "is 8", "expected 6"]),
    "g_in of other rows": ({"g_in_weight": (6, 6)}, ["g_in_weight:", "2C", "is 6", "expected 8"]),
    "g_in of another width": ({"g_in_weight": (8, 5)}, ["g_in_weight:", "C_z", "is 5", "expected 6"]),
    "p_out transposed": ({"p_out_weight": (4, 6)}, ["p_out_weight:", "is 4", "expected 6"]),
    "g_out not square": ({"g_out_weight": (6, 4)}, ["g_out_weight:", "C_z", "is 4", "expected 6"]),
    "norm_in_weight": ({"norm_in_weight": (4,)}, ["norm_in_weight:", "C_z", "is 4", "expected 6"]),
    "norm_in_bias": ({"norm_in_bias": (1, 6)}, ["norm_in_bias:", "number of dimensions is 2", "expected 1"]),
    "norm_out_weight": ({"norm_out_weight": (6,)}, ["norm_out_weight:", "dimension C ", "is 6", "expected 4"]),
    "norm_out_bias": ({"norm_out_bias": ()}, ["norm_out_bias:", "number of dimensions is 0", "expected 1"]),
    "p_in_bias": ({"p_in_bias": (4,)}, ["p_in_bias:", "2C", "is 4", "expected 8"]),
    "g_in_bias": ({"g_in_bias": (9,)}, ["g_in_bias:", "2C", "is 9", "expected 8"]),
    "p_out_bias": ({"p_out_bias": (4,)}, ["p_out_bias:", "C_z", "is 4", "expected 6"]),
    "g_out_bias": ({"g_out_bias": (8,)}, ["g_out_bias:", "C_z", "is 8", "expected 6"]),
    "x without channels": ({"x": (5, 5, 0)}, ["c_z", "is 0", "at least 1"]),
}


def assert_refused(path, out, *words, extra=()):
    command.fails(command.run("run", path, "-o", out, *extra), 2, *words)
    assert not out.exists() and not list(out.parent.glob(".trimul*"))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_shapes(name, tmp_path, rng):
    shapes, words = WRONG[name]
    tensors = command.random_tensors(rng, (5,), 6, 4) | {tensor: np.ones(shape) for tensor, shape in shapes.items()}
    assert_refused(command.write_inputs(tmp_path / "in", tensors), tmp_path / "out", *words)


@pytest.mark.needs_plain_build
@pytest.mark.parametrize("implementation", [[], ["--impl", "cpu"], ["--impl", "reference"], ["--impl", "cuda:sm90"]])
def test_what_is_wrong_is_not_reported_as_what_does_not_fit(implementation, tmp_path, rng):
    """Of 30,000 tokens, whose workspace no machine has that is limited to 4 GiB; nor does a GPU's absence come first."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    tensors = command.random_tensors(rng, (1,), 1, 32)
    for wrong, words in ({"x": np.ones((30_000, 1, 1))}, ["x:", "dimension N", "is 1", "expected 30000"]), ({"x": np.ones((0, 30_000, 30_000, 1)), "mask": np.ones((5, 5))}, [
            "mask:", "dimension N", "is 5", "expected 30000"]), ({"x": np.ones((2, 2, 1)), "mask": np.ones((5, 5))}, ["mask:", "is 5", "expected 2"]):
        path = command.write_inputs(tmp_path / "in", tensors | wrong)
        command.fails(command.run("run", path, "-o", tmp_path / "out", *implementation, preexec_fn=limit), 2, *words)


@pytest.mark.parametrize("dtype", ["BOOL", "U8", "I8", "I16", "I32", "I64"])
def test_integers_are_for_masks_alone(dtype, tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 6, 4, command.BIASES)
    for name in ("x", "p_in_weight", "norm_in_bias", "g_out_bias"):
        path = command.write_inputs(tmp_path / "in", tensors, {name: dtype})
        assert_refused(path, tmp_path / "out", f"{name}:", "dtype is", "expected bf16, fp16, fp32 or fp64")


@pytest.mark.parametrize("name", ["x", *command.PROJECTIONS])
def test_missing_tensors(name, tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 6, 4)
    path = command.write_inputs(tmp_path / "in", {key: value for key, value in tensors.items() if key != name})
    assert_refused(path, tmp_path / "out", f"{name}: is missing", "four projections")


@pytest.mark.parametrize("name", ["X", "weight", "p_in.weight", "out", "x ", "", "a\nb", "é", "n" * 5000])
def test_names_outside_the_contract(name, tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 6, 4)
    path = command.write_inputs(tmp_path / "in", tensors | {name: np.ones(1)})
    assert_refused(path, tmp_path / "out", "is no argument of the update", "norm_in_weight")
    plain = command.write_inputs(tmp_path / "plain", tensors)
    weights = command.write_inputs(tmp_path / "weights", {name: np.ones(1)})
    assert_refused(plain, tmp_path / "out", "weights", "is no argument of the update", extra=["--weights", weights])


def test_input_that_cannot_be_opened(small, tmp_path):
    assert_refused(tmp_path / "absent", tmp_path / "out", "absent: cannot be opened: No such file")
    assert_refused(tmp_path, tmp_path / "out", "is not a regular file")
    assert_refused(small, tmp_path / "out", "absent: cannot be opened", extra=["--weights", tmp_path / "absent"])


def test_named_pipe_is_refused_rather_than_waited_for(tmp_path):
    command.os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", tmp_path / "out", "is not a regular file")


def test_sizes_that_overflow_are_refused(tmp_path, rng):
    """Empty tensors may claim any size; products of the others must still fit."""
    tensors = {name: value for name, value in command.random_tensors(rng, (5,), 6, 4).items() if name != "x"}
    content = command.pack(tensors)
    length = int.from_bytes(content[:8], "little")
    header = command.json.loads(content[8 : 8 + length])
    for shape in ([0, 2**40, 2**40, 6], [2**32, 2**32, 0, 0, 6], [0, 2**62, 2**62, 6]):
        header["x"] = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        (tmp_path / "in").write_bytes(command.file_bytes(header, content[8 + length :]))
        assert_refused(tmp_path / "in", tmp_path / "out", "x", "fit")
