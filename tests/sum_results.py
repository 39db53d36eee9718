# SPDX-License-Identifier: Apache-2.0
"""Adds up a test run: build/test-results/steps.tsv (step, exit status) and the JUnit files beside it.

Prints what failed and, as the last line, 'N passed, N failed, N skipped'; exits 1 when something failed or nothing passed.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_cases(path):
    """(passed, failed names, skipped names) of one JUnit file."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{path.stem}: {case.get('classname') or ''} {case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped.append(name)
        else:
            passed += 1
    return passed, failed, skipped


def main(directory):
    passed, failed, skipped = 0, [], []
    for line in (directory / "steps.tsv").read_text().splitlines():
        step, code = line.split("\t")
        report = directory / f"{step}.xml"
        step_failed = []
        if report.exists():
            step_passed, step_failed, step_skipped = count_cases(report)
            passed += step_passed
            failed += step_failed
            skipped += step_skipped
        elif code == "0":
            passed += 1
        if code != "0" and not step_failed:
            failed.append(f"{step}: exit status {code}")
    for name in skipped:
        print(f"skipped  {name}")
    for name in failed:
        print(f"FAILED   {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
