# SPDX-License-Identifier: Apache-2.0
"""The operators over ctypes, for a torch that is older than the extension's ABI; a process has one road, so in one of its own."""

import cases


def test_the_same_values_errors_and_schemas():
    cases.run_python("import ctypes_road")
