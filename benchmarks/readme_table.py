"""Puts compare.py's results into a Markdown file, between the two marker lines.

Usage: readme_table.py RESULTS.json README.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from report import markdown

BEGIN = "<!-- benchmarks: begin (written by `make bench`) -->"
END = "<!-- benchmarks: end -->"


def replaced(text: str, section: str) -> str:
    """`text` with what stands between the markers replaced; ValueError when they aren't there."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> None:
    results, target = map(Path, sys.argv[1:3])
    target.write_text(replaced(target.read_text(), markdown(json.loads(results.read_text()))))


if __name__ == "__main__":
    main()
