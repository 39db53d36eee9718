# SPDX-License-Identifier: Apache-2.0
"""The install tree as a user meets it: files, symbols, soname, and a project of its own that builds against it."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIMUL_BUILD_DIR", ROOT / "build"))
CONSUMER = pathlib.Path(__file__).parent / "consumer"


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def find(prefix, pattern):
    return sorted(path for path in prefix.rglob(pattern))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An install tree that was moved after it had been written, so that nothing in it may depend on where it was made."""
    staged = tmp_path_factory.mktemp("staged") / "prefix"
    run("cmake", "--install", BUILD, "--prefix", staged)
    moved = tmp_path_factory.mktemp("moved") / "elsewhere"
    shutil.move(staged, moved)
    return moved


@pytest.fixture(scope="module")
def library(prefix):
    (real,) = [path for path in find(prefix, "libtrimul.so*") if not path.is_symlink()]
    return real


def test_installs_exactly_the_two_headers(prefix):
    headers = [str(path.relative_to(prefix / "include")) for path in find(prefix / "include", "*") if path.is_file()]
    assert headers == ["trimul/trimul.h", "trimul/trimul.hpp"]


def test_soname_carries_the_major_version(library):
    version = dict(re.findall(r"TRIMUL_VERSION_(\w+) (\d+)", (ROOT / "include/trimul/trimul.h").read_text()))
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library)).group(1)
    assert soname == f"libtrimul.so.{version['MAJOR']}"
    assert library.name == f"libtrimul.so.{version['MAJOR']}.{version['MINOR']}.{version['PATCH']}"


def test_exports_exactly_the_functions_of_the_header(library):
    defined = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/trimul/trimul.h").read_text(), flags=re.DOTALL)
    declared = set(re.findall(r"TRIMUL_API[^;{]*?\b(trimul_\w+)\s*\(", header))
    assert declared
    assert defined == declared


def test_needs_only_the_libraries_that_the_design_allows(library):
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
    allowed = r"lib(stdc\+\+|gcc_s|m|c|pthread|dnnl|gomp|omp|iomp5)\.so|ld-linux"
    assert [name for name in needed if not re.match(allowed, name)] == []


def test_no_file_holds_the_build_or_stage_path(prefix):
    for path in find(prefix, "*"):
        if path.is_file() and path.suffix in (".cmake", ".pc", ".h", ".hpp"):
            text = path.read_text()
            assert str(BUILD) not in text and "/staged" not in text and str(ROOT) not in text, path


def test_command_runs_from_the_moved_tree(prefix):
    command = prefix / "bin" / "trimul"
    if not command.exists():
        pytest.skip("this build has no command (TRIMUL_BUILD_CLI is OFF)")
    assert "version" in run(command, "info", env={})


def test_demo_runs_from_the_moved_tree(prefix, tmp_path):
    """With a name of its own structures, in a folder that has nothing to do with the checkout."""
    command = prefix / "bin" / "trimul"
    if not command.exists():
        pytest.skip("this build has no command (TRIMUL_BUILD_CLI is OFF)")
    for structure in (ROOT / "examples/data").glob("*.csv"):
        assert (prefix / "share/trimul/data" / structure.name).read_bytes() == structure.read_bytes()
    text = run(command, "demo", "--structure", "1ubi", "--blocks", "1", "--c-z", "8", "--device", "cpu", "--out", "out", cwd=tmp_path, env={})
    assert "PDB 1UBI" in text and (tmp_path / "out/1ubi.safetensors").is_file()


def test_cmake_consumer_in_c_and_cpp(prefix, tmp_path):
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", tmp_path)
    assert re.search(r"out\[0,1,0\] = -?\d", run(tmp_path / "quickstart_c"))
    assert "fp64 reference" in run(tmp_path / "quickstart_cpp")


def test_find_package_refuses_another_version(prefix, tmp_path):
    result = subprocess.run(["cmake", "-G", "Ninja", "-S", CONSUMER, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=99.0"],
                            capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "99.0" in result.stderr


def test_pkg_config_consumer(prefix, tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config on this machine")
    (pc,) = find(prefix, "trimul.pc")
    flags = run("pkg-config", "--cflags", "--libs", "trimul", env={**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}).split()
    (libdir,) = [flag[2:] for flag in flags if flag.startswith("-L")]
    program = tmp_path / "quickstart"
    run("gcc", ROOT / "examples/quickstart.c", "-o", program, *flags, f"-Wl,-rpath,{libdir}")
    assert "out[0,1,0]" in run(program)
