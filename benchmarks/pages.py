"""Puts compare.py's results into the pages: all tables into docs/figures/performance.md, and from there their
means and a plot into the README. The page has a section for processors with AVX-512, of which the README has the plot
and a list, and one for those with AVX2 alone, of which it has a line.

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
#: by the instructions of the run: who writes the section
WRITERS = {"AVX-512": "`make bench`", "AVX2": "`make bench` with AVX2 alone"}


def parts(text: str, writer: str = WRITERS["AVX-512"]) -> tuple[str, str, str]:
    """The text before, between and after the markers of a section; ValueError if they are missing."""
    marker = f"<!-- benchmarks: begin (written by {writer}) -->"
    before, begin, rest = text.partition(marker)
    section, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines '{marker}' and '{END}'")
    return before + begin, section.strip("\n"), end + after


def replaced(text: str, section: str, writer: str = WRITERS["AVX-512"]) -> str:
    """`text` with the part between the markers of a section replaced; ValueError if they are missing."""
    before, _, after = parts(text, writer)
    return f"{before}\n{section}\n{after}"


def summary(section: str) -> tuple[str, list[str]]:
    """What was measured, and how many times faster Weft is, a line each cell and mode."""
    return section.partition(". Milliseconds: ")[0], re.findall(r"^- (\w+ [\w, ]+: .* eager, .*)$", section, re.M)


def means(section: str, of_avx2: str) -> str:
    """The README's lines, from the page's two sections."""
    (conditions, lines), (narrow, narrow_lines) = summary(section), summary(of_avx2)
    machine, _, measured = re.sub("; torch .*; commit", "; commit", narrow).partition("; ")
    return "\n".join(
        [
            f"{conditions}. How many times faster, geometric means over seven shapes:",
            "",
            *(f"- {line}" for line in lines),
            "",
            f"The same on {machine}, with AVX2 alone; {measured}: {'; '.join(narrow_lines).replace(':', '')}.",
        ]
    )


def main() -> None:
    if len(sys.argv) > 1:
        report = json.loads(Path(sys.argv[1]).read_text())
        PAGE.write_text(replaced(PAGE.read_text(), markdown(report), WRITERS[report["machine"]["instructions"]]))
    section, of_avx2 = (parts(PAGE.read_text(), writer)[1] for writer in WRITERS.values())
    README.write_text(replaced(README.read_text(), means(section, of_avx2)))
    from reports.plot import draw  # needs matplotlib, as cells.py, which imports this, does not

    draw(section, PLOT)


if __name__ == "__main__":
    main()
