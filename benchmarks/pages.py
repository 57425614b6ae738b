"""Puts compare.py's results into the pages: all tables into docs/figures/performance.md, and from there their
means and a plot into the README.

Usage: pages.py [RESULTS.json]   (without results: means and plot of the page as it stands)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from reports.report import markdown

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
PAGE, README, PLOT = FIGURES / "performance.md", ROOT / "README.md", FIGURES / "speedup.svg"
END = "<!-- benchmarks: end -->"


def parts(text: str, target: str) -> tuple[str, str, str]:
    """The text before, between and after the markers of a make target; ValueError if they are missing."""
    marker = f"<!-- benchmarks: begin (written by `make {target}`) -->"
    before, begin, rest = text.partition(marker)
    section, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines '{marker}' and '{END}'")
    return before + begin, section.strip("\n"), end + after


def replaced(text: str, section: str, target: str = "bench") -> str:
    """`text` with the part between the markers of a make target replaced; ValueError if they are missing."""
    before, _, after = parts(text, target)
    return f"{before}\n{section}\n{after}"


def means(section: str) -> str:
    """The README's lines: what was measured, and how many times faster Weft is."""
    conditions = section.partition(". Milliseconds: ")[0]
    lines = re.findall(r"^- \w+ [\w, ]+: .* eager, .*$", section, re.M)
    return "\n".join([f"{conditions}. How many times faster, geometric means over seven shapes:", "", *lines])


def main() -> None:
    if len(sys.argv) > 1:
        section = markdown(json.loads(Path(sys.argv[1]).read_text()))
        PAGE.write_text(replaced(PAGE.read_text(), section))
    section = parts(PAGE.read_text(), "bench")[1]
    README.write_text(replaced(README.read_text(), means(section)))
    from reports.plot import draw  # needs matplotlib, as cells.py, which imports this, does not

    draw(section, PLOT)


if __name__ == "__main__":
    main()
