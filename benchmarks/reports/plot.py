"""The README's plot, from the tables of docs/figures/performance.md: speed beside eager PyTorch's, by shape and
implementation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from reports.report import TITLES, geometric_mean

#: Peers in the colours of Okabe and Ito, which stay apart for the colour-blind, and each with a shape of its own.
STYLES = {
    "Weft": ("o", "#d55e00", 56),
    "Inductor": ("^", "#009e73", 28),
    "XLA:CPU": ("s", "#0072b2", 28),
    "ONNX Runtime": ("D", "#e69f00", 28),
    "OpenVINO": ("v", "#56b4e9", 32),
    "oneDNN": ("P", "#cc79a7", 32),
}


@dataclass
class Panel:
    """A table of the page."""

    title: str
    shapes: list[str]
    #: by implementation, a speed beside eager's for each shape; None where it wasn't measured
    speeds: dict[str, list[float | None]]


def milliseconds(text: str) -> float | None:
    """The number in `3.32 ±1%`; None for `-`, a word or `3.32 ±1% wrong`."""
    found = re.match(r"\d[\d.]*", text)
    return float(found[0]) if found and not text.endswith("wrong") else None


def panels(section: str) -> list[Panel]:
    """The tables of a section in the form that `report.markdown` writes."""
    found = []
    for title, table in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n)+)", section, re.M):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        eager = [milliseconds(row[header.index(TITLES["eager"])]) for row in rows]
        speeds = {}
        for name in STYLES:
            if name in header:
                theirs = [milliseconds(row[header.index(name)]) for row in rows]
                speeds[name] = [a / b if a and b else None for a, b in zip(eager, theirs, strict=True)]
        found.append(Panel(title, [row[0] for row in rows], speeds))
    return found


def draw_panel(axes: Axes, panel: Panel, fastest: float) -> None:
    """A row a shape, a mark an implementation; Weft's has its number. `fastest`: the largest number of all panels."""
    rows = range(len(panel.shapes))
    axes.axvline(1, color="#555555", linewidth=1)
    for name, speeds in reversed(panel.speeds.items()):
        marker, color, size = STYLES[name]
        known = [(speed, row) for speed, row in zip(speeds, rows, strict=True) if speed is not None]
        axes.scatter(*zip(*known, strict=True), marker=marker, color=color, s=size, label=name, zorder=3)
    for speed, row in zip(panel.speeds["Weft"], rows, strict=True):
        if speed is not None:
            axes.annotate(f"{speed:.2f}x", (speed, row), (0, 7), textcoords="offset points", ha="center", fontsize=7.5)
    mean = geometric_mean(panel.speeds["Weft"])
    axes.set_title(f"{panel.title}: Weft {mean:.1f}x eager", fontsize=10, loc="left")
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.45, fastest * 1.4)
    further = [2**i for i in range(1, 10) if 2**i <= fastest * 1.4]
    axes.set_xticks([0.5, 1, *further], ["½x", "eager", *(f"{each}x" for each in further)])
    axes.set_yticks(rows, panel.shapes)
    axes.set_ylim(len(panel.shapes) - 0.4, -0.8)
    axes.tick_params(labelsize=8, length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def draw(section: str, target: Path) -> None:
    """Writes the plot, the same bytes for the same numbers."""
    found = panels(section)
    matplotlib.rcParams["svg.hashsalt"] = "weft"
    figure, grid = pyplot.subplots(2, (len(found) + 1) // 2, figsize=(9.6, 6.4), sharey=True, squeeze=False)
    fastest = max(speed for panel in found for speeds in panel.speeds.values() for speed in speeds if speed is not None)
    for axes, panel in zip(grid.flat, found, strict=False):
        draw_panel(axes, panel, fastest)
    marks, names = grid.flat[0].get_legend_handles_labels()
    figure.suptitle("One layer: how many times as fast as eager PyTorch (further right is faster)", fontsize=12)
    figure.legend(marks[::-1], names[::-1], loc="lower center", ncols=len(names), frameon=False, fontsize=9)
    figure.text(0.01, 0.005, section.partition("; commit")[0].strip(), fontsize=6.5, color="#666666")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(target, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
