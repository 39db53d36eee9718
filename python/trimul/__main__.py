# SPDX-License-Identifier: Apache-2.0
"""The `trimul` command, in packages that were built with it."""

from __future__ import annotations

import os
import pathlib
import sys

import trimul


def main() -> None:
    """Becomes the command; exit status 1 where the package has none."""
    # An editable install keeps what was compiled in a second place of the package's path.
    places = [pathlib.Path(place) / "bin" / "trimul" for place in trimul.__path__]
    command = next((place for place in places if place.is_file()), None)
    if command is None:
        sys.exit(f"trimul: this package was built without the command: {places[0]} does not exist; pip install --config-settings "
                 "cmake.define.TRIMUL_BUILD_CLI=ON builds one with it")
    os.execv(command, ["trimul", *sys.argv[1:]])


if __name__ == "__main__":
    main()
