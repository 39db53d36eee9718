# SPDX-License-Identifier: Apache-2.0
"""examples/boltz_patch.py and the Boltz block of docs/python.md as a user runs them."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600, env=environment)


def test_boltz_patch():
    done = run(str(ROOT / "examples/boltz_patch.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 2 and "WRONG" not in done.stdout


# A layer with Boltz's switch off: two updates reach the library, attention needs no cuEquivariance.
LAYER = """
from boltz.model.layers.pairformer import PairformerNoSeqLayer

calls = []
real = trimul.triangle_multiplicative_update
trimul.triangle_multiplicative_update = lambda x, direction, *args, **kwargs: calls.append(direction) or real(x, direction, *args, **kwargs)
with torch.inference_mode():
    z = torch.randn(1, 9, 9, 128)
    assert PairformerNoSeqLayer(128).eval()(z, torch.ones(1, 9, 9)).shape == z.shape
assert calls == ["outgoing", "incoming"], calls
"""


def test_block_of_the_page():
    (block,) = re.findall(r"<!-- needs: boltz -->\n```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL)
    done = run("-c", f"import torch, trimul\n{block}{LAYER}")
    assert done.returncode == 0, done.stderr
