"""A report for a terminal: one screen."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Sequence

from weft._base.report import painted, printable
from weft.verification import _plots
from weft.verification._plots import Column, Scale
from weft.verification._results import Change, Diagnosis, Place, Results, Side, Track
from weft.verification._untried import in_words

_HEIGHT = 8  #: rows of the plot's logarithmic part
_ONE_LINERS = 6  #: tracks that differ, beside the plotted one, which get a line each
_LEVELS = "▁▂▃▄▅▆▇█"
#: Marks of difference, defect and bound; later ones are drawn first.
_MARKS = "●×─"
_BOTH = "◆"
_CODES = {"bold": "1", "●": "33", "×": "36", "◆": "35", "─": "2"}


def to_text(report: Results, width: int | None = None, color: bool = False) -> str:
    """Lines without a newline at the end. The first says whether the two agree.

    width: columns, the terminal's if not given. Only lines of configuration may be longer: they are meant to be copied.
    color: with ANSI escapes.
    """
    paint = _Paint(color)
    width = max(40, shutil.get_terminal_size().columns if width is None else width)
    parts = [
        _headline(report, width, paint),
        *([_where(report.first, width)] if report.first else []),
        *(_diagnosis(diagnosis, report.budget, width, paint) for diagnosis in report.diagnoses),
        _tracks(report, width, paint),
        _sides(report, width, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


class _Paint:
    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, style: str) -> str:
        return painted(text, _CODES[style]) if self.color else text

    def marks(self, row: str) -> str:
        return "".join(self(c, c) if c in _CODES else c for c in row) if self.color else row


def _wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    following = indent if hanging is None else hanging
    return textwrap.wrap(printable(text), width, initial_indent=indent, subsequent_indent=following)


def _headline(report: Results, width: int, paint: _Paint) -> list[str]:
    if report.agrees:
        lines = _wrapped("agree: at every step within what rounding explains", width)
        if allowed := _plots.allowed(report):
            return [*(paint(line, "bold") for line in lines), *_wrapped(allowed, width, "  ")]
    elif report.structure:
        lines = _wrapped(f"differ in structure: {report.problems[0]}", width)
    elif report.first is None:
        lines = _wrapped(f"differ: {report.problems[0]}", width)
    else:
        place = report.first
        where = f"{_plots.step_name(place)}, {_plots.track_name(place)}: {_plots.quantity(place.quantity)}"
        lines = _wrapped(f"differ: first at {where}", width)
    lines = [paint(line, "bold") for line in lines]
    for problem in report.problems[1:] if report.structure or not report.first else report.problems:
        lines += _wrapped(problem, width, "  ")
    for line in report.structure:
        lines += _wrapped(line, width, "  ", "    ")
    if report.structure and report.first:
        place = report.first
        where = f"{_plots.step_name(place)}, {_plots.track_name(place)}: {_plots.quantity(place.quantity)}"
        lines += _wrapped(f"of those that fit, first different at {where}", width, "  ", "    ")
    return lines


def _where(place: Place, width: int) -> list[str]:
    reference, candidate = _plots.pair(place.reference, place.candidate)
    times = _plots.times_bound(place)
    rows = [
        ("reference", reference),
        ("candidate", f"{candidate}   (row {place.row}, unit {place.unit})"),
        ("difference", _plots.number(place.difference) + (f"   ({times})" if times else "")),
        ("bound", f"{_plots.number(place.bound)}   (the most that rounding can make of it)"),
    ]
    return [line for name, text in rows for line in _wrapped(text, width, f"  {name:10}  ", " " * 14)]


def _diagnosis(diagnosis: Diagnosis, budget: float, width: int, paint: _Paint) -> list[str]:
    title = _names(diagnosis.changes) or "no known difference explains it"
    lines = [paint(line, "bold") for line in _wrapped(f"{diagnosis.scope}: {title}", width, "  ", "    ")]
    lines += _wrapped(diagnosis.sentence, width, "  ")
    for change in diagnosis.changes:
        lines += [f"      {printable(line)}" for line in change.configuration.splitlines()]
    if diagnosis.changes:
        lines += _wrapped(f"(so changed, the {diagnosis.side} does what the other does)", width, "  ", "   ")
    for other in diagnosis.also:
        lines += _wrapped(f"or: {_names(other)}", width, "  ", "      ")
    if untried := in_words(diagnosis.untried, budget):
        lines += _wrapped(f"({untried})", width, "  ", "   ")
    return lines


def _names(changes: Sequence[Change]) -> str:
    return " + ".join(f"{change.name} ({change.detail})" if change.detail else change.name for change in changes)


def _tracks(report: Results, width: int, paint: _Paint) -> list[str]:
    """The first track that differs as a plot, some further ones in a line each, and all that agree in one line."""
    tracks = [track for track in _plots.differing_first(report) if _plots.steps_of(track)]
    if not tracks:
        return []
    differing = [track for track in tracks if track.first]
    if not differing:
        return _plot(max(tracks, key=_size), width, paint) + _agreeing(tracks, width)
    lines = _plot(differing[0], width, paint)
    for track in differing[1 : 1 + _ONE_LINERS]:
        lines += _one_line(track, width)
    if len(differing) > 1 + _ONE_LINERS:
        lines.append(f"  and {len(differing) - 1 - _ONE_LINERS} more that differ")
    return lines + _agreeing([track for track in tracks if not track.first], width)


def _size(track: Track) -> float:
    found = _plots.largest(track.difference)
    return -1.0 if found is None else math.inf if math.isnan(found) else found


def _plot(track: Track, width: int, paint: _Paint) -> list[str]:
    columns = _plots.columns(track, width - 12)
    scale = _plots.scale_of(columns)
    # Steps of a short sequence are drawn apart.
    stretch = max(1, min(4, (width - 12) // len(columns)))
    legend = "● difference   × of one step alone   ◆ both   ─ what rounding explains of ×"
    most = f"; h the furthest apart at {_plots.spot(track.largest)}" if track.largest else ""
    lines = _wrapped(f"{_plots.track_name(track)}, by step{most}:", width, "  ")
    lines += [paint.marks(line) for line in _wrapped(legend, width, "  ")]
    for label, row in _rows(columns, scale):
        lines.append(f"  {label:>7} │" + paint.marks((" " * (stretch - 1)).join(row)).rstrip())
    lines.append(f"  {'':7} └" + "─" * (len(columns) * stretch))
    return lines + _step_axis(track, columns, stretch, width)


def _rows(columns: list[Column], scale: Scale) -> list[tuple[str, str]]:
    """Labels and characters from top to bottom."""
    top = 1 if scale.has_odd else 0
    count = top + _HEIGHT + (1 if scale.has_zeros else 0)
    cells = [[" "] * len(columns) for _ in range(count)]
    labels = [""] * count

    def row_of(value: float) -> int:
        if not math.isfinite(value):
            return 0
        return top + _HEIGHT - 1 - round(scale.position(value) * (_HEIGHT - 1)) if value > 0 else count - 1

    for x, column in enumerate(columns):
        for value, mark in reversed([*zip(column.values, _MARKS, strict=True)]):
            if value is not None:
                cell = cells[row_of(value)]
                cell[x] = _BOTH if mark + cell[x] == _MARKS[:2] else mark
    if scale.has_odd:
        labels[0] = "NaN,inf"
    if scale.has_zeros:
        labels[-1] = "0"
    for exponent in reversed(scale.ticks(5)):
        labels[row_of(10.0**exponent)] = f"1e{exponent:+03d}"
    return [(label, "".join(row)) for label, row in zip(labels, cells, strict=True)]


def _step_axis(track: Track, columns: list[Column], stretch: int, width: int) -> list[str]:
    """Step numbers, and a mark under the first step that differs."""
    total = len(columns) * stretch
    left = 11  # left of the plot, beside its labels

    def x_of(step: int) -> int:
        return next(x for x, column in enumerate(columns) if step <= column.last) * stretch

    axis = ""
    for step in _plots.step_ticks(columns[-1].last + 1, max(2, total // 8)):
        if left + x_of(step) + len(str(step)) <= width:
            axis = axis.ljust(x_of(step)) + str(step)
    lines = [" " * left + axis]
    if track.first is not None and track.first.step <= columns[-1].last:
        note, x = f"first differs: {_plots.step_name(track.first)}", left + x_of(track.first.step)
        if x + 2 + len(note) <= width:
            lines.append(" " * x + f"^ {note}")
        elif x > len(note):
            lines.append(f"{note} ^".rjust(x + 1))
        else:
            lines += [" " * x + "^", note.rjust(width)]
    return lines


def _one_line(track: Track, width: int) -> list[str]:
    """A track's name, and its difference as small bars."""
    assert track.first is not None
    name = f"  {_plots.track_name(track)}: differs from {_plots.step_name(track.first)}  "
    room = width - len(name)
    if room < 12:
        return [*_wrapped(name.strip(), width, "  "), f"    {_bars(track, width - 4)}"]
    return [name + _bars(track, min(room, 60))]


def _bars(track: Track, room: int) -> str:
    columns = _plots.columns(track, room)
    scale = _plots.scale_of(columns)

    def bar(value: float | None) -> str:
        if value is None or value == 0:
            return " " if value is None else "."
        return "!" if not math.isfinite(value) else _LEVELS[round(scale.position(value) * 7)]

    return "".join(bar(column.difference) for column in columns)


def _agreeing(tracks: list[Track], width: int) -> list[str]:
    if not tracks:
        return []
    found = _plots.largest(_plots.largest(track.difference) for track in tracks)
    names = "; ".join(_plots.track_name(track) for track in tracks[:4])
    if len(tracks) > 4:
        names += f"; and {len(tracks) - 4} more"
    size = "" if found is None else f" (h {_plots.number(found)} apart at most)"
    return _wrapped(f"every step by itself agrees: {names}{size}", width, "  ", "    ")


def _sides(report: Results, width: int, paint: _Paint) -> list[str]:
    lines = []
    for role, side in (("reference", report.reference), ("candidate", report.candidate)):
        lines += _side(role, side, width)
    lines += _wrapped(f"input      {report.input}; compared in {report.precision}", width, "  ", " " * 13)
    if own := _plots.own_dtype(report):
        lines += _wrapped(f"own dtype  {own}", width, "  ", " " * 13)
    return lines


def _side(role: str, side: Side, width: int) -> list[str]:
    lines = _wrapped(f"{role}  {side.path} ({side.format}, {side.dtype})", width, "  ", " " * 13)
    shown = side.layers if len(side.layers) <= 4 else [*side.layers[:3], f"and {len(side.layers) - 3} more layers"]
    for layer in shown:
        lines += _wrapped(layer, width, " " * 13, " " * 15)
    for note in side.notes:
        lines += _wrapped(f"note: {note}", width, " " * 13, " " * 15)
    return lines
