# SPDX-License-Identifier: Apache-2.0
"""examples/boltz_patch.py as a user runs it."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/boltz_patch.py"


def test_boltz_patch():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=600, env=environment)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 2 and "WRONG" not in done.stdout
