# SPDX-License-Identifier: Apache-2.0
import os
import sys
import zlib

import pytest
import torch

TIER = os.environ.get("TRIMUL_TEST_TIER", "smoke")


def devices():
    """Where the tests of a run take place. On a GPU the same as on the CPU, at the dtype and widths that cases.served names."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=devices())
def device(request):
    return request.param


@pytest.fixture
def rng(request):
    """A fresh seed for each test, repeatable by its name."""
    return torch.Generator().manual_seed(zlib.crc32(request.node.name.encode()))


@pytest.fixture(autouse=True)
def settings_stay():
    """No test leaves torch's settings changed for the next."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu")


def pytest_collection_modifyitems(items):
    if TIER != "smoke":
        return
    for item in items:
        if item.get_closest_marker("ci"):
            item.add_marker(pytest.mark.skip(reason="slow: TRIMUL_TEST_TIER is smoke"))


def pytest_configure(config):
    config.addinivalue_line("markers", "ci: runs in the tiers ci and full only")
    try:
        import trimul  # noqa: F401
    except ImportError:
        pytest.exit(f"trimul cannot be imported by {sys.executable}; PYTHONPATH=build/python holds what the target trimul_python builds", returncode=4)
