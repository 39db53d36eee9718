# SPDX-License-Identifier: Apache-2.0
"""The expected numbers of `trimul verify`'s known-answer test (cli/known_answer.cpp). Run it to print that file's table."""
import numpy as np

import oracle

TOKENS, C_Z, C = 9, 32, 32
# Every 83rd value of the 9 * 9 * 32: all rows, all channels modulo 32.
STRIDE = 83


def fixed_values(seed, shape, scale):
    """Multiples of `scale` between -128 and 127 times it, exact in bf16 and fp16; a linear congruential generator's top bits."""
    state, values = seed, []
    for _ in range(int(np.prod(shape))):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(((state >> 24) - 128) * scale)
    return np.array(values).reshape(shape)


def inputs():
    mask = fixed_values(99, (TOKENS, TOKENS), 1.0)
    return {
        "x": fixed_values(1, (TOKENS, TOKENS, C_Z), 1 / 64),
        "mask": (mask > -64).astype(np.float64),
        "norm_in_weight": fixed_values(2, (C_Z,), 1 / 256) + 1,
        "norm_in_bias": fixed_values(3, (C_Z,), 1 / 256),
        "p_in_weight": fixed_values(4, (2 * C, C_Z), 1 / 256),
        "p_in_bias": fixed_values(5, (2 * C,), 1 / 256),
        "g_in_weight": fixed_values(6, (2 * C, C_Z), 1 / 256),
        "g_in_bias": fixed_values(7, (2 * C,), 1 / 256),
        "norm_out_weight": fixed_values(8, (C,), 1 / 256) + 1,
        "norm_out_bias": fixed_values(9, (C,), 1 / 256),
        "p_out_weight": fixed_values(10, (C_Z, C), 1 / 256),
        "p_out_bias": fixed_values(11, (C_Z,), 1 / 256),
        "g_out_weight": fixed_values(12, (C_Z, C_Z), 1 / 256),
        "g_out_bias": fixed_values(13, (C_Z,), 1 / 256),
    }


def expected(direction):
    return oracle.update(inputs(), direction).reshape(-1)[::STRIDE]


def table(direction):
    return [f"{value:.9f}" for value in expected(direction)]


if __name__ == "__main__":
    for name in ("outgoing", "incoming"):
        print(name, ", ".join(table(name)))
