# SPDX-License-Identifier: Apache-2.0
"""check_sources.py as tests, and every header compiled alone."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_sources  # noqa: E402

HEADERS = check_sources.files(".h", ".hpp", under="include/") + check_sources.files(".hpp", under="src/") + check_sources.files(".hpp", under="cli/")


@pytest.mark.parametrize("check", check_sources.CHECKS, ids=lambda check: check.__name__)
def test_rule(check):
    assert check() == []


@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header, tmp_path):
    """Included twice, so that a missing include guard shows as well; trimul.h as C too."""
    relative = header.split("/", 1)[1]
    for compiler, suffix, standard in [("gcc", "c", "c11"), ("g++", "cpp", "c++20")]:
        if suffix == "c" and not header.endswith(".h"):
            continue
        source = tmp_path / f"alone.{suffix}"
        source.write_text(f'#include "{relative}"\n#include "{relative}"\nint nothing(void);\n')
        command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        command += [f"-I{check_sources.ROOT / folder}" for folder in ("include", "src", "cli")] + [str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
