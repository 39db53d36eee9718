# SPDX-License-Identifier: Apache-2.0
"""What the wheel's tests stand on: a wheel, an environment that holds it, and programs that run in it with next to nothing."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIMUL_BUILD_DIR", ROOT / "build"))
TIER = os.environ.get("TRIMUL_TEST_TIER", "smoke")
TORCH_SITE = os.environ.get("TRIMUL_TORCH_SITE")
A_USER = "54321"  # one that no machine knows


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@contextlib.contextmanager
def once(tmp_path_factory, name):
    """A folder that one of a run's processes fills while the others wait: yields (folder, whether this one is to fill it)."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / name
    with open(base / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = base / f"{name}.done"
        yield folder, not done.exists()
        done.touch()


def pip_wheel(out, *settings):
    """Builds the wheel by the backend that pyproject.toml names, from what this environment has."""
    options = [part for setting in settings for part in ("--config-settings", setting)]
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--wheel-dir", out, *options)
    (wheel,) = out.glob("*.whl")
    return wheel


def pack_from_build_tree(out):
    """The wheel as the backend makes it, the compiled files taken from the build tree: seconds instead of a second build."""
    bare = pip_wheel(out / "bare", "wheel.cmake=false", "wheel.platlib=true")
    with zipfile.ZipFile(bare) as archive:
        archive.extractall(out / "unpacked")
    run("cmake", "--install", BUILD, "--component", "python", "--prefix", out / "unpacked")
    run(sys.executable, "-m", "wheel", "pack", out / "unpacked", "--dest-dir", out)
    (wheel,) = out.glob("*.whl")
    return wheel


def build_wheel(out):
    """A wheel of the tree: packed from the build tree in the quick tier, built from nothing in the others."""
    if TIER == "smoke" and (BUILD / "CMakeCache.txt").is_file():
        return pack_from_build_tree(out)
    torch_include = pathlib.Path(TORCH_SITE or "") / "torch" / "include"
    return pip_wheel(out, "cmake.define.TRIMUL_CUDA=OFF", *([f"cmake.define.TRIMUL_TORCH_INCLUDE={torch_include}"] if TORCH_SITE else []))


def site_packages(environment):
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def copy_package(site, out):
    """What the wheel put into `site`, in a folder of its own."""
    out.mkdir(parents=True)
    for path in site.glob("trimul*"):
        shutil.copytree(path, out / path.name)
    return out


def read_only(folder):
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)


def as_unknown_user(python):
    """The words that run a command as a user whom the machine does not know, or None where they cannot; for root. That user needs to reach
    the interpreter and its environment: where their folders are closed it may read everything, and writes nothing all the same."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return None
    user = [setpriv, f"--reuid={A_USER}", f"--regid={A_USER}", "--clear-groups"]
    # An interpreter that cannot reach its own folders may run with those of another.
    program = [python, "-c", "import sys, ctypes; print(sys.prefix, sys.base_prefix)"]
    for words in (user, [*user, "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]):
        result = subprocess.run([*words, *program], capture_output=True, text=True, check=False, env={})
        if result.returncode == 0 and result.stdout == run(*program, env={}):
            return words
    return None


class Confinement:
    """Programs run without a compiler, a home, a writable folder or a driver: PATH is empty, HOME is not set, every cache and temporary folder is
    read-only, and the first libcuda that the loader meets is none."""

    def __init__(self, folder):
        self.nowhere = folder / "read_only"
        self.drivers = folder / "no_driver"
        for made in (self.nowhere, self.drivers):
            made.mkdir(parents=True)
        (self.drivers / "libcuda.so.1").touch()
        read_only(self.nowhere)

    def run(self, python, program, *, words=(), **variables):
        places = {name: str(self.nowhere) for name in ("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR",
                                                       "TRITON_CACHE_DIR")}
        environment = {"PATH": "", "LD_LIBRARY_PATH": str(self.drivers), **places, **variables}
        return subprocess.run([*words, str(python), "-c", program], capture_output=True, text=True, check=False, env=environment, cwd=self.nowhere)
