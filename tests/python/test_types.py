# SPDX-License-Identifier: Apache-2.0
"""The inline types as pyright sees them: in a program that uses every public name, and in the package itself.

TRIMUL_PYRIGHT names a pyright; else one beside this interpreter or on PATH is taken (`pip install "pyright[nodejs]"`)."""

import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import trimul

PACKAGE = pathlib.Path(trimul.__file__).parent
BESIDE = pathlib.Path(sys.executable).parent / "pyright"
PYRIGHT = os.environ.get("TRIMUL_PYRIGHT") or (str(BESIDE) if BESIDE.exists() else shutil.which("pyright"))
needs_pyright = pytest.mark.skipif(PYRIGHT is None, reason="no pyright: TRIMUL_PYRIGHT, beside this interpreter or on PATH")

USER = '''
import torch
import trimul
import trimul.heuristics
from trimul import TriMulKnobs, TriMulPrecision, triangle_multiplicative_update
from trimul.nn import TriangleMultiplicativeUpdate
from trimul.reference import triangle_multiplicative_update_reference


def drop_in(x: torch.Tensor, w: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    y: torch.Tensor = triangle_multiplicative_update(x, "incoming", None, p_in_weight=w, g_in_weight=w, eps=1e-5, precision=TriMulPrecision.TF32)
    y = trimul.torch.triangle_multiplicative_update(y, mask=x, p_out_weight=w, g_out_weight=w, precision="bf16", out=y, stream=stream, residual=True)
    y = triangle_multiplicative_update(y, precision=3, stream=stream.cuda_stream)
    return triangle_multiplicative_update_reference(y, p_in_weight=w, rounding="none", residual=False)


def plans(x: torch.Tensor, w: torch.Tensor, workspace: torch.Tensor | None) -> None:
    weights: trimul.PreparedWeights = trimul.prepare_weights(p_in_weight=w, g_in_weight=w, dtype="bf16", impl="cpu")
    device: torch.device = weights.device
    facts: tuple[str, int, int, int, bool, bool] = (
        weights.implementation, weights.c_z, weights.c_hidden, weights.nbytes, weights.has_in_bias, weights.has_out_bias)
    desc = trimul.TensorDesc((1, 9, 9, 128), torch.bfloat16, device=device, strides=None)
    shape: tuple[int, ...] = desc.shape
    contiguous: bool = desc.is_contiguous() and trimul.TensorDesc.of(x).is_contiguous()
    plan = trimul.TriangleMultiplicativeUpdateFwd(desc, "outgoing", c_hidden=128, has_mask=False, residual=True, knobs={"k2_tile": 1})
    plan = trimul.TriangleMultiplicativeUpdateFwd(x, knobs=trimul.heuristics.recommend(256, c=128, B=1, device="cuda:0", arch=None), k2_tile=None)
    plan.check_support()
    plan.compile()
    plan.execute(x, None, weights, x, workspace)
    plan.execute(x, x, weights, x, workspace, current_stream=torch.cuda.current_stream())
    graph: torch.cuda.CUDAGraph = plan.make_cuda_graph(x, None, weights, x, workspace)
    graph.replay()
    size: int = plan.get_workspace_size() + plan.traffic_bytes()
    time: float = plan.flop() + plan.floor_us()
    text: str = plan.explain() + plan.implementation
    print(facts, shape, contiguous, size, time, text)


def knobs() -> TriMulKnobs:
    given = TriMulKnobs(k2_tile=2, overlap=None).replace(threads=4)
    value: int | None = given.k2_tile
    values: dict[str, int] = given.as_dict()
    print(value, values, given == TriMulKnobs())
    return given


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.update = TriangleMultiplicativeUpdate(128, c_hidden=64, direction="incoming", bias=True, eps=1e-6, precision="tf32", dtype=torch.float32)
        self.update.reset_parameters()
        self.width: int = self.update.p_in_weight.shape[1]
        self.bias: torch.nn.Parameter | None = self.update.p_in_bias

    def forward(self, z: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.update.forward(z, mask, residual=True)


def rest() -> None:
    trimul.install_as_cuequivariance()
    trimul.uninstall_as_cuequivariance()
    trimul.patch_openfold3(always=True)
    trimul.unpatch_openfold3()
    info: trimul.PlanCacheInfo = trimul.plan_cache_info()
    trimul.clear_plan_cache()
    numbers: int = info.hits + info.misses + info.entries + info.capacity
    texts: list[str] = [trimul.__version__, trimul.torch.backend(), *trimul.build_info().values()]
    print(numbers, texts)
'''

# Each line is an error, which its comment names; a comment without its error is one too.
MISTAKES = '''
import torch
import trimul


def wrong(x: torch.Tensor, plan: trimul.TriangleMultiplicativeUpdateFwd) -> None:
    trimul.no_such_name  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    trimul.triangle_multiplicative_update()  # pyright: ignore[reportCallIssue]
    trimul.triangle_multiplicative_update(x, 1)  # pyright: ignore[reportArgumentType]
    trimul.triangle_multiplicative_update(x, mask="ones")  # pyright: ignore[reportArgumentType]
    trimul.triangle_multiplicative_update(x, residuals=True)  # pyright: ignore[reportCallIssue]
    plan.execute(x, None, x, x, None)  # pyright: ignore[reportArgumentType]
    plan.execute(x, None)  # pyright: ignore[reportCallIssue]
    trimul.TensorDesc(9, "bf16")  # pyright: ignore[reportArgumentType]
    trimul.nn.TriangleMultiplicativeUpdate("128")  # pyright: ignore[reportArgumentType]
'''


def check(folder, **settings):
    """The errors that pyright finds under the settings, as 'file:line: message'."""
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [PYRIGHT, "--project", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd=folder)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run: {(done.stderr or done.stdout).strip()[-300:]}")
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    return [f"{pathlib.Path(d['file']).name}:{d['range']['start']['line'] + 1}: {d['message']}" for d in report["generalDiagnostics"]]


# What torch leaves untyped is not this package's to answer for.
STRICT = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}


@needs_pyright
@pytest.mark.parametrize("program", [USER, MISTAKES], ids=["every public name", "mistakes"])
def test_users_program(program, tmp_path):
    (tmp_path / "program.py").write_text(program)
    assert check(tmp_path, **STRICT) == []


@needs_pyright
def test_package(tmp_path):
    copy = tmp_path / "trimul"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("lib", "bin", "__pycache__"))
    assert check(tmp_path, include=["trimul"], typeCheckingMode="basic", pythonVersion="3.9") == []


def imported_names(body):
    """name -> module of the `from .module import name` statements; modules of the package themselves lie in "."."""
    places = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            places.update({alias.asname or alias.name: statement.module or "." for alias in statement.names})
    return places


def test_checkers_see_what_is_loaded_lazily():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]
    assert imported_names(block.body) == {**trimul._PLACES, **dict.fromkeys(trimul._MODULES, ".")}
    assert sorted(trimul._PLACES) == trimul.__all__


def test_every_public_name_is_in_the_program():
    names = {node.attr for node in ast.walk(ast.parse(USER)) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in ast.walk(ast.parse(USER)) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not set(trimul.__all__) - names
