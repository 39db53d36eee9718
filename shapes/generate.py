# SPDX-License-Identifier: Apache-2.0
"""Writes smoke.txt, ci.txt, full.txt and gpu_portable.txt beside this file (README.md says what they hold). Same output on every machine."""
import itertools
import pathlib
import random

AXES = {
    "N": [*range(1, 41), 63, 64, 65, 95, 96, 97, 99, 100, 101, 127, 128, 129, 191, 217, 255, 256, 257, 383, 384, 385, 500, 511, 512, 513, 767, 768, 769],
    "B": [1, 2, 3, 5],
    "widths": [(128, 128), (64, 64), (256, 256), (64, 128), (128, 64), (384, 384), (384, 256), (32, 32), (48, 48), (96, 160), (768, 128)],
    "direction": ["outgoing", "incoming"],
    "mask": ["none", "random", "padded", "fractional", "zero", "one_off"],
    "bias": ["nobias", "all", "p_in", "g_in", "p_out", "g_out"],
    "dtype": ["bf16", "fp16", "fp32"],
    "residual": ["", "residual"],
}

# dtype and precision together: every arithmetic of the portable GPU implementation, by every road to it.
PORTABLE_AXES = {axis: values for axis, values in AXES.items() if axis != "dtype"} | {
    "form": ["bf16", "fp16", "fp32", "fp32 tf32", "fp32 ieee", "fp32 tf32x3", "fp32 bfloat16", "bf16 ieee", "fp16 ieee", "fp16 bfloat16", "bf16 tf32", "fp16 tf32x3"],
}

# Outside the axes: fp64, narrow and odd widths, nothing to do.
EXTRAS = """\
1 1 1 1 fp32 outgoing random all
2 13 32 32 fp64 outgoing random all
1 37 48 64 fp64 incoming fractional nobias residual
1 33 16 24 bf16 outgoing random all
2 21 24 16 fp16 incoming fractional p_in residual
3 17 7 5 fp32 outgoing padded g_out
1 40 129 31 bf16 incoming one_off all
1 29 100 1 fp32 incoming random nobias
0 16 64 64 fp32 outgoing none nobias
2 0 64 64 bf16 incoming none all
"""


# Of the portable implementation: rows of one element and of broken vectors, rows that fit no shared memory, batches of many samples.
PORTABLE_EXTRAS = """\
1 1 1 1 fp32 outgoing random all
2 13 5 5 bf16 incoming random all residual
1 21 1 48 fp16 outgoing fractional p_in
1 20 48 1 fp32 incoming random nobias
1 40 129 31 bf16 incoming one_off all
1 29 100 7 fp32 incoming random nobias tf32
3 17 7 5 fp32 outgoing padded g_out ieee
1 11 4096 40 fp32 outgoing random all residual
1 9 40 4096 bf16 incoming fractional nobias
1 7 3300 3300 fp16 outgoing none p_out residual
1 7 2100 1100 fp32 incoming padded all tf32
1 6 1100 2100 fp32 outgoing random g_in residual ieee
400 13 16 24 bf16 outgoing random all
70000 1 8 8 fp16 incoming none nobias
0 16 64 64 fp32 outgoing none nobias
2 0 64 64 bf16 incoming none all
"""


def multiply_adds(row):
    """Of the matrix products; also a measure of the memory a row takes."""
    n, (c_z, c) = row["N"], row["widths"]
    return row["B"] * n * n * (n * c + 4 * c * c_z + c_z * (c + c_z))


CHEAPEST = {"N": 1, "B": 1, "widths": (32, 32)}


def least_cost(partial):
    """Cost of a row when everything not yet chosen is as cheap as it can be."""
    return multiply_adds({**CHEAPEST, **partial})


def pairs_of(row, table):
    return [((left, row[left]), (right, row[right])) for left, right in itertools.combinations([axis for axis in table if axis in row], 2)]


def all_pairs(axes, table):
    return {
        ((left, a), (right, b)) for left, right in itertools.combinations([axis for axis in table if axis in axes], 2) for a in table[left] for b in table[right]
    }


def covering(axes, seed, most_multiply_adds, table=AXES):
    """Greedy pairwise covering: each row starts from the dearest pair that is still missing and takes, axis by axis, the value that
    covers most missing pairs among those that keep the row under the limit (or under its first pair's own cost)."""
    rng = random.Random(seed)
    missing = all_pairs(axes, table)
    order = sorted(missing, key=lambda pair: (-least_cost(dict(pair)), repr(pair)))
    rows = []
    for first in order:
        if first not in missing:
            continue
        row = dict(first)
        limit = max(most_multiply_adds, least_cost(row))
        rest = [axis for axis in axes if axis not in row]
        rng.shuffle(rest)
        # Dear axes are chosen while the row is still cheap.
        rest.sort(key=lambda axis: axis not in CHEAPEST)
        for axis in rest:
            affordable = [value for value in table[axis] if least_cost({**row, axis: value}) <= limit]
            gain = {value: sum(pair in missing for pair in pairs_of({**row, axis: value}, table)) for value in affordable}
            most = max(gain.values())
            row[axis] = rng.choice([value for value in affordable if gain[value] == most])
        missing -= set(pairs_of(row, table))
        rows.append(row)
    return rows


def smoke():
    """A covering of the other axes, to whose rows the small N go, dear rows first; then the large N on narrow, single samples."""
    others = [axis for axis in AXES if axis != "N"]
    rows = covering(others, seed=1, most_multiply_adds=float("inf"))
    rows.sort(key=lambda row: least_cost({**row, "N": 1}), reverse=True)
    small = [n for n in AXES["N"] if n < 127]
    for index, row in enumerate(rows):
        row["N"] = small[index * len(small) // len(rows)] if len(rows) >= len(small) else small[index]
    assert {row["N"] for row in rows} == set(small)
    rng = random.Random(2)
    for n in (n for n in AXES["N"] if n >= 127):
        row = {axis: rng.choice(AXES[axis]) for axis in others}
        row.update(N=n, B=1, widths=(64, 64) if n < 200 else (32, 32))
        rows.append(row)
    return rows


def portable():
    """A covering of the other axes, small N in turn; then each large N three times, at widths whose inputs are made in a moment."""
    others = [axis for axis in PORTABLE_AXES if axis != "N"]
    rows = covering(others, seed=7, most_multiply_adds=float("inf"), table=PORTABLE_AXES)
    rows.sort(key=lambda row: least_cost({**row, "N": 1}), reverse=True)
    small = [n for n in PORTABLE_AXES["N"] if n < 127]
    for index, row in enumerate(rows):
        row["N"] = small[index * len(small) // len(rows)]
    assert {row["N"] for row in rows} == set(small)
    rng = random.Random(8)
    forms = itertools.cycle(PORTABLE_AXES["form"])
    most_elements = 1.2e7  # of x
    for n in (n for n in PORTABLE_AXES["N"] if n >= 127):
        affordable = [widths for widths in PORTABLE_AXES["widths"] if n * n * widths[0] <= most_elements] or [(32, 32)]
        for k in range(3):
            row = {axis: rng.choice(PORTABLE_AXES[axis]) for axis in others}
            row.update(N=n, B=1, widths=rng.choice(affordable), form=next(forms), direction=PORTABLE_AXES["direction"][(n + k) % 2])
            rows.append(row)
    return rows


def line_of(row):
    c_z, c = row["widths"]
    dtype, *precision = row["form"].split() if "form" in row else [row["dtype"]]
    words = [row["B"], row["N"], c_z, c, dtype, row["direction"], row["mask"], row["bias"], row["residual"], *precision]
    return " ".join(str(word) for word in words if word != "")


def write(name, comment, rows, extras=EXTRAS):
    text = f"# {comment} Written by generate.py; the format is in README.md.\n{extras}" + "".join(line_of(row) + "\n" for row in rows)
    pathlib.Path(__file__).with_name(name).write_text(text)


def main():
    cheap_first = lambda rows: sorted(rows, key=lambda row: (multiply_adds(row), line_of(row)))
    write("smoke.txt", "Every value of each axis, every pair of the axes other than N.", cheap_first(smoke()))
    write("ci.txt", "Every pair of values of all axes.", cheap_first(covering(list(AXES), seed=3, most_multiply_adds=5e9)))
    full = [row for seed in (4, 5, 6) for row in covering(list(AXES), seed, most_multiply_adds=float("inf"))]
    write("full.txt", "Three coverings of every pair of values of all axes.", cheap_first(full))
    write("gpu_portable.txt", "Every value of each axis, every pair of the axes other than N, every precision.", cheap_first(portable()), PORTABLE_EXTRAS)


if __name__ == "__main__":
    main()
