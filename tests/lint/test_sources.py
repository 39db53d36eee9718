# SPDX-License-Identifier: Apache-2.0
"""check_sources.py as tests, and every header compiled alone."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_sources  # noqa: E402

HEADERS = check_sources.files(".h", ".hpp", under="include/") + check_sources.files(".hpp", under="src/") + check_sources.files(".hpp", under="cli/")


@pytest.mark.parametrize("check", check_sources.CHECKS, ids=lambda check: check.__name__)
def test_rule(check):
    assert check() == []


NVCC = shutil.which("nvcc")
TOOLKIT = pathlib.Path(NVCC).resolve().parents[1] / "include" if NVCC else None


def needs_toolkit(header):
    """Whether a header includes the CUDA toolkit's, itself or through another of this project."""
    text = (check_sources.ROOT / header).read_text()
    own = [f"src/{name}" for name in re.findall(r'#include "(cuda/[^"]+)"', text)]
    return bool(re.search(r"#include <(cuda|vector_types|driver_types)", text)) or any(needs_toolkit(name) for name in own)


@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header, tmp_path):
    """Included twice, so that a missing include guard shows as well; trimul.h as C too."""
    if needs_toolkit(header) and TOOLKIT is None:
        pytest.skip("includes the CUDA toolkit's headers, and there is no nvcc")
    relative = header.split("/", 1)[1]
    for compiler, suffix, standard in [("gcc", "c", "c11"), ("g++", "cpp", "c++20")]:
        if suffix == "c" and not header.endswith(".h"):
            continue
        source = tmp_path / f"alone.{suffix}"
        source.write_text(f'#include "{relative}"\n#include "{relative}"\nint nothing(void);\n')
        command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        command += [f"-I{check_sources.ROOT / folder}" for folder in ("include", "src", "cli")] + ([f"-isystem{TOOLKIT}"] if TOOLKIT else []) + [str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
