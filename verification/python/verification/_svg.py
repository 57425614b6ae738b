"""A track as an SVG that may be stretched. Its labels are HTML beside it, so that their letters keep their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from weft.verification import _plots
from weft.verification._plots import Column, Scale
from weft.verification._results import Track

_HEIGHT = 1000  #: height of the drawing; its width is the number of columns
_BAND = 0.12  #: share of the height for the place of 0, and for that of NaN and infinities
_MARGIN = 0.03
_DOTS = 64  #: plots of more columns have lines without dots


def plot(track: Track, most_columns: int) -> str:
    """Axes, labels and lines of a track; nothing if the track has no step."""
    columns = _plots.columns(track, most_columns)
    if not columns:
        return ""
    scale = _plots.scale_of(columns)
    axis = _Axis(scale)
    steps = columns[-1].last + 1
    parts = [
        f'<div class="plot" role="group" aria-label="{escape(_spoken(track, columns))}">',
        f'<div class="mark">{_mark_label(track, columns)}</div>',
        '<div class="axis">difference</div>',
        f'<div class="ys">{_y_labels(scale, axis)}</div>',
        f'<svg viewBox="0 0 {len(columns)} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-hidden="true">',
        *_grid(scale, axis, len(columns)),
        *_lines(columns, axis),
        *_mark_line(track, columns),
        *_hovers(columns),
        "</svg>",
        f'<div class="xs">{_x_labels(columns, steps)}</div>',
        f'<div class="unit">{_unit(columns)}</div>',
        "</div>",
    ]
    return "\n".join(part for part in parts if part)


class _Axis:
    """The places of values, from the top, 0 to 1."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.top = _MARGIN + (_BAND if scale.has_odd else 0)
        self.bottom = 1 - _MARGIN - (_BAND if scale.has_zeros else 0)

    def __call__(self, value: float) -> float:
        if not math.isfinite(value):
            return _MARGIN
        if value == 0:
            return 1 - _MARGIN
        return self.bottom + (self.top - self.bottom) * self.scale.position(value)


def power(exponent: int) -> str:
    return f"10<sup>{'−' if exponent < 0 else ''}{abs(exponent)}</sup>"


def _y_labels(scale: Scale, axis: _Axis) -> str:
    labels = [(axis(10.0**exponent), power(exponent)) for exponent in scale.ticks(7)]
    if scale.has_zeros:
        labels.append((axis(0.0), "0, equal"))
    if scale.has_odd:
        labels.append((axis(math.nan), "NaN, ∞"))
    return "".join(f'<span style="top:{y:.2%}">{text}</span>' for y, text in labels)


def _x_labels(columns: Sequence[Column], steps: int) -> str:
    spans = []
    for step in _plots.step_ticks(steps, 6):
        x = (_column_of(columns, step) + 0.5) / len(columns)
        spans.append(f'<span style="left:{x:.2%}">{step}</span>')
    return "".join(spans)


def _unit(columns: Sequence[Column]) -> str:
    widest = max(column.last - column.first + 1 for column in columns)
    return "step" if widest == 1 else f"step; a point is the largest of up to {widest} steps"


def _column_of(columns: Sequence[Column], step: int) -> int:
    return next((index for index, column in enumerate(columns) if step <= column.last), len(columns) - 1)


def _grid(scale: Scale, axis: _Axis, width: int) -> list[str]:
    def across(y: float) -> str:
        return f"M0 {y * _HEIGHT:.0f}h{width}"

    lines = [f'<path class="grid" d="{"".join(across(axis(10.0**e)) for e in scale.ticks(7))}"/>']
    ends = [axis.bottom + _BAND / 2] * scale.has_zeros + [axis.top - _BAND / 2] * scale.has_odd
    lines += [f'<path class="break" d="{across(y)}"/>' for y in ends]
    return lines


def _lines(columns: Sequence[Column], axis: _Axis) -> list[str]:
    """The bound with the field below it, then the difference, and on top the defect, which is the thinner line."""
    parts = [f'<path class="field" d="{"".join(_field(run, axis) for run in _runs(columns, lambda c: c.bound))}"/>']
    series: list[tuple[str, Callable[[Column], float | None]]] = [
        ("bound", lambda column: column.bound),
        ("difference", lambda column: column.difference),
        ("defect", lambda column: column.defect),
    ]
    for name, value in series:
        runs = _runs(columns, value)
        lines = "".join(
            "M" + "L".join(f"{x:g} {axis(y) * _HEIGHT:.0f}" for x, y in _widened(run, len(columns) == 1))
            for run in runs
        )
        if lines:
            parts.append(f'<path class="{name}" d="{lines}"/>')
        if lines and name != "bound" and len(columns) <= _DOTS:
            dots = "".join(f"M{x:g} {axis(y) * _HEIGHT:.0f}h0" for run in runs for x, y in run)
            parts.append(f'<path class="{name} dots" d="{dots}"/>')
    return parts


def _runs(columns: Sequence[Column], value: Callable[[Column], float | None]) -> list[list[tuple[float, float]]]:
    """Runs of points without a gap: x in columns, and the value."""
    runs: list[list[tuple[float, float]]] = [[]]
    for index, column in enumerate(columns):
        found = value(column)
        if found is None:
            runs.append([])
        else:
            runs[-1].append((index + 0.5, found))
    return [run for run in runs if run]


def _widened(run: list[tuple[float, float]], alone: bool) -> list[tuple[float, float]]:
    """Widens a run of one step to a line across the plot."""
    return [(0.0, run[0][1]), (1.0, run[0][1])] if alone else run


def _field(run: list[tuple[float, float]], axis: _Axis) -> str:
    floor = axis.bottom * _HEIGHT
    inner = "L".join(f"{x:g} {min(axis(y) * _HEIGHT, floor):.0f}" for x, y in run)
    left, right = run[0][0] - 0.5, run[-1][0] + 0.5
    ends = [min(axis(y) * _HEIGHT, floor) for y in (run[0][1], run[-1][1])]
    return f"M{left:g} {floor:.0f}V{ends[0]:.0f}L{inner}L{right:g} {ends[1]:.0f}V{floor:.0f}Z"


def _mark_line(track: Track, columns: Sequence[Column]) -> list[str]:
    if track.first is None:
        return []
    return [f'<path class="first" d="M{_column_of(columns, track.first.step) + 0.5:g} 0V{_HEIGHT}"/>']


def _mark_label(track: Track, columns: Sequence[Column]) -> str:
    if track.first is None:
        return ""
    x = (_column_of(columns, track.first.step) + 0.5) / len(columns)
    place = f"left:{x:.2%}" if x < 0.5 else f"right:{1 - x:.2%}"
    text = f"▾ first differs: {_plots.step_name(track.first)}"
    if x >= 0.5:
        text = f"first differs: {_plots.step_name(track.first)} ▾"
    return f'<span class="{"after" if x < 0.5 else "before"}" style="{place}">{text}</span>'


def _hovers(columns: Sequence[Column]) -> list[str]:
    """A field of the plot's whole height for each column, which shows the column's values."""
    parts = []
    for index, column in enumerate(columns):
        steps = f"step {column.first}" if column.first == column.last else f"steps {column.first} to {column.last}"
        named = zip(("difference", "one step alone", "bound"), column.values, strict=True)
        values = "\n".join(f"{name} {_plots.number(value)}" for name, value in named)
        parts.append(f'<rect x="{index}" width="1" height="{_HEIGHT}"><title>{steps}\n{values}</title></rect>')
    return parts


def _spoken(track: Track, columns: Sequence[Column]) -> str:
    size = _plots.number(_plots.largest(column.difference for column in columns))
    verdict = f"differs from {_plots.step_name(track.first)} on" if track.first else "agrees at every step"
    return f"{_plots.track_name(track)}: {verdict}; the largest difference is {size}"
