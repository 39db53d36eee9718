# SPDX-License-Identifier: Apache-2.0
"""Prints, as a CMake list, the include directories of each torch that this interpreter could import, without importing one. Isolated
builds hide the environment that they build for from sys.path; its own directories are looked at as well."""

import importlib.util
import pathlib
import site
import sys
import sysconfig

spec = importlib.util.find_spec("torch")
packages = [pathlib.Path(place) for place in spec.submodule_search_locations or []] if spec else []
packages += [pathlib.Path(place) / "torch" for place in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages())]
includes = [str(package / "include") for package in packages if (package / "include").is_dir()]
sys.stdout.write(";".join(dict.fromkeys(includes)))
