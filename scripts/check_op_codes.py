"""Checks that no phase asks an op for its name where it means a fact: facts are traits, in the op's row of ops.def.

A comparison with `OpCode::k...` (==, !=, case, a list of codes, definition(value, code)) stands in the tables of a
phase, which have an entry an op: TABLES. `scan`, `cond` and `while` are the language's control flow, which any pass may
tell apart.
Prints each file that breaks this and exits with 1 when there is one.
Usage: check_op_codes.py [ROOT]
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

FOLDERS = ("src", "pytorch", "python/bindings", "tools")
CONTROL_FLOW = {"Scan", "Cond", "While"}

# Files in which an op's name is what is meant, and why.
TABLES = {
    "src/ir/*": "the language: its text, its types, and the functions by which others ask",
    "src/interpreter/*": "what each op computes",
    "src/stablehlo/*": "each op in StableHLO",
    "src/passes/simplification/simplifier*.cpp": "rules of algebra, each for one op",
    "src/passes/simplification/folded.cpp": "what each op makes of numbers",
    "src/passes/differentiation/own_derivatives.cpp": "which ops of a user's derivative are linear",
    "src/passes/differentiation/vjp_rules*.cpp": "the derivative of each op",
    "src/planning/cpu/*_arguments.cpp": "the kernel of each op, and its arguments",
    "src/planning/cpu/prepack.cpp": "the layout that each product has a kernel for",
    "src/codegen/pointwise.cpp": "the machine code of each op",
    "src/codegen/library_math.*": "the machine code of each function of the C library",
    "src/packages/emit/elements.cpp": "the machine code of each op in a package",
    "src/packages/emit/math.cpp": "the functions of a package",
    "src/packages/emit/reductions.cpp": "the sums and products of a package",
    "src/packages/math/single_functions.cpp": "the functions of a package for processors without float64",
    "src/packages/plan/refusals.cpp": "the ops that a package has no form of",
    "src/packages/plan/written_rows.cpp": "the ops that write rows by an index",
    "src/streaming/fixed_places.cpp": "what each op makes of numbers of steps",
    "src/streaming/last_rows.cpp": "the ops by which a row is picked by its number",
    "src/streaming/local_ops.cpp": "where each op leaves the steps' dim",
    "src/streaming/time_ops.cpp": "what each op does along the steps",
    "pytorch/importer/aten_*.cpp": "ATen's ops as the IR's",
}

CODE = r"(?:\w+::)*OpCode::k(\w+)"
COMPARISONS = [
    re.compile(pattern)
    for pattern in (
        rf"[=!]=\s*{CODE}\b",
        rf"{CODE}\s*[=!]=",
        rf"\bcase\s+{CODE}\s*:",
        rf"\bdefinition\([^;{{}}]*?,\s*{CODE}\)",
        rf"{CODE}(?=\s*,\s*(?:\w+::)*OpCode::k)",
    )
]
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
NAMES = re.compile(r"\busing\s+enum\s+(?:\w+::)*OpCode\b")


def comparisons(text: str) -> list[str]:
    """The names of the ops that the text of a file compares with, control flow apart."""
    text = COMMENT.sub("", text)
    found = [match.group(1) for pattern in COMPARISONS for match in pattern.finditer(text)]
    return [name for name in found if name not in CONTROL_FLOW] + ["using enum"] * len(NAMES.findall(text))


def faults(root: Path) -> list[str]:
    """One line for each file under `root` that compares with op codes and is no table."""
    found = []
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*") if file.suffix in (".cpp", ".h")]
    names = {str(file.relative_to(root)): file for file in sorted(files)}
    for name, file in names.items():
        if any(fnmatch(name, table) for table in TABLES):
            continue
        if ops := comparisons(file.read_text()):
            found.append(
                f"{name}: {len(ops)} comparisons with op codes ({', '.join(sorted(set(ops)))}): ask for a trait "
                "(src/ir/traits.h), or move them to a table of the phase"
            )
    tables = [table for table in TABLES if not any(fnmatch(name, table) for name in names)]
    return found + [f"{table}: in TABLES, but fits no file" for table in tables]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = faults(root)
    print("\n".join(found) if found else "op codes: phases ask for traits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
