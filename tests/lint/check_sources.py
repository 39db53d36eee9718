# SPDX-License-Identifier: Apache-2.0
"""The rules of STYLE.md that a search over the sources can check. Each check returns its violations, one line each."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".cmake"}
COMPILED = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
MOST_LINES = 400
LONGER_WITH_REASON = {
    "include/trimul/trimul.h": "the C interface is one installed header",
    "include/trimul/trimul.hpp": "the C++ interface is one installed header",
}


def files(*suffixes, under=""):
    """Tracked and new files as paths relative to the root; a tree without git is walked."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        names = listing.stdout.splitlines()
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]
    return [n for n in sorted(set(names)) if n.startswith(under) and (ROOT / n).is_file() and (not suffixes or pathlib.Path(n).suffix in suffixes)]


def search(pattern, names, in_comments=False):
    """'file:line: text' of each match; comments to the end of the line count only when asked for."""
    found = []
    for name in names:
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if re.search(pattern, line if in_comments else re.sub(r"//.*", "", line)):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def check_no_asm_outside_ptx():
    return search(r"\b(asm|__asm__)\b", [n for n in files(*COMPILED) if not n.startswith("src/cuda/ptx/")])


def check_no_getenv_outside_env():
    return search(r"\bgetenv\b", [n for n in files(*COMPILED, under="src/") if n != "src/core/env.cpp"])


def check_no_cuda_include_under_core():
    """The toolkit's headers; this project's host-side headers under src/cuda are plain C++."""
    return search(r"#\s*include\s*(<(cuda|cub/|thrust/|nv|driver_types)|\"cuda\w*\.h)", files(*COMPILED, under="src/core/"))


def check_no_exit_in_the_library():
    return search(r"\b(std::)?(exit|abort|_Exit|quick_exit|terminate)\s*\(", files(*COMPILED, under="src/"))


def check_file_lengths():
    long = {n: len((ROOT / n).read_text().splitlines()) for n in files(*SOURCE)}
    return [f"{n}: {lines} lines, expected at most {MOST_LINES}" for n, lines in long.items() if lines > MOST_LINES and n not in LONGER_WITH_REASON]


def check_no_todo_without_issue():
    words = "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3])
    return search(rf"\b({words})\b(?!\(#\d+\))", files(*SOURCE), in_comments=True)


def check_spdx_headers():
    names = [n for n in files(*SOURCE) if n != "LICENSE"] + [n for n in files() if pathlib.Path(n).name in ("CMakeLists.txt", "dev")]
    return [f"{n}: no SPDX-License-Identifier in the first five lines" for n in names
            if "SPDX-License-Identifier: Apache-2.0" not in "\n".join((ROOT / n).read_text().splitlines()[:5])]


def check_names_in_architecture():
    """Each `path` that ARCHITECTURE.md names exists, and each `path`: `function` row of its road names a function of that file."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    wrong = [f"ARCHITECTURE.md: `{p}` does not exist" for p in re.findall(r"`([\w.]+(?:/[\w.]*)+)`", text) if not (ROOT / p).exists()]
    roads = [re.findall(r"^\|\s*\d+\s*\|\s*`([^`]+)`\s*\|\s*`([^`]+)`", table, re.MULTILINE) for table in re.split(r"\n\s*\n", text)]
    roads = [road for road in roads if road]
    wrong += [f"ARCHITECTURE.md: a road has {len(road)} files, expected at most five hops" for road in roads if not 2 <= len(road) <= 6]
    if not roads:
        wrong.append("ARCHITECTURE.md: has no road")
    for path, function in sum(roads, []):
        if (ROOT / path).is_file() and not re.search(rf"\b{re.escape(function.split('::')[-1])}\b", (ROOT / path).read_text()):
            wrong.append(f"ARCHITECTURE.md: {path} does not hold {function}")
    return wrong


def check_size_limit_in_the_contract():
    """The factor that src/core/problem.cpp checks stands in each of the contract's three products."""
    factor = re.search(r"kMostBytesPerElement = (\d+);", (ROOT / "src/core/problem.cpp").read_text()).group(1)
    words = re.sub(r"\s+", " ", (ROOT / "docs/op.md").read_text())
    products = (f"B * N * N * W * {factor},", f"N * N * W * {factor} (so also where B = 0)", f"W * W * {factor} (so also where B = 0 or N = 0)")
    return [f"docs/op.md: does not say {product!r}" for product in products if product not in words]


CHECKS = [function for name, function in sorted(globals().items()) if name.startswith("check_")]


def main():
    code = 0
    for check in CHECKS:
        for violation in check():
            print(f"{check.__name__[6:].replace('_', ' ')}: {violation}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
