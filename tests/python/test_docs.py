# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of docs/python.md and README.md, a page in a process of its own and in one namespace.

A comment `<!-- needs: WHAT -->` above a block says what it needs: gpu (one that serves the page's problem), boltz, compiler (left out of the smoke tier,
it takes its time)."""

import ast
import importlib.util
import os
import pathlib
import re

import pytest
import torch

import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIER = os.environ.get("TRIMUL_TEST_TIER", "smoke")


def serves_gpu():
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


PRESENT = {"gpu": serves_gpu, "boltz": lambda: importlib.util.find_spec("boltz") is not None, "compiler": lambda: TIER != "smoke"}


def blocks(page):
    """(line number, what it needs or None, code) of each."""
    text = (ROOT / page).read_text()
    found = re.finditer(r"(?:<!-- needs: (\w+) -->\n)?^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(2)) + 1, match[1], match[2]) for match in found]


def program(page, on_gpu):
    """One program, whose lines have the page's numbers."""
    lines = []
    for first, need, code in blocks(page):
        ast.parse(code)
        if need is None or (need == "gpu" and on_gpu) or (need != "gpu" and PRESENT[need]()):
            lines += [""] * (first - 1 - len(lines)) + code.splitlines()
    return "\n".join(lines) + "\n"


def run(page, on_gpu):
    code = program(page, on_gpu)
    if on_gpu:
        code = code.replace('"cpu", torch.float32', '"cuda", torch.bfloat16')
        assert '"cuda", torch.bfloat16,' in code
    return cases.run_python(f"exec(compile({code!r}, {page!r}, 'exec'))")


@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.skipif(not serves_gpu(), reason="no GPU that serves the page's problem"))])
def test_page(on_gpu):
    printed = run("docs/python.md", on_gpu)
    assert "mask: dimension N (1 of [1, 49, 48]) is 49, expected 48 (from x)" in printed  # as the page says


# README.md takes its tensors for granted.
TENSORS = """
import torch
torch.manual_seed(0)
x, mask = torch.randn(1, 20, 20, 32), torch.ones(20, 20).tril()
matrix = lambda rows: torch.randn(rows, 32) / 6
parameters = {"p_in_weight": matrix(64), "g_in_weight": matrix(64), "p_out_weight": matrix(32), "g_out_weight": matrix(32)}
"""


def test_readme():
    assert len(blocks("README.md")) == 2
    cases.run_python(TENSORS + program("README.md", False) + "assert torch.equal(out, update)\n")  # as the page says


def test_needs_are_known():
    needs = [need for _, need, _ in blocks("docs/python.md")]
    assert len(needs) >= 12 and set(needs) - {None} <= PRESENT.keys()
    text = (ROOT / "docs/python.md").read_text()
    assert len(re.findall("^```python$", text, re.MULTILINE)) == len(needs)
    assert len(re.findall("<!-- needs:", text)) == len([need for need in needs if need])
