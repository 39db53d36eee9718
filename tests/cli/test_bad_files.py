# SPDX-License-Identifier: Apache-2.0
"""Files that are not what they claim: exit 2 or a correct result, never a crash, never a partial output."""
import concurrent.futures
import json
import struct

import numpy as np
import pytest

import command


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def text(**fields):
    """JSON of an entry as bytes, each field as given."""
    values = {"dtype": '"U8"', "shape": "[1]", "data_offsets": "[0,1]"} | fields
    return ("{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}").encode()


def one(raw_entry, data=b"\0"):
    return command.file_bytes(b'{"x":' + raw_entry + b"}", data)


def length(count, rest=b"{}"):
    return struct.pack("<Q", count) + rest


BAD = {
    "no bytes": b"",
    "seven bytes": b"\x02\0\0\0\0\0\0",
    "header length 0": length(0),
    "header length 1": length(1, b"{"),
    "header length beyond the file by one": length(3),
    "header length of the whole file": length(10),
    "header length of the file plus one": length(11),
    "header length 2^31": length(2**31),
    "header length 2^63": length(2**63),
    "header length 2^64 - 1": length(2**64 - 1),
    "header length 2^64 - 8": length(2**64 - 8),
    "not JSON": command.file_bytes(b"[[[[[[["),
    "array": command.file_bytes(b"[]"),
    "number": command.file_bytes(b"12"),
    "blank first": command.file_bytes(b" {}"),
    "byte-order mark": command.file_bytes(b"\xef\xbb\xbf{}"),
    "two objects": command.file_bytes(b"{}{}"),
    "text after the object": command.file_bytes(b"{} x"),
    "zero byte after the object": command.file_bytes(b"{}\0\0"),
    "zero byte then more": command.file_bytes(b'{}\0{"x":1}'),
    "trailing comma": one(text(shape="[1,]")),
    "comment": command.file_bytes(b"{/**/}"),
    "single quotes": command.file_bytes(b"{'x':1}"),
    "ill-formed UTF-8": command.file_bytes(b'{"\xc3\x28":' + text() + b"}", b"\0"),
    "lone surrogate": command.file_bytes(b'{"\\ud800":' + text() + b"}", b"\0"),
    "raw control character": command.file_bytes(b'{"a\nb":' + text() + b"}", b"\0"),
    "data without a tensor": command.file_bytes({}, b"\0"),
    "data beyond the tensors": command.file_bytes({"x": entry("U8", [1], 0, 1)}, b"\0\0"),
    "entry is a number": command.file_bytes({"x": 1}),
    "entry is null": command.file_bytes({"x": None}),
    "entry is a list": command.file_bytes({"x": []}),
    "entry is a string": command.file_bytes({"x": "F32"}),
    "no dtype": command.file_bytes({"x": {"shape": [1], "data_offsets": [0, 1]}}, b"\0"),
    "no shape": command.file_bytes({"x": {"dtype": "U8", "data_offsets": [0, 1]}}, b"\0"),
    "no offsets": command.file_bytes({"x": {"dtype": "U8", "shape": [1]}}, b"\0"),
    "unknown field": command.file_bytes({"x": entry("U8", [1], 0, 1) | {"strides": [1]}}, b"\0"),
    "dtype unknown": one(text(dtype='"F31"')),
    "dtype in lower case": one(text(dtype='"u8"')),
    "dtype of eight bits that we do not take": one(text(dtype='"F8_E4M3"')),
    "dtype empty": one(text(dtype='""')),
    "dtype a number": one(text(dtype="1")),
    "dtype a list": one(text(dtype="[]")),
    "dtype null": one(text(dtype="null")),
    "shape a number": one(text(shape="1")),
    "shape an object": one(text(shape="{}")),
    "shape nested": one(text(shape="[[1]]")),
    "size negative": one(text(shape="[-1]")),
    "size minus zero": one(text(shape="[-0]", data_offsets="[0,0]"), b""),
    "size a float": one(text(shape="[1.0]")),
    "size in exponent form": one(text(shape="[1e0]")),
    "size a string": one(text(shape='["1"]')),
    "size true": one(text(shape="[true]")),
    "size null": one(text(shape="[null]")),
    "size 2^63": one(text(shape="[9223372036854775808]")),
    "size 2^64": one(text(shape="[18446744073709551616]")),
    "size of 400 digits": one(text(shape="[" + "9" * 400 + "]")),
    "33 dimensions": one(text(shape=str([1] * 33))),
    "100000 dimensions": one(text(shape=str([1] * 100000))),
    "product overflows 64 bits": one(text(shape="[4294967296,4294967296]")),
    "product overflows to the right length": one(text(shape="[4294967297,4294967297,1]", data_offsets="[0,8589934593]")),
    "product fits, bytes do not": one(text(dtype='"F64"', shape="[2305843009213693952]", data_offsets="[0,0]"), b""),
    "product overflows beside a zero": one(text(shape="[0,9223372036854775807,3]", data_offsets="[0,0]"), b""),
    "offsets reversed": one(text(data_offsets="[1,0]")),
    "offsets beyond the end": one(text(shape="[2]", data_offsets="[0,2]")),
    "offsets far beyond the end": one(text(data_offsets="[18446744073709551614,18446744073709551615]")),
    "offset 2^64": one(text(data_offsets="[0,18446744073709551616]")),
    "offset negative": one(text(data_offsets="[-1,0]")),
    "offset a float": one(text(data_offsets="[0,1.0]")),
    "one offset": one(text(data_offsets="[1]")),
    "three offsets": one(text(data_offsets="[0,1,1]")),
    "no offset": one(text(data_offsets="[]")),
    "offsets do not match the shape": one(text(shape="[2]")),
    "overlap": command.file_bytes({"x": entry("U8", [4], 0, 4), "mask": entry("U8", [4], 2, 6)}, bytes(6)),
    "overlap, one inside another": command.file_bytes({"x": entry("U8", [6], 0, 6), "mask": entry("U8", [2], 2, 4)}, bytes(6)),
    "same bytes twice": command.file_bytes({"x": entry("U8", [4], 0, 4), "mask": entry("U8", [4], 0, 4)}, bytes(4)),
    "hole": command.file_bytes({"x": entry("U8", [2], 0, 2), "mask": entry("U8", [2], 4, 6)}, bytes(6)),
    "hole in front": command.file_bytes({"x": entry("U8", [2], 2, 4)}, bytes(4)),
    "name twice": command.file_bytes(b'{"x":' + text() + b',"x":' + text() + b"}", b"\0"),
    "name twice, once escaped": command.file_bytes(b'{"x":' + text() + b',"\\u0078":' + text() + b"}", b"\0"),
    "dtype twice": one(b'{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}'),
    "shape twice": one(b'{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}'),
    "offsets twice": one(b'{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}'),
    "metadata twice": command.file_bytes(b'{"__metadata__":{},"__metadata__":{}}'),
    "metadata key twice": command.file_bytes(b'{"__metadata__":{"a":"1","a":"2"}}'),
    "metadata a string": command.file_bytes({"__metadata__": "pt"}),
    "metadata of numbers": command.file_bytes({"__metadata__": {"a": 1}}),
    "metadata nested": command.file_bytes({"__metadata__": {"a": {"b": "c"}}}),
    "metadata a tensor": command.file_bytes({"__metadata__": entry("U8", [1], 0, 1)}, b"\0"),
    "a million brackets": command.file_bytes(b'{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "a million braces": command.file_bytes(b'{"x":' * 1_000_000 + b"1" + b"}" * 1_000_000),
}


def run_on(content, tmp_path, name="in"):
    path = tmp_path / name
    path.write_bytes(content)
    out = tmp_path / f"{name}.out"
    out.write_bytes(b"old content")
    return command.run("run", path, "-o", out), out


def assert_refused(result, out):
    line = command.fails(result, 2)
    assert len(line) < 1000
    assert out.read_bytes() == b"old content"
    return line


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_refused_and_the_old_output_stays(name, tmp_path):
    result, out = run_on(BAD[name], tmp_path)
    assert "in: " in assert_refused(result, out)


@pytest.mark.parametrize("name, words", [
    ("header length 2^63", ["length is 9223372036854775808", "beyond the file's 10 bytes"]),
    ("dtype unknown", ["tensor 'x'", "dtype is 'F31'", "expected F64, F32, F16, BF16"]),
    ("size negative", ["tensor 'x'", "shape", "-1", "at least 0"]),
    ("offsets reversed", ["tensor 'x'", "reversed", "[1, 0]"]),
    ("offsets beyond the end", ["tensor 'x'", "end at 2", "beyond the 1 bytes"]),
    ("offsets do not match the shape", ["tensor 'x'", "span 1 bytes", "expected 2"]),
    ("overlap", ["tensor 'mask'", "begins at byte 2", "expected 4", "overlap"]),
    ("hole", ["tensor 'mask'", "begins at byte 4", "expected 2", "hole"]),
    ("name twice, once escaped", ["'x'", "twice"]),
    ("shape twice", ["tensor 'x'", "'shape'", "twice"]),
    ("product overflows 64 bits", ["tensor 'x'", "product"]),
    ("data beyond the tensors", ["cover 1 bytes", "holds 2"]),
    ("ill-formed UTF-8", ["UTF-8"]),
    ("no offsets", ["tensor 'x'", "'data_offsets' is missing"]),
])
def test_message_says_what_is_wrong(name, words, tmp_path):
    command.fails(run_on(BAD[name], tmp_path)[0], 2, *words)


def tiny_file(rng):
    tensors = command.random_tensors(rng, (1,), 1, 1, norms=False) | {"mask": np.ones((1, 1))}
    return command.pack(tensors, {"x": "BF16", "mask": "U8"})


def in_parallel(contents, tmp_path):
    """Results of a run on each content, in order."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda item: run_on(item[1], tmp_path, f"{item[0]}"), enumerate(contents)))


def test_truncated_at_every_byte(tmp_path, rng):
    content = tiny_file(rng)
    assert run_on(content, tmp_path)[0].returncode == 0
    for result, out in in_parallel([content[:k] for k in range(len(content))], tmp_path):
        assert_refused(result, out)


def test_one_byte_changed(tmp_path, rng):
    """Any byte of the header may become any other: refused, or a result of the right form; exit 3 where a dtype is not served."""
    content = tiny_file(rng)
    end_of_header = 8 + int.from_bytes(content[:8], "little")
    changed = []
    for k in range(0, end_of_header, 2 if command.is_sanitized() else 1):
        replaced = content[k] ^ (1 << int(rng.integers(8)))
        changed.append(content[:k] + bytes([replaced]) + content[k + 1 :])
    for result, out in in_parallel(changed, tmp_path):
        if result.returncode == 0:
            assert np.size(command.read_out(out)[1]) == 1
        else:
            assert_refused(result, out)


def test_header_beyond_100_mb_is_refused(tmp_path):
    with open(tmp_path / "in", "wb") as file:
        file.write(struct.pack("<Q", 100_000_001) + b"{}")
        file.truncate(200_000_000)
    command.fails(command.run("run", tmp_path / "in", "-o", tmp_path / "out"), 2, "length is 100000001", "at most 100000000")


def test_many_tensors_are_read_in_time(tmp_path):
    """A header of 20,000 entries: no quadratic search."""
    header = {f"t{k}": entry("U8", [1], k, k + 1) for k in range(20_000)}
    result, out = run_on(command.file_bytes(header, bytes(20_000)), tmp_path)
    assert "is no argument" in assert_refused(result, out)


def test_good_files_next_to_the_bad_ones(tmp_path, rng):
    """Padding behind the header, tensors in any order, empty tensors and metadata are legal."""
    tensors = command.random_tensors(rng, (2,), 32, 32)
    content = command.pack(tensors)
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    reordered = {"__metadata__": {"format": "pt", "": ""}} | dict(reversed(header.items()))
    for text_of_header in (json.dumps(reordered).encode(), json.dumps(header, indent=3).encode() + b" \n\t\r ", content[8:end]):
        result, out = run_on(command.file_bytes(text_of_header, content[end:]), tmp_path)
        assert result.returncode == 0, result.stderr
        assert command.read_out(out)[1].shape == (2, 2, 32)
