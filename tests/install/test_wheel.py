# SPDX-License-Identifier: Apache-2.0
"""The wheel as a user meets it: its tag, its files, and the operator out of an empty environment that offers nothing else.

TRIMUL_WHEEL tests a wheel that is there already; TRIMUL_TORCH_SITE names a site-packages folder with torch, for the tests that need it."""

import email
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import subprocess
import sys
import zipfile

import pytest
from wheel_support import BUILD, ROOT, TORCH_SITE, Confinement, as_unknown_user, build_wheel, copy_package, once, read_only, run, site_packages

VERSION = ".".join(re.findall(r"TRIMUL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (ROOT / "include/trimul/trimul.h").read_text()))
LIBRARY = f"trimul/lib/libtrimul.so.{VERSION.split('.', maxsplit=1)[0]}"
TORCH_LIBRARY = "trimul/lib/libtrimul_torch.so"

PLAN = """
import sys, trimul
plan = trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((1, 20, 20, 16), "float32", "cpu"), c_hidden=8)
assert plan.traffic_bytes() > 0 and plan.get_workspace_size() >= 0
assert not {"torch", "numpy"} & set(sys.modules), sorted(sys.modules)
print(plan.explain())
"""

# The definition, in float64, beside the call.
OPERATOR = """
import torch, trimul
torch.manual_seed(0)
n, c_z, c = 20, 16, 8
x, mask = torch.randn(1, n, n, c_z), (torch.rand(1, n, n) < 0.9).float()
p_in, g_in, p_out, g_out = (torch.randn(shape) / 4 for shape in ((2 * c, c_z), (2 * c, c_z), (c_z, c), (c_z, c_z)))
got = trimul.triangle_multiplicative_update(x, "outgoing", mask, p_in_weight=p_in, g_in_weight=g_in, p_out_weight=p_out, g_out_weight=g_out)
x, mask, p_in, g_in, p_out, g_out = (t.double() for t in (x, mask, p_in, g_in, p_out, g_out))
z = torch.nn.functional.layer_norm(x, (c_z,))
a, b = (torch.sigmoid(z @ g_in.T) * (z @ p_in.T) * mask[..., None]).chunk(2, -1)
y = torch.nn.functional.layer_norm(torch.einsum("zikc,zjkc->zijc", a, b), (c,))
want = torch.sigmoid(z @ g_out.T) * (y @ p_out.T)
error = ((got - want).norm() / want.norm()).item()
assert got.dtype is torch.float32 and error < 1e-5, error
print("relative error", error, "by", trimul._operators.backend(), "with torch", torch.__version__)
"""

# What import and first use open, load and start.
IMPORT = """
import sys, json, os
seen = []
watched = ("ctypes.dlopen", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "socket.connect", "os.mkdir", "os.rename",
           "os.remove", "os.putenv", "tempfile.mkstemp")
def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(path, int):
            seen.append(["write" if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else "read", os.path.realpath(os.fsdecode(path))])
    elif event in watched:
        seen.append([event, str(arguments[0]) if arguments else ""])
sys.addaudithook(watch)
import trimul
trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((1, 20, 20, 16), "float32", "cpu")).explain()
print(json.dumps({"seen": seen, "modules": sorted(sys.modules), "package": os.path.realpath(os.path.dirname(trimul.__file__))}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if os.environ.get("TRIMUL_WHEEL"):
        return pathlib.Path(os.environ["TRIMUL_WHEEL"]).resolve()
    with once(tmp_path_factory, "wheel") as (folder, fill):
        if fill:
            shutil.rmtree(folder, ignore_errors=True)
            build_wheel(folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def files(wheel):
    """The wheel's files: name to content."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An empty Python environment with the wheel in it, read-only."""
    with once(tmp_path_factory, "environment") as (folder, fill):
        if fill:
            shutil.rmtree(folder, ignore_errors=True)
            run(sys.executable, "-m", "venv", "--without-pip", folder)
            run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-index", "--no-deps", wheel)
            read_only(site_packages(folder))
    return folder


@pytest.fixture(scope="module")
def environment_with_torch(environment, tmp_path_factory):
    """The same with the torch of TRIMUL_TORCH_SITE in it."""
    if not TORCH_SITE:
        pytest.skip("needs torch: TRIMUL_TORCH_SITE is not set")
    with once(tmp_path_factory, "environment_with_torch") as (folder, fill):
        if fill:
            shutil.rmtree(folder, ignore_errors=True)
            run(sys.executable, "-m", "venv", "--without-pip", folder)
            site = site_packages(folder)
            for path in site_packages(environment).glob("trimul*"):
                shutil.copytree(path, site / path.name)
            (site / "torch.pth").write_text(TORCH_SITE + "\n")
            read_only(site)
    return folder


@pytest.fixture(scope="module")
def confinement(tmp_path_factory):
    return Confinement(tmp_path_factory.mktemp("confinement") / "places")


@pytest.fixture(params=["own user", "unknown user"])
def user(request, environment):
    """The words before a command: none, or those that make it an unknown user's."""
    if request.param == "own user":
        return []
    if os.geteuid() != 0:
        pytest.skip("only root can become a user whom the machine does not know")
    return as_unknown_user(environment / "bin/python") or pytest.skip("setpriv does not run this interpreter as another user here")


def dynamic_section(path):
    text = run("readelf", "-d", path)
    return re.findall(r"NEEDED.*\[(.*)\]", text), [place for paths in re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", text) for place in paths.split(":")]


def dist_info(files, name):
    return email.message_from_bytes(files[f"trimul-{VERSION}.dist-info/{name}"])


# ---- the file ---------------------------------------------------------------------------------------------------------------


def test_tag_is_every_python_on_this_platform(wheel, files):
    machine = re.escape(platform.machine())
    assert re.fullmatch(rf"trimul-{re.escape(VERSION)}-py3-none-(linux|manylinux_2_\d+)_{machine}\.whl", wheel.name), wheel.name
    (tag,) = dist_info(files, "WHEEL").get_all("Tag")
    assert wheel.name == f"trimul-{VERSION}-{tag}.whl"
    assert dist_info(files, "WHEEL")["Root-Is-Purelib"] == "false"


def test_metadata_requires_nothing(files):
    metadata = dist_info(files, "METADATA")
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"], metadata["Requires-Python"]) == ("trimul", VERSION, "Apache-2.0", ">=3.9")
    assert [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need] == []


def test_holds_the_package_and_nothing_else(files):
    sources = {f"trimul/{path.relative_to(ROOT / 'python/trimul')}" for path in (ROOT / "python/trimul").rglob("*.py*") if path.suffix in (".py", ".pyi")}
    assert sources | {"trimul/py.typed", LIBRARY} <= set(files)
    info = re.escape(f"trimul-{VERSION}.dist-info/")
    others = (re.escape(TORCH_LIBRARY), r"trimul/bin/trimul", r"trimul/share/trimul/data/\w+\.(csv|md)", r"trimul/licenses/[\w.+-]+",
              r"trimul\.libs/lib(dnnl|gomp|OpenCL)-[\w.-]+", info + r"(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE|sboms/auditwheel\.cdx\.json)")
    unexpected = [name for name in set(files) - sources - {"trimul/py.typed", LIBRARY} if not any(re.fullmatch(other, name) for other in others)]
    assert unexpected == []


def test_names_no_path_or_name_of_the_machine(files):
    """Line tables of GPU code, which a checkout's build has and a wheel's has not, name paths; they are looked for in wheels alone."""
    cache = BUILD / "CMakeCache.txt"
    packed = not os.environ.get("TRIMUL_WHEEL") and cache.is_file()
    # The build's word for it: in compressed device code the tables have no name, and here and there a path.
    line_tables = packed and "\nTRIMUL_CUDA_LINEINFO:BOOL=ON\n" in cache.read_text() and b"\0.nv_fatbin\0" in files[LIBRARY]
    secrets = {str(ROOT), str(BUILD), os.path.expanduser("~"), socket.gethostname()}
    secrets = {secret for secret in secrets if len(secret) > 4 and secret != "localhost"}  # shorter ones stand in any program
    found = [(name, secret) for name, content in files.items() for secret in secrets
             if not (line_tables and name == LIBRARY) and re.search(rb"(?<![\w-])" + re.escape(secret.encode()) + rb"(?![\w-])", content)]
    assert found == []
    if line_tables:
        pytest.skip("the GPU code of this build tree has line tables, which name paths; the other files name none")


def test_libraries_need_neither_torch_nor_a_driver(unpacked):
    needed, places = dynamic_section(unpacked / LIBRARY)
    allowed = r"lib(stdc\+\+|gcc_s|m|c|pthread|dnnl|gomp|omp|iomp5|dl|rt)(-[0-9a-f]+)?\.so|ld-linux"
    assert [name for name in needed if not re.match(allowed, name)] == []
    assert [place for place in places if not place.startswith("$ORIGIN")] == []


def test_torch_operators_need_no_python(unpacked):
    if not (unpacked / TORCH_LIBRARY).exists():
        pytest.skip("this wheel was built without torch's headers")
    needed, places = dynamic_section(unpacked / TORCH_LIBRARY)
    assert pathlib.Path(LIBRARY).name in needed
    assert [name for name in needed if re.match(r"libpython|libtorch_python|libc10_cuda|libtorch_cuda|libcuda", name)] == []
    assert [place for place in places if not place.startswith("$ORIGIN")] == []


# ---- the package ------------------------------------------------------------------------------------------------------------


def test_plans_without_torch(environment, confinement, user):
    result = confinement.run(environment / "bin/python", PLAN, words=user)
    assert result.returncode == 0, result.stderr
    assert "cpu" in result.stdout


def test_runs_the_operator(environment_with_torch, files, confinement, user):
    result = confinement.run(environment_with_torch / "bin/python", OPERATOR, words=user)
    assert result.returncode == 0, result.stderr
    road, major, minor = re.search(r"by (stable ABI|ctypes).* with torch (\d+)\.(\d+)", result.stdout).groups()
    assert (road == "stable ABI") == (TORCH_LIBRARY in files and (int(major), int(minor)) >= (2, 11)), result.stdout


def test_import_and_plan_touch_nothing_outside_the_package(environment, confinement):
    result = confinement.run(environment / "bin/python", IMPORT)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    interpreter = tuple(str(pathlib.Path(place).resolve()) for place in {sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)})
    assert [entry for entry in report["seen"] if entry[0] not in ("read", "ctypes.dlopen")] == []
    outside = [path for kind, path in report["seen"] if kind == "read" and not path.startswith((report["package"] + "/", *interpreter))]
    assert outside == []
    assert not {"torch", "numpy"} & set(report["modules"])


def test_says_its_version(environment, confinement):
    result = confinement.run(environment / "bin/python", "import trimul; print(trimul.__version__); print(trimul.build_info()['version'])")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [VERSION, VERSION]


def test_command_runs_or_says_why_not(environment, files):
    result = subprocess.run([environment / "bin/trimul", "info"], capture_output=True, text=True, check=False, env={})
    if "trimul/bin/trimul" in files:
        assert result.returncode == 0, result.stderr
        assert f"version: {VERSION}" in result.stdout
    else:
        assert result.returncode == 1
        assert "was built without the command" in result.stderr


@pytest.mark.parametrize("content", [None, b"", b"not a library\n" * 100], ids=["deleted", "empty", "other bytes"])
def test_a_library_that_cannot_be_loaded_is_named(environment, confinement, tmp_path, content):
    site = copy_package(site_packages(environment), tmp_path / "site")
    library = site / LIBRARY
    library.parent.chmod(0o755)
    library.unlink()
    if content is not None:
        library.write_bytes(content)
    result = confinement.run(sys.executable, "import trimul; trimul.build_info()", PYTHONPATH=str(site))
    assert result.returncode == 1
    assert str(library) in result.stderr.splitlines()[-1], result.stderr
