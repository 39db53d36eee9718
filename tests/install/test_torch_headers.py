# SPDX-License-Identifier: Apache-2.0
"""cmake/torch_headers.cmake: where the build looks for torch's headers, which it takes, and what it says when it takes none."""

import os
import pathlib
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION_HEADER = "#define TORCH_VERSION_MAJOR {}\n\n#define TORCH_VERSION_MINOR {}\n"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(consumer LANGUAGES NONE)\n"
        f"include({ROOT}/cmake/torch_headers.cmake)\nmessage(STATUS \"include=[${{TRIMUL_TORCH_INCLUDE}}]\")\n")
    return folder


@pytest.fixture
def environment(tmp_path):
    """An empty Python environment, and where its packages go."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python", folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def put_torch(site, major=2, minor=11, stable=True):
    """A torch that fails when it is imported; returns its include directory."""
    include = site / "torch" / "include"
    (include / "torch" / "headeronly").mkdir(parents=True)
    (include / "torch" / "headeronly" / "version.h").write_text(VERSION_HEADER.format(major, minor))
    if stable:
        (include / "torch" / "csrc" / "stable").mkdir(parents=True)
        (include / "torch" / "csrc" / "stable" / "library.h").write_text("")
    (site / "torch" / "__init__.py").write_text("raise RuntimeError('torch was imported')\n")
    return include


def configure(project, *options, **variables):
    environment = {**os.environ, "HOME": str(project), **variables}
    result = subprocess.run(["cmake", "-S", project, "-B", project / "build", *options], capture_output=True, text=True, check=False, env=environment)
    return result.returncode, " ".join((result.stdout + result.stderr).split())


def test_finds_the_torch_of_the_environment(project, environment):
    python, site = environment
    include = put_torch(site)
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}")
    assert code == 0, text
    assert f"built with the headers of torch 2.11 in {include}" in text
    assert f"include=[{include}]" in text


def test_finds_the_torch_that_an_isolated_build_hides(project, environment, tmp_path):
    """pip takes the environment's packages off sys.path; where they lie it does not change."""
    python, site = environment
    include = put_torch(site)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.path = [p for p in sys.path if not p.endswith('site-packages')]\n")
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}", PYTHONPATH=str(tmp_path))
    assert code == 0, text
    assert f"include=[{include}]" in text


def test_takes_the_interpreter_that_builds_the_package(project, environment):
    python, site = environment
    include = put_torch(site)
    code, text = configure(project, f"-DPython_EXECUTABLE={python}")
    assert code == 0, text
    assert f"include=[{include}]" in text


def test_says_what_is_lost_without_headers(project, environment):
    python, _ = environment
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}")
    assert code == 0, text
    assert "torch 2.11 or newer (TRIMUL_TORCH_INCLUDE) and none were found" in text and "through ctypes" in text
    assert "include=[]" in text


@pytest.mark.parametrize("minor", [9, 10])
def test_declines_an_older_torch(project, environment, minor):
    python, site = environment
    put_torch(site, minor=minor)
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}")
    assert code == 0, text
    assert f"are of torch 2.{minor};" in text and "include=[]" in text


def test_declines_a_torch_from_before_the_version_header(project, environment):
    python, site = environment
    (site / "torch" / "include").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.4.1+cu121'\n")
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}")
    assert code == 0, text
    assert "are of torch 2.4;" in text and "include=[]" in text


def test_takes_the_directory_that_is_named(project, environment, tmp_path):
    python, site = environment
    put_torch(site, minor=12)
    include = put_torch(tmp_path / "elsewhere", major=3, minor=0)
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}", f"-DTRIMUL_TORCH_INCLUDE={include}")
    assert code == 0, text
    assert "headers of torch 3.0" in text and f"include=[{include}]" in text


def test_a_named_directory_without_headers_is_an_error(project, tmp_path):
    code, text = configure(project, f"-DTRIMUL_TORCH_INCLUDE={tmp_path}/nothing")
    assert code != 0
    assert f"{tmp_path}/nothing holds no torch/headeronly/version.h" in text


def test_a_named_directory_without_the_stable_interface_is_an_error(project, tmp_path):
    include = put_torch(tmp_path / "elsewhere", stable=False)
    code, text = configure(project, f"-DTRIMUL_TORCH_INCLUDE={include}")
    assert code != 0
    assert f"{include} holds no torch/csrc/stable/library.h" in text


def test_on_without_headers_is_an_error(project, environment):
    python, _ = environment
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}", "-DTRIMUL_TORCH=ON")
    assert code != 0
    assert "none were found" in text and "TRIMUL_TORCH_INCLUDE" in text


def test_off_looks_nowhere(project, environment):
    python, site = environment
    put_torch(site)
    code, text = configure(project, f"-DTRIMUL_PYTHON={python}", "-DTRIMUL_TORCH=OFF")
    assert code == 0, text
    assert "TRIMUL_TORCH is OFF" in text and "include=[]" in text


def test_headers_that_are_gone_are_not_remembered(project, environment):
    python, site = environment
    put_torch(site)
    assert "include=[]" not in configure(project, f"-DTRIMUL_PYTHON={python}")[1]
    (site / "torch").rename(site / "torch_away")
    code, text = configure(project)
    assert code == 0, text
    assert "include=[]" in text
