# SPDX-License-Identifier: Apache-2.0
"""install_as_cuequivariance where cuEquivariance is installed: a tree of the same shape, and the real one where it can be imported."""

import os
import textwrap

import pytest
from cuequivariance_scripts import ROUND_TRIP, run

# Stands for the real package: a namespace below it, a package that takes its names from the module and reads a file of its own while
# it is imported, two modules that go on working beside the replaced names.
TREE = {
    "VERSION": "0.13.0\n",
    "__init__.py": """
        import importlib.resources
        __version__ = importlib.resources.files(__package__).joinpath("VERSION").read_text().strip()
        from .primitives.triangle import TriMulPrecision, triangle_attention, triangle_multiplicative_update
        from cuequivariance_torch import layers
        """,
    "primitives/triangle.py": """
        import enum
        class TriMulPrecision(enum.IntEnum):
            DEFAULT = 0
        def triangle_attention(*args):
            return "their attention"
        def triangle_multiplicative_update(*args, **kwargs):
            return ("theirs", args, kwargs)
        """,
    "layers/__init__.py": "from cuequivariance_torch.primitives.triangle import triangle_attention\nWIDTH = 128\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in TREE.items():
        path = tmp_path / "cuequivariance_torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


INSTALLED_CHECKS = """
import cuequivariance_torch, cuequivariance_torch.primitives.triangle as triangle
assert cuequivariance_torch.__version__ == "0.13.0" and cuequivariance_torch.layers.WIDTH == 128
for module in (cuequivariance_torch, triangle):
    assert module.triangle_attention() == "their attention"
    assert module.TriMulPrecision is trimul.TriMulPrecision
    assert module.__spec__.loader is module.__loader__ and type(module.__loader__).__name__ == "SourceFileLoader"
assert type(importlib.util.find_spec("cuequivariance_torch").loader).__name__ == "SourceFileLoader"
for statement in IMPORTS:
    assert is_ours(function_of(statement)), statement
"""

RESTORED_CHECKS = """
for statement in IMPORTS:
    assert function_of(statement)(1)[0] == "theirs", statement
assert "TriMulPrecision" in vars(triangle) and triangle.TriMulPrecision is not trimul.TriMulPrecision
assert cuequivariance_torch.TriMulPrecision is triangle.TriMulPrecision
assert cuequivariance_torch.triangle_multiplicative_update is triangle.triangle_multiplicative_update
assert not any(type(finder).__module__.startswith("trimul") for finder in sys.meta_path)
"""


def test_installed_and_imported_after(tree):
    run("""
        before = state()
        install_as_cuequivariance()
        assert "cuequivariance_torch" not in sys.modules
        assert importlib.util.find_spec("cuequivariance_torch").origin.endswith("__init__.py")
        """, INSTALLED_CHECKS, """
        uninstall_as_cuequivariance()
        assert list(sys.meta_path) == before[2]
        """, RESTORED_CHECKS, path=tree)


@pytest.mark.parametrize("name", ["cuequivariance_torch", "cuequivariance_torch.primitives.triangle"])
def test_installed_and_imported_before(tree, name):
    run(f"""
        import {name}
        theirs = cuequivariance_torch.triangle_multiplicative_update
        """, ROUND_TRIP, """
        install_as_cuequivariance()
        """, INSTALLED_CHECKS, """
        assert theirs(1)[0] == "theirs"
        uninstall_as_cuequivariance()
        """, RESTORED_CHECKS, """
        assert cuequivariance_torch.triangle_multiplicative_update is theirs
        """, path=tree)


def test_installed_reload_and_second_import_are_replaced_too(tree):
    run("""
        install_as_cuequivariance()
        import cuequivariance_torch, cuequivariance_torch.primitives.triangle as triangle
        importlib.reload(triangle)
        assert is_ours(triangle.triangle_multiplicative_update)
        importlib.reload(cuequivariance_torch)
        """, INSTALLED_CHECKS, """
        first = cuequivariance_torch
        for name in [name for name in sys.modules if name.startswith("cuequivariance")]:
            del sys.modules[name]
        """, INSTALLED_CHECKS, """
        assert first is not cuequivariance_torch
        uninstall_as_cuequivariance()
        assert first.triangle_multiplicative_update(1)[0] == "theirs"
        """, RESTORED_CHECKS, """
        importlib.reload(triangle)
        importlib.reload(cuequivariance_torch)
        """, RESTORED_CHECKS, path=tree)


def test_installed_without_the_names_gains_the_function_and_loses_it_again(tree):
    (tree / "cuequivariance_torch" / "__init__.py").write_text("OLD = True\n")
    (tree / "cuequivariance_torch" / "primitives" / "triangle.py").unlink()
    run("""
        import cuequivariance_torch
        install_as_cuequivariance()
        assert cuequivariance_torch.OLD and is_ours(cuequivariance_torch.triangle_multiplicative_update)
        assert "TriMulPrecision" not in vars(cuequivariance_torch)
        from cuequivariance_torch.primitives.triangle import triangle_multiplicative_update
        assert is_ours(triangle_multiplicative_update)
        uninstall_as_cuequivariance()
        assert not hasattr(cuequivariance_torch, "triangle_multiplicative_update")
        assert not hasattr(cuequivariance_torch.primitives, "triangle")
        error_of(ModuleNotFoundError, "import cuequivariance_torch.primitives.triangle")
        """, path=tree)


def test_installed_but_broken_tells_its_own_error(tree):
    (tree / "cuequivariance_torch" / "primitives" / "triangle.py").write_text("raise ImportError('libcue.so.9: cannot open shared object file')\n")
    run("""
        install_as_cuequivariance()
        assert "libcue.so.9" in error_of(ImportError, "import cuequivariance_torch")
        assert "cuequivariance_torch" not in sys.modules
        uninstall_as_cuequivariance()
        """, path=tree)


def test_what_others_assigned_in_between_is_left_alone(tree):
    run("""
        import cuequivariance_torch
        install_as_cuequivariance()
        cuequivariance_torch.triangle_multiplicative_update = "another's"
        uninstall_as_cuequivariance()
        assert cuequivariance_torch.triangle_multiplicative_update == "another's"
        assert cuequivariance_torch.primitives.triangle.triangle_multiplicative_update(1)[0] == "theirs"
        """, path=tree)


def test_a_module_put_into_sys_modules_is_replaced_in_place():
    run("""
        import types
        fake = sys.modules["cuequivariance_torch"] = types.ModuleType("cuequivariance_torch")
        fake.triangle_multiplicative_update = len
        install_as_cuequivariance()
        assert sys.modules["cuequivariance_torch"] is fake and is_ours(function_of(IMPORTS[0]))
        uninstall_as_cuequivariance()
        assert fake.triangle_multiplicative_update is len
        """)


@pytest.mark.parametrize("installed", [False, True])
def test_threads_that_install_import_and_uninstall(tree, installed):
    run("""
        import threading
        failures = []

        def work(seed):
            try:
                for i in range(200):
                    install_as_cuequivariance()
                    if (i + seed) % 3 == 0:
                        uninstall_as_cuequivariance()
            except BaseException as caught:
                failures.append(repr(caught))

        def load():
            try:
                for i in range(200):
                    sys.modules.pop("cuequivariance_torch.primitives.triangle", None)
                    try:
                        import cuequivariance_torch.primitives.triangle as triangle
                        assert callable(getattr(triangle, "triangle_multiplicative_update", len))
                    except (ImportError, KeyError):
                        pass  # uninstalled, or dropped by another thread, while this one imported it
            except BaseException as caught:
                failures.append(repr(caught))

        before = list(sys.meta_path)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)] + [threading.Thread(target=load)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not failures, failures
        uninstall_as_cuequivariance()
        assert list(sys.meta_path) == before
        """, path=tree if installed else None)


def test_blocked_package_is_served_and_blocked_again_after(tree):
    run("""
        sys.modules["cuequivariance_torch"] = None
        """, ROUND_TRIP, """
        error_of(ModuleNotFoundError, "import cuequivariance_torch")
        install_as_cuequivariance()
        for statement in IMPORTS:
            assert is_ours(function_of(statement)), statement
        assert not hasattr(sys.modules["cuequivariance_torch"], "layers")
        """, path=tree)


def test_real_package():
    """Where TRIMUL_CUEQUIVARIANCE names a folder with what tests/models/cuequivariance.txt lists; it imports torch and scipy, too."""
    folder = os.environ.get("TRIMUL_CUEQUIVARIANCE", "")
    if not os.path.isdir(os.path.join(folder, "cuequivariance_torch")):
        pytest.skip("TRIMUL_CUEQUIVARIANCE names no folder with cuequivariance_torch")
    for order in ("install_as_cuequivariance()\nimport cuequivariance_torch as c", "import cuequivariance_torch as c\ninstall_as_cuequivariance()"):
        run(order, """
            names = ["triangle_attention", "attention_pair_bias", "SegmentedPolynomial", "layers", "Linear", "__version__"]
            kept = {name: getattr(c, name) for name in names}
            for statement in IMPORTS:
                assert is_ours(function_of(statement)), statement
            assert c.TriMulPrecision is c.primitives.triangle.TriMulPrecision is trimul.TriMulPrecision
            importlib.reload(c.primitives.triangle)
            assert is_ours(c.primitives.triangle.triangle_multiplicative_update)
            uninstall_as_cuequivariance()
            for module in (c, c.primitives.triangle):
                assert module.triangle_multiplicative_update.__module__ == "cuequivariance_torch.primitives.triangle"
                assert module.TriMulPrecision is not trimul.TriMulPrecision
            assert all(getattr(c, name) is kept[name] for name in names)
            """, path=folder)
