# SPDX-License-Identifier: Apache-2.0
"""Scripts about cuEquivariance's modules. Each is a process of its own, since it is about sys.modules."""

import os
import subprocess
import sys
import textwrap

# The update is replaced by one that tells its arguments: these tests are about names and import no torch.
PROLOGUE = """
import importlib, importlib.util, pickle, sys
import trimul
from trimul import install_as_cuequivariance, uninstall_as_cuequivariance
assert "torch" not in sys.modules
trimul.triangle_multiplicative_update = lambda *args, **kwargs: ("ours", args, kwargs)

def is_ours(function):
    return function("x", "incoming", eps=0.5)[0] == "ours"

def error_of(error, statement):
    try:
        exec(statement, {})
    except error as caught:
        return str(caught)
    raise AssertionError(f"{statement!r} raised no {error.__name__}")

def state():
    ours = {name: module for name, module in sys.modules.items() if name.startswith("cuequivariance")}
    return ours, {name: dict(vars(module)) for name, module in ours.items() if module is not None}, list(sys.meta_path)

IMPORTS = [
    "from cuequivariance_torch import triangle_multiplicative_update as f",
    "import cuequivariance_torch as c; f = c.triangle_multiplicative_update",
    "import cuequivariance_torch as c; f = c.primitives.triangle.triangle_multiplicative_update",
    "from cuequivariance_torch.primitives.triangle import triangle_multiplicative_update as f",
    "import cuequivariance_torch.primitives.triangle as t; f = t.triangle_multiplicative_update",
    "import cuequivariance_torch.primitives.triangle; f = cuequivariance_torch.triangle_multiplicative_update",
    "from cuequivariance_torch.primitives import triangle; f = triangle.triangle_multiplicative_update",
    "import importlib; f = importlib.import_module('cuequivariance_torch').triangle_multiplicative_update",
    "import importlib; f = importlib.import_module('.triangle', 'cuequivariance_torch.primitives').triangle_multiplicative_update",
    "f = getattr(__import__('cuequivariance_torch.primitives.triangle', fromlist=['x']), 'triangle_multiplicative_update')",
]

def function_of(statement):
    names = {}
    exec(statement, names)
    return names["f"]
"""

ROUND_TRIP = """
before = state()
uninstall_as_cuequivariance()
assert state() == before
install_as_cuequivariance()
inside = state()
install_as_cuequivariance()
assert state() == inside != before
uninstall_as_cuequivariance()
assert state() == before, (state(), before)
uninstall_as_cuequivariance()
assert state() == before
"""


def run(*parts, path=None):
    """Runs prologue and parts as one script with `path` first on sys.path. Output of any kind is a failure: installing prints nothing."""
    paths = ([str(path)] if path else []) + [p for p in sys.path if p]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    script = "\n".join(map(textwrap.dedent, (PROLOGUE, *parts)))
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and result.stderr == "", (result.stdout, result.stderr)
