# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import command


@pytest.fixture
def rng(request):
    """A fresh seed for each test, repeatable by its name."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture
def small(tmp_path, rng):
    """A valid input file, 3 tokens, 4 and 2 channels."""
    return command.write_inputs(tmp_path / "in.safetensors", command.random_tensors(rng, (3,), 4, 2))


def pytest_collection_modifyitems(items):
    """Skips, with the reason, what a sanitizer's runtime does not allow."""
    if not command.is_sanitized():
        return
    for item in items:
        if item.get_closest_marker("needs_plain_build"):
            item.add_marker(pytest.mark.skip(reason="the sanitizer's runtime reserves the address space and must be loaded first"))


def pytest_configure(config):
    if not command.CLI.is_file():
        pytest.exit(f"{command.CLI} does not exist; build it, or name another with TRIMUL_CLI", returncode=4)
    config.addinivalue_line("markers", "needs_plain_build: limits memory or preloads a library, which sanitizers do not allow")
