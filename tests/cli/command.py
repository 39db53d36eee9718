# SPDX-License-Identifier: Apache-2.0
"""Runs the trimul command, makes its inputs and reads its outputs. Files are written and read here by the format's description, so
that reader and writer under test do not check each other."""
import functools
import json
import os
import pathlib
import struct
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI = pathlib.Path(os.environ.get("TRIMUL_CLI", ROOT / "build/bin/trimul"))

NUMPY_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16,
                "I32": np.int32, "I64": np.int64}
PROJECTIONS = ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight")


@functools.cache
def is_sanitized():
    return b"__asan_init" in CLI.read_bytes()


def run(*args, cli=CLI, **options):
    """The completed process, its output as text (whatever bytes it has)."""
    return subprocess.run([cli, *map(str, args)], capture_output=True, encoding="utf-8", errors="replace", timeout=300, **options)


def fails(result, exit_code, *words):
    """The command ended with `exit_code` and one line on stderr that holds every one of `words`; no crash, no noise."""
    assert result.returncode == exit_code, result
    lines = result.stderr.strip().split("\n")
    assert len(lines) == 1 and lines[0].startswith("trimul: error: "), result.stderr
    for word in words:
        assert str(word) in lines[0], f"{word!r} is not in {lines[0]!r}"
    return lines[0]


def succeeds(result):
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def run_json(*args):
    return json.loads(succeeds(run(*args, "--json")))


# ---- files ---------------------------------------------------------------------------------------------------------------


def bf16_bytes(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def encode(values, dtype):
    values = np.asarray(values)
    return bf16_bytes(values) if dtype == "BF16" else values.astype(np.dtype(NUMPY_DTYPES[dtype]).newbyteorder("<")).tobytes()


def decode(data, dtype, shape):
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, np.dtype(NUMPY_DTYPES[dtype]).newbyteorder("<")).reshape(shape)


def stored(values, dtype):
    """The numbers that a file of that dtype holds."""
    return decode(encode(values, dtype), dtype, np.asarray(values).shape)


def file_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def pack(tensors, dtypes=None):
    """Bytes of a file with `tensors` (name -> values); `dtypes` (name -> dtype) default to F32."""
    header, data = {}, b""
    for name, values in tensors.items():
        dtype = (dtypes or {}).get(name, "F32")
        encoded = encode(values, dtype)
        header[name] = {"dtype": dtype, "shape": list(np.shape(values)), "data_offsets": [len(data), len(data) + len(encoded)]}
        data += encoded
    return file_bytes(header, data)


def write_inputs(path, tensors, dtypes=None):
    path.write_bytes(pack(tensors, dtypes))
    return path


def read_out(path):
    """(dtype, values) of the one tensor `out`; checks the whole file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    assert list(header) == ["out"]
    assert header["out"]["data_offsets"] == [0, len(data)]
    return header["out"]["dtype"], decode(data, header["out"]["dtype"], header["out"]["shape"])


# ---- tensors -------------------------------------------------------------------------------------------------------------

BIASES = ("p_in_bias", "g_in_bias", "p_out_bias", "g_out_bias")


def random_tensors(rng, batch_and_tokens, c_z, c, biases=(), norms=True):
    """x = 1.3 normal + 0.2 of shape [*batch, N, N, C_z] and parameters, all random and not zero. `batch_and_tokens`: (..., N)."""
    *batch, n = batch_and_tokens
    normal = rng.standard_normal
    tensors = {
        "x": 1.3 * normal((*batch, n, n, c_z)) + 0.2,
        "p_in_weight": normal((2 * c, c_z)) / np.sqrt(c_z),
        "g_in_weight": normal((2 * c, c_z)) / np.sqrt(c_z),
        "p_out_weight": normal((c_z, c)) / np.sqrt(c),
        "g_out_weight": normal((c_z, c_z)) / np.sqrt(c_z),
    }
    if norms:
        tensors |= {"norm_in_weight": 1 + 0.2 * normal(c_z), "norm_in_bias": 0.3 * normal(c_z), "norm_out_weight": 1 + 0.2 * normal(c),
                    "norm_out_bias": 0.3 * normal(c)}
    sizes = {"p_in_bias": 2 * c, "g_in_bias": 2 * c, "p_out_bias": c_z, "g_out_bias": c_z}
    return tensors | {name: 0.3 * normal(sizes[name]) for name in biases}
