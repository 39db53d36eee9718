# SPDX-License-Identifier: Apache-2.0
"""The tier that holds the library to published models: their own modules from PyPI, nothing of theirs replaced but the kernel."""

import importlib.util
import os

import pytest

# Protenix's own switch: its default LayerNorm compiles a CUDA extension while it is imported.
os.environ["LAYERNORM_TYPE"] = "torch"

import torch
import trimul


def pytest_sessionstart(session):
    present = [name for name in ("cuequivariance_torch", "cuequivariance_ops_torch") if importlib.util.find_spec(name) is not None]
    if present:
        pytest.exit(f"{', '.join(present)} can be imported, expected an environment without cuEquivariance", returncode=2)


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def calls(monkeypatch):
    """The directions of the calls that reached the drop-in."""
    real = trimul.triangle_multiplicative_update
    directions = []

    def counted(x, direction="outgoing", *args, **kwargs):
        directions.append(direction)
        return real(x, direction, *args, **kwargs)

    monkeypatch.setattr(trimul, "triangle_multiplicative_update", counted)
    return directions


@pytest.fixture
def served():
    """Every model's kernel path leads here."""
    trimul.install_as_cuequivariance()
    trimul.patch_openfold3()
    yield
    trimul.unpatch_openfold3()
    trimul.uninstall_as_cuequivariance()
