# SPDX-License-Identifier: Apache-2.0
"""The `trimul` command, in packages that were built with it."""

import os
import pathlib
import sys


def main():
    command = pathlib.Path(__file__).parent / "bin" / "trimul"
    if not command.is_file():
        sys.exit(f"trimul: this package was built without the command: {command} does not exist; build it with TRIMUL_BUILD_CLI=ON")
    os.execv(command, ["trimul", *sys.argv[1:]])


if __name__ == "__main__":
    main()
