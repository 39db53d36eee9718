# SPDX-License-Identifier: Apache-2.0
"""patch_openfold3 without the real package; with it: tests/models."""

import importlib.util
import sys

import pytest

pytest.importorskip("torch")
import trimul


def test_absent_openfold3_is_named():
    if importlib.util.find_spec("openfold3") is not None:
        pytest.skip("openfold3 is installed in this environment")
    trimul.unpatch_openfold3()
    with pytest.raises(ImportError, match="openfold3 is not installed, expected openfold3 0.5.0") as caught:
        trimul.patch_openfold3()
    assert caught.value.name == "openfold3"


def test_an_error_of_its_import_stays_visible(tmp_path, monkeypatch):
    folder = tmp_path / "openfold3"
    folder.mkdir()
    (folder / "__init__.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "openfold3"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="a_package_that_nobody_has") as caught:
        trimul.patch_openfold3()
    assert caught.value.name == "a_package_that_nobody_has"
