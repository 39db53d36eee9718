# SPDX-License-Identifier: Apache-2.0
"""Orders of import, each in a process of its own."""

import cases

WITHOUT = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
"""


def test_import_brings_neither_torch_nor_numpy_nor_a_library():
    code = """
import sys
before = set(sys.modules)
import trimul
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not new & {"torch", "numpy", "ctypes"}, new
assert not any("libtrimul" in line for line in open("/proc/self/maps"))
import inspect, trimul.heuristics
assert list(inspect.signature(trimul.triangle_multiplicative_update).parameters)[:4] == ["x", "direction", "mask", "norm_in_weight"]
trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((1, 9, 9, 128), "bf16", "cpu")).check_support()
assert not {"torch", "numpy"} & set(sys.modules)
"""
    cases.run_python(code)


def test_without_torch():
    """Plans, knobs and their errors need no torch; what needs it says so and names itself."""
    code = (
        WITHOUT
        + """
import trimul
assert trimul.__version__.count(".") == 2 and "compiler" in trimul.build_info()
plan = trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((2, 9, 9, 128), "bfloat16", "cpu"))
plan.check_support(); plan.compile()
assert plan.get_workspace_size() > 0 and plan.traffic_bytes() == 18 * 2 * 81 * 128 + 2 * 2 * 81
assert "implementation: cpu" in plan.explain() and plan.implementation == "cpu" and "B=2 N=9" in repr(plan)
assert trimul.heuristics.recommend(300, device="cpu").threads >= 1
for use in (
    lambda: trimul.triangle_multiplicative_update(1), lambda: trimul.prepare_weights(), lambda: plan.execute(1, 2, 3, 4, 5),
    lambda: trimul.nn, lambda: trimul.reference, lambda: trimul.torch,
):
    try:
        use()
    except ImportError as error:
        assert "torch" in str(error).lower(), error
    else:
        raise AssertionError("no ImportError")
for wrong, expected in (((0, 3, 4, 8), ValueError), ((3, 3, 0), ValueError), ((3, 8), ValueError)):
    try:
        trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc(wrong, "fp32", "cpu"))
    except expected:
        pass
    else:
        raise AssertionError(wrong)
from trimul import _library
assert _library.exception_class("OUT_OF_MEMORY") is MemoryError
"""
    )
    cases.run_python(code)


CALL = """
rng = torch.Generator().manual_seed(1)
import cases
x = cases.random_x(rng, "cpu", 5)
cases.assert_update(x, **cases.random_parameters(rng, "cpu"))
plan.compile()
assert trimul.torch.backend() == "stable ABI", trimul.torch.backend()
"""
PLAN = """
plan = trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((5, 5, 16), "fp32", "cpu"), c_hidden=24)
f = trimul.triangle_multiplicative_update
"""


def test_trimul_before_torch():
    """And the first call of the process a compiled one, without a graph break."""
    first = """
parameters = cases.random_parameters(torch.Generator().manual_seed(0), "cpu")
compiled = torch.compile(lambda x: f(x, **parameters), fullgraph=True, backend="eager")
x = torch.randn(5, 5, 16)
assert torch.equal(compiled(x), f(x, **parameters))
"""
    cases.run_python("import trimul\n" + PLAN + "import torch, cases\n" + first + CALL)


def test_trimul_after_torch():
    cases.run_python("import torch, trimul\n" + PLAN + CALL)
