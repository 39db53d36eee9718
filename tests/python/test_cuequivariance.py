# SPDX-License-Identifier: Apache-2.0
"""install_as_cuequivariance where cuEquivariance is absent."""

import importlib.util

import pytest
from cuequivariance_scripts import ROUND_TRIP, run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("cuequivariance_torch") is not None, reason="cuequivariance_torch is installed here")


def test_absent_every_import_finds_ours():
    run("""
        install_as_cuequivariance()
        for statement in IMPORTS:
            assert is_ours(function_of(statement)), statement
        f = function_of(IMPORTS[0])
        assert f("x", "incoming", precision=3)[1][:2] == ("x", "incoming") and f("x", precision=3)[1][16] == 3
        assert f("x", residual=True)[2] == dict(out=None, stream=None, residual=True)
        assert "torch" not in sys.modules
        """)


@pytest.mark.parametrize("first", range(10))
def test_absent_each_import_alone_finds_ours_after_modules_were_dropped(first):
    run(f"""
        install_as_cuequivariance()
        for name in [name for name in sys.modules if name.startswith("cuequivariance")]:
            del sys.modules[name]
        assert is_ours(function_of(IMPORTS[{first}]))
        assert is_ours(function_of(IMPORTS[2]))
        uninstall_as_cuequivariance()
        assert not [name for name in sys.modules if name.startswith("cuequivariance")]
        """)


def test_absent_install_is_reversible_and_idempotent():
    run(ROUND_TRIP, """
        assert importlib.util.find_spec("cuequivariance_torch") is None
        error_of(ModuleNotFoundError, "import cuequivariance_torch")
        install_as_cuequivariance()
        assert is_ours(function_of(IMPORTS[0]))
        """)


def test_absent_modules_have_specs_reload_and_pickle():
    run("""
        install_as_cuequivariance()
        for name in ("cuequivariance_torch", "cuequivariance_torch.primitives", "cuequivariance_torch.primitives.triangle"):
            spec = importlib.util.find_spec(name)
            module = sys.modules[name]
            assert spec.name == name and spec.loader is not None and module.__spec__ is spec and module.__loader__ is spec.loader
            assert (spec.submodule_search_locations is None) == name.endswith("triangle")
            assert module.__package__ == spec.parent
            assert importlib.reload(module) is module is sys.modules[name]
        for name in ("cuequivariance_ops_torch", "cuequivariance", "cuequivariance_torch.layers"):
            assert importlib.util.find_spec(name) is None
        for statement in IMPORTS:
            f = function_of(statement)
            assert is_ours(f) and pickle.loads(pickle.dumps(f)) is f
        uninstall_as_cuequivariance()
        assert pickle.loads(pickle.dumps(f)) is f
        """)


def test_absent_precision_and_version():
    run("""
        install_as_cuequivariance()
        import cuequivariance_torch
        from cuequivariance_torch import TriMulPrecision
        from cuequivariance_torch.primitives.triangle import TriMulPrecision as second
        assert TriMulPrecision is second is trimul.TriMulPrecision is cuequivariance_torch.TriMulPrecision
        assert pickle.loads(pickle.dumps(TriMulPrecision.IEEE)) is TriMulPrecision.IEEE
        assert [int(part) for part in cuequivariance_torch.__version__.split("+")[0].split(".")] >= [0, 12, 0]
        names = {}
        exec("from cuequivariance_torch import *", names)
        assert is_ours(names["triangle_multiplicative_update"]) and names["TriMulPrecision"] is TriMulPrecision
        """)


def test_absent_other_names_are_absent_and_say_what_to_do():
    run("""
        install_as_cuequivariance()
        import cuequivariance_torch, cuequivariance_torch.primitives.triangle as triangle
        for module in (cuequivariance_torch, triangle, cuequivariance_torch.primitives):
            assert not hasattr(module, "triangle_attention") and getattr(module, "triangle_attention", 5) == 5
            try:
                module.triangle_attention
            except AttributeError as caught:
                assert "install cuEquivariance" in str(caught) and module.__name__ + ".triangle_attention" in str(caught)
            else:
                raise AssertionError(module)
            message = error_of(ImportError, f"from {module.__name__} import triangle_attention")
            assert "install cuEquivariance" in message and module.__name__ + ".triangle_attention" in message, message
            try:
                exec(f"from {module.__name__} import triangle_multiplicative_update, triangle_attention")
            except ImportError:
                pass
            else:
                raise AssertionError(module)
        error_of(ModuleNotFoundError, "import cuequivariance_torch.layers")
        error_of(ImportError, "from cuequivariance_torch import layers")
        error_of(ModuleNotFoundError, "import cuequivariance_torch.primitives.triangle.deeper")
        """)


def test_signature_is_the_drop_ins():
    pytest.importorskip("torch")
    run("""
        import inspect
        del trimul.triangle_multiplicative_update  # the prologue's
        install_as_cuequivariance()
        from cuequivariance_torch import triangle_multiplicative_update
        def plain(function):
            return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
        assert plain(triangle_multiplicative_update) == plain(trimul.triangle_multiplicative_update)
        """)


def test_absent_compiles_without_a_graph_break():
    pytest.importorskip("torch")
    run("""
        import warnings
        warnings.simplefilter("ignore")  # torch's own
        import torch
        del trimul.triangle_multiplicative_update  # the prologue's
        install_as_cuequivariance()
        from cuequivariance_torch import triangle_multiplicative_update
        weights = {f"{name}_weight": torch.randn(rows, 32) for name, rows in dict(p_in=64, g_in=64, p_out=32, g_out=32).items()}

        def twice(x, mask):
            return triangle_multiplicative_update(triangle_multiplicative_update(x, "incoming", mask, **weights) + 1, mask=mask, **weights)

        x, mask = torch.randn(1, 9, 9, 32), torch.rand(1, 9, 9)
        with torch.no_grad():
            expected = twice(x, mask)
            assert torch.equal(torch.compile(twice, backend="eager", fullgraph=True)(x, mask), expected)
        """)
