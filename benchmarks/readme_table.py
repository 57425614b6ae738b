"""Puts compare.py's results into a Markdown file, between the two marker lines.

Usage: readme_table.py RESULTS.json README.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from report import markdown

END = "<!-- benchmarks: end -->"


def replaced(text: str, section: str, target: str = "bench") -> str:
    """`text` with what stands between the markers of a make target replaced; ValueError when they aren't there."""
    marker = f"<!-- benchmarks: begin (written by `make {target}`) -->"
    before, begin, rest = text.partition(marker)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines '{marker}' and '{END}'")
    return f"{before}{marker}\n{section}\n{END}{after}"


def main() -> None:
    results, target = map(Path, sys.argv[1:3])
    target.write_text(replaced(target.read_text(), markdown(json.loads(results.read_text()))))


if __name__ == "__main__":
    main()
