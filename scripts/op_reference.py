"""The table of ops in docs/ir.md, made from src/ir/ops.def as the tool weft-opt prints it.

    python scripts/op_reference.py            prints the table
    python scripts/op_reference.py --write    and puts it into docs/ir.md

WEFT_OPT is the tool's path, build/tools/weft-opt if it isn't set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "ir.md"
BEGIN, END = "<!-- ops -->\n", "<!-- /ops -->\n"


def op_rows(weft_opt: str | Path) -> list[dict[str, str]]:
    """The op table: for each op its columns by name (tools/op_table.cpp)."""
    printed = subprocess.run([weft_opt, "--list-ops"], capture_output=True, text=True, check=True).stdout
    names, *rows = [line.split("\t") for line in printed.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def table(rows: list[dict[str, str]]) -> str:
    """The rows in Markdown, a line each."""
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    for row in rows:
        cells = [f"`{value}`" if name == "op" else value for name, value in row.items()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    made = table(op_rows(os.environ.get("WEFT_OPT", ROOT / "build" / "tools" / "weft-opt")))
    print(made, end="")
    if "--write" in arguments:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(before + BEGIN + made + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
