# SPDX-License-Identifier: Apache-2.0
"""trimul run against the formula in numpy float64."""
import numpy as np
import pytest
import safetensors.numpy

import command
import oracle

# Relative RMS to the formula on the stored inputs: the output's own rounding, and fp32 arithmetic on the cpu path.
BOUNDS = {"F64": 1e-12, "F32": 1e-5, "F16": 5e-4, "BF16": 2.5e-3}
MASKS = {
    "none": lambda rng, b, n: None,
    "bool, one for all": lambda rng, b, n: (rng.random((n, n)) < 0.7, "BOOL"),
    "int64, each sample": lambda rng, b, n: ((rng.random((*b, n, n)) < 0.6).astype(np.int64), "I64"),
    "fp32, fractional": lambda rng, b, n: (rng.uniform(-0.5, 1.5, (*b, n, n)), "F32"),
    "fp16, trailing 1": lambda rng, b, n: (rng.uniform(0, 1, (*b, n, n, 1)), "F16"),
    "uint8, zero": lambda rng, b, n: (np.zeros((n, n)), "U8"),
    "int32, one token off": lambda rng, b, n: (np.outer(np.arange(n) != n // 2, np.ones(n)), "I32"),
    "fp64, leading 1": lambda rng, b, n: (rng.uniform(0, 2, (*[1] * len(b), n, n)), "F64"),
    "int16, padded": lambda rng, b, n: ((np.arange(n)[:, None] < n - 2) & (np.arange(n) < n - 1), "I16"),
    "bf16": lambda rng, b, n: (rng.uniform(-1, 1, (n, n)), "BF16"),
    "int8, negative": lambda rng, b, n: (rng.integers(-2, 3, (n, n)), "I8"),
}
BIAS_SETS = [(), command.BIASES, *[(name,) for name in command.BIASES]]
SHAPES = [((9,), 32, 32), ((2, 7), 48, 32), ((2, 3, 5), 32, 64), ((1, 13), 64, 64), ((17,), 96, 40), ((1, 1), 32, 32), ((33,), 40, 33)]


def cases():
    """Every dtype, mask, bias set, shape, direction and residual, with different ones beside each other from case to case."""
    for k in range(60):
        dtype = ("F32", "BF16", "F16", "F64")[k % 4]
        implementation = "reference" if dtype == "F64" or k % 5 == 0 else "cpu"
        yield pytest.param(dtype, implementation, list(MASKS)[k % 11], BIAS_SETS[k % 6 if k % 2 else (k // 7) % 6], SHAPES[(k + k // 7) % 7],
                           ("outgoing", "incoming")[k // 4 % 2], k % 3 == 0, id=f"{k}-{dtype}-{implementation}")


@pytest.mark.parametrize("dtype, implementation, mask, biases, shape, direction, residual", list(cases()))
def test_matches_the_formula(dtype, implementation, mask, biases, shape, direction, residual, tmp_path, rng):
    batch_and_tokens, c_z, c = shape
    tensors = command.random_tensors(rng, batch_and_tokens, c_z, c, biases, norms=rng.random() < 0.8)
    dtypes = {name: dtype if name == "x" or name in command.PROJECTIONS else "F64" if dtype == "F64" else "F32" for name in tensors}
    made = MASKS[mask](rng, batch_and_tokens[:-1], batch_and_tokens[-1])
    if made is not None:
        tensors["mask"], dtypes["mask"] = made
    path = command.write_inputs(tmp_path / "in.safetensors", tensors, dtypes)
    out_path = tmp_path / "out.safetensors"
    command.succeeds(command.run("run", path, "-o", out_path, "--direction", direction, "--impl", implementation, *["--residual"] * residual))
    out_dtype, out = command.read_out(out_path)
    expected = oracle.update({name: command.stored(values, dtypes[name]) for name, values in tensors.items()}, direction, residual=residual)
    assert out_dtype == dtype and out.shape == expected.shape
    assert np.isfinite(out).all()
    assert oracle.relative_rms(out, expected) <= BOUNDS[dtype]


def test_output_is_read_by_the_format_s_own_library(small, tmp_path):
    command.succeeds(command.run("run", small, "-o", tmp_path / "out"))
    loaded = safetensors.numpy.load_file(tmp_path / "out")
    np.testing.assert_array_equal(loaded["out"], command.read_out(tmp_path / "out")[1])


def test_reads_what_the_format_s_own_library_writes(tmp_path, rng):
    tensors = {name: value.astype(np.float32) for name, value in command.random_tensors(rng, (2, 5), 32, 32).items()}
    safetensors.numpy.save_file(tensors, tmp_path / "in", metadata={"format": "np", "note": "é\n中"})
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out"))
    assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors)) < 1e-5


def test_confusions_are_far_outside_the_bounds(tmp_path, rng):
    """The mistakes that users of sister kernels met are visible at the size where this suite works."""
    tensors = command.random_tensors(rng, (9,), 32, 32, norms=False)
    tensors["mask"] = (rng.random((9, 9)) < 0.6).astype(np.float32)
    path = command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", path, "-o", tmp_path / "out"))
    out = command.read_out(tmp_path / "out")[1]
    swapped = tensors | {"p_in_weight": tensors["g_in_weight"], "g_in_weight": tensors["p_in_weight"]}
    wrong = {
        "outgoing for incoming": oracle.update(tensors, "incoming"),
        "p and g swapped": oracle.update(swapped),
        "mask transposed": oracle.update(tensors | {"mask": tensors["mask"].T}),
        "mask forgotten": oracle.update({name: value for name, value in tensors.items() if name != "mask"}),
        "residual added": oracle.update(tensors, residual=True),
        "x returned": tensors["x"],
        "nothing returned": np.full_like(tensors["x"], 1e-30),
    }
    assert oracle.relative_rms(out, oracle.update(tensors)) < 1e-5
    for name, reference in wrong.items():
        assert oracle.relative_rms(out, reference) > 0.3, name


@pytest.mark.parametrize("impl", ["cpu", "reference"])
def test_masked_pairs_contribute_nothing_even_if_they_hold_nan(impl, tmp_path, rng):
    tensors = command.random_tensors(rng, (6,), 32, 32)
    tensors["mask"] = np.ones((6, 6))
    tensors["mask"][:, 4] = tensors["mask"][4, :] = 0
    clean = tensors["x"].copy()
    tensors["x"][4, :, :], tensors["x"][:, 4, :] = np.nan, np.inf
    command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out", "--impl", impl))
    out = command.read_out(tmp_path / "out")[1]
    expected = oracle.update(tensors | {"x": clean})
    kept = np.arange(6) != 4
    assert oracle.relative_rms(out[kept][:, kept], expected[kept][:, kept]) < 1e-5
    assert np.isnan(out[4]).all() and np.isnan(out[:, 4]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["x", "mask", "p_in_weight", "norm_out_bias"])
def test_payloads_that_are_not_finite_reach_the_result_and_nothing_else(bad, name, tmp_path, rng):
    tensors = command.random_tensors(rng, (4,), 32, 32) | {"mask": np.ones((4, 4))}
    tensors[name].flat[5] = bad
    command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "cpu", "--impl", "cpu"))
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "ref", "--impl", "reference"))
    cpu, reference = command.read_out(tmp_path / "cpu")[1], command.read_out(tmp_path / "ref")[1]
    finite = np.isfinite(reference)
    # 3e38 overflows in fp32 where fp64 goes on; NaN and Inf must come out at the same places.
    if np.isfinite(bad):
        assert cpu.shape == reference.shape
    else:
        np.testing.assert_array_equal(np.isfinite(cpu), finite)


@pytest.mark.parametrize("shape", [(0, 5, 5, 32), (2, 0, 0, 32), (0, 0, 32), (3, 0, 4, 4, 32)])
def test_empty_tensors_give_an_empty_result(shape, tmp_path, rng):
    tensors = command.random_tensors(rng, (1,), 32, 32) | {"x": np.zeros(shape)}
    command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out"))
    assert command.read_out(tmp_path / "out")[1].shape == shape


def test_weights_add_and_override(tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 32, 32, command.BIASES)
    first = {name: value for name, value in tensors.items() if name not in ("p_out_weight", "g_in_bias")}
    first["norm_in_weight"] = np.full(7, np.nan)  # overridden, so not even its shape matters
    second = {name: tensors[name] for name in ("p_out_weight", "g_in_bias", "norm_in_weight")}
    command.write_inputs(tmp_path / "a", first)
    command.write_inputs(tmp_path / "b", second)
    command.succeeds(command.run("run", tmp_path / "a", "-o", tmp_path / "out", "--weights", tmp_path / "b"))
    assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors)) < 1e-5


def test_eps_enters_both_norms(tmp_path, rng):
    tensors = command.random_tensors(rng, (7,), 32, 32)
    tensors["x"] *= 0.01
    command.write_inputs(tmp_path / "in", tensors)
    for eps in (1e-12, 1e-3, 2.5):
        command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out", "--eps", f"{eps}"))
        assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors, eps=eps)) < 1e-5


def test_data_that_is_not_aligned_in_the_file_is_served(tmp_path, rng):
    """The header's length is odd, so is a one-byte tensor in front of x."""
    tensors = {"mask": np.ones((5, 5))} | command.random_tensors(rng, (5,), 32, 32)
    content = command.pack(tensors, {"mask": "BOOL"})
    header_bytes = int.from_bytes(content[:8], "little")
    padded = (header_bytes + 1).to_bytes(8, "little") + content[8 : 8 + header_bytes] + b" " + content[8 + header_bytes :]
    (tmp_path / "in").write_bytes(padded)
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out"))
    assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors)) < 1e-5


def test_offsets_beyond_4_gib_are_served(tmp_path, rng):
    """A sparse file: 5 GiB of a tensor that --weights overrides, so that its bytes are never read, in front of all others."""
    tensors = command.random_tensors(rng, (5,), 32, 32)
    gap = 5 << 30
    header, at, data = {"mask": {"dtype": "U8", "shape": [gap], "data_offsets": [0, gap]}}, gap, b""
    for name, values in tensors.items():
        encoded = command.encode(values, "F32")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + len(encoded)]}
        at, data = at + len(encoded), data + encoded
    start = command.file_bytes(header)
    with open(tmp_path / "in", "wb") as file:
        file.write(start)
        file.seek(len(start) + gap)
        file.write(data)
    mask = {"mask": (rng.random((5, 5)) < 0.5).astype(np.float32)}
    command.write_inputs(tmp_path / "mask", mask)
    command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / "out", "--weights", tmp_path / "mask"))
    assert oracle.relative_rms(command.read_out(tmp_path / "out")[1], oracle.update(tensors | mask)) < 1e-5


def test_result_does_not_depend_on_the_number_of_threads(tmp_path, rng):
    command.write_inputs(tmp_path / "in", command.random_tensors(rng, (2, 33), 64, 64))
    for threads in ("1", "2", "5"):
        command.succeeds(command.run("run", tmp_path / "in", "-o", tmp_path / threads, env={"TRIMUL_NUM_THREADS": threads}))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "5").read_bytes()
