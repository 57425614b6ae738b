"""Figures of the page, as SVG and as bars."""

from __future__ import annotations

import math

from weft._base.report import escaped as _text
from weft.explanation import _C
from weft.explanation._report.records import Run, Subject
from weft.explanation._report.text import measured, place, seconds, size

_WIDTH = 1000.0


def time_line(subject: Subject) -> str:
    """Graphs and the gaps between them, over the time of one step."""
    whole = subject.timeline[-1].end
    if whole <= 0:
        return ""
    parts = []
    for event in subject.timeline:
        left, width = _WIDTH * event.begin / whole, _WIDTH * (event.end - event.begin) / whole
        kind, top, height, words = "rest", 30, 20, "Python: entry, guards, return"
        if event.graph is not None:
            kind, top, height = "back" if event.backward else "graph", 10, 60
            words = f"{'backward of ' if event.backward else ''}graph {event.graph}"
            words += "" if event.backward else f", {subject.graphs[event.graph].ops} ops"
        elif event.broken_by is not None:
            found = subject.breaks[event.broken_by]
            where = "between backwards, because of" if event.backward else "after"
            kind, words = "gap", f"{where} the break at {place(found)}: {found.source}"
        title = f"<title>{_text(words)}: {seconds(event.end - event.begin)}</title>"
        parts.append(
            f'<rect class="{kind}" x="{left:.2f}" y="{top}" width="{max(width, 0.4):.2f}" height="{height}">'
            f"{title}</rect>"
        )
    forward, back = (
        sum(each.end - each.begin for each in subject.timeline if each.graph is not None and each.backward is backward)
        for backward in (False, True)
    )
    gaps = [each for each in subject.timeline if each.broken_by is not None]
    lost, lost_back = (
        sum(each.end - each.begin for each in gaps if each.backward or not backward) for backward in (False, True)
    )
    key = [
        ("graph", f"graphs, {seconds(forward)}, {forward / whole:.0%}"),
        ("gap", f"after breaks, {seconds(lost)}, {lost / whole:.0%}"),
        ("rest", f"entry, guards and return{_rest(subject, back)}, {seconds(whole - forward - back - lost)}"),
    ]
    if back:
        key.insert(1, ("back", f"backwards of graphs, {seconds(back)}, {back / whole:.0%}"))
        if lost_back:
            key[2] = ("gap", f"{key[2][1]}, of which {seconds(lost_back)} between backwards")
    marks = "".join(f'<span><i style="background:var(--{name})"></i>{words}</span>' for name, words in key)
    return (
        f'<svg class="line" role="img" viewBox="0 0 {_WIDTH:g} 80" preserveAspectRatio="none">'
        f"<title>One step: graphs and gaps</title>{''.join(parts)}</svg>"
        f'<div class="scale"><span>0</span><span>{seconds(whole)}</span></div><div class="key">{marks}</div>'
    )


def _rest(subject: Subject, back: float) -> str:
    if not subject.train:
        return ""
    return ", the loss and what autograd does around graphs" if back else ", backward"


def runs(subject: Subject) -> str:
    """A bar for each way to run a step, with its interval."""
    shown = [run for run in subject.runs if run.seconds]
    most = max((run.seconds.high for run in shown if run.seconds), default=0.0)
    if most <= 0:
        return ""
    return f'<div class="bars">{"".join(_run(run, most) for run in subject.runs)}</div>'


def _run(run: Run, most: float) -> str:
    note = f'<span class="why">{_text(run.note)}</span>' if run.note else ""
    if run.seconds is None:
        return f'<span>{run.name}</span><span></span><span class="value quiet">not measured</span>{note}'
    width, low, high = (_WIDTH * value / most for value in (run.seconds.median, run.seconds.low, run.seconds.high))
    kind = {"compiled": "gap", "mended": "graph"}.get(run.name, "rest")
    counts = [f"{run.graphs} graph{'s'[: run.graphs != 1]}"] if run.graphs is not None else []
    counts += [f"{run.kernels} kernels"] if run.kernels else []
    counts += [f"{size(run.bytes_moved)} moved"] if run.bytes_moved else []
    counts += [f"{run.breaks} line{'s'[: run.breaks != 1]} cut it"] if run.breaks is not None else []
    counts += [f"{size(run.memory)} of memory"] if run.memory is not None else []
    note += "".join(f'<span class="why">{_text(cause)}</span>' for cause in run.causes)
    return (
        f"<span>{run.name}</span>"
        f'<svg role="img" viewBox="0 0 {_WIDTH:g} 20" preserveAspectRatio="none"><title>{measured(run.seconds)}</title>'
        f'<rect class="{kind}" x="0" y="3" width="{max(width, 1):.2f}" height="14"/>'
        f'<path class="range" d="M{low:.2f} 10H{high:.2f}M{low:.2f} 5V15M{high:.2f} 5V15"/></svg>'
        f'<span class="value">{seconds(run.seconds.median)}'
        f'<span class="quiet"> {", ".join(counts)}</span></span>{note}'
    )


def stages(subject: Subject) -> str:
    """Bars of how many pieces each way of compiling makes, with the reason under each."""
    most = max((stage.count or 0 for stage in subject.stages), default=0)
    if not most:
        return ""
    rows = []
    for stage in subject.stages:
        count = "–" if stage.count is None else str(stage.count)
        width = _WIDTH * (stage.count or 0) / most
        rows.append(
            f'<span>{_text(stage.name)}</span><svg role="img" viewBox="0 0 {_WIDTH:g} 20" preserveAspectRatio="none">'
            f"<title>{_text(stage.name)}: {count}</title>"
            f'<rect class="graph" x="0" y="3" width="{max(width, 1):.2f}" height="14"/></svg>'
            f'<span class="value">{count}</span><span class="why">{_text(stage.why)}</span>'
        )
    return f'<div class="bars">{"".join(rows)}</div>'


def scatter(subject: Subject) -> str:
    """For every mended break: the time between its graphs, and what the step gained."""
    points = [
        (found.gap.median, found.cost.median, found)
        for found in subject.breaks
        if found.gap and found.cost and found.cost_kind == "measured"
    ]
    if len(points) < 2:
        return ""
    correlation = _C.rank_correlation([x for x, _, _ in points], [y for _, y, _ in points])
    right = max(x for x, _, _ in points) or 1.0
    top, bottom = max(0.0, *(y for _, y, _ in points)) or 1.0, min(0.0, *(y for _, y, _ in points))
    dots = []
    for x, y, found in points:
        left = 60 + 420 * x / right
        down = 15 + 190 * (top - y) / (top - bottom)
        words = f"{place(found)}: {seconds(x)} between graphs, {seconds(y)} gained"
        dots.append(f'<circle class="gap" cx="{left:.1f}" cy="{down:.1f}" r="6"><title>{_text(words)}</title></circle>')
    zero = 15 + 190 * top / (top - bottom)
    known = "" if math.isnan(correlation) else f" Rank correlation {correlation:.2f}."
    return (
        '<svg class="scatter" role="img" viewBox="0 0 500 250"><title>Time between graphs and gain</title>'
        f'<path class="axis" d="M60 10V205M60 {zero:.1f}H490"/>{"".join(dots)}'
        f'<text x="54" y="20" text-anchor="end">{seconds(top)}</text>'
        f'<text x="54" y="{zero + 4:.1f}" text-anchor="end">0</text>'
        f'<text x="490" y="225" text-anchor="end">{seconds(right)}</text>'
        '<text x="60" y="243">across: time between graphs; up: gain when mended</text></svg>'
        f'<p class="quiet">What lies between graphs is what a break shows; what it costs is the gain.{known}</p>'
    )
