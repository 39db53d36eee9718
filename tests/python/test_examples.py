# SPDX-License-Identifier: Apache-2.0
"""The examples as a user runs them. examples/boltz_patch.py with boltz: tests/models/test_boltz_example.py."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import trimul

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def run(name):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(trimul.__file__).parent.parent)}
    return subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, check=False, timeout=300, env=environment)


def test_torch_quickstart():
    done = run("torch_quickstart.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") >= 3 and "WRONG" not in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("boltz") is not None, reason="boltz is here: tests/models runs the example")
def test_boltz_patch_says_what_it_needs():
    done = run("boltz_patch.py")
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == "" and done.stderr.startswith("this example needs boltz") and done.stderr.count("\n") == 1
