# SPDX-License-Identifier: Apache-2.0
"""Prints, as a CMake list, the include directories of each torch that this interpreter could import, without importing one. Isolated
builds hide the environment that they build for from sys.path; its own directories are looked at as well."""

import importlib.util
import os
import pathlib
import site
import subprocess
import sys
import sysconfig

spec = importlib.util.find_spec("torch")
packages = [pathlib.Path(place) for place in spec.submodule_search_locations or []] if spec else []
packages += [pathlib.Path(place) / "torch" for place in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages())]
# Where the environment leads elsewhere (path files, the system's packages), an interpreter without the isolation knows.
ask = "import importlib.util as u; s = u.find_spec('torch'); print(*(s.submodule_search_locations or []) if s else [], sep='\\n')"
unhidden = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False, env=unhidden, cwd="/")
packages += [pathlib.Path(line) for line in answer.stdout.split("\n") if line]
includes = [str(package / "include") for package in packages if (package / "include").is_dir()]
sys.stdout.write(";".join(dict.fromkeys(includes)))
