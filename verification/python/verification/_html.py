"""A report as one self-contained page: no network, no script."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from weft._base.report import escaped as _text
from weft._base.report import escaped_lines, page
from weft.verification import _plots, _svg
from weft.verification._results import Change, Diagnosis, Place, Results, Side, Track
from weft.verification._style import CSS
from weft.verification._untried import in_words

_PLOTS = 8  #: plots beyond these are folded away
_COLUMNS = 480  #: columns of one plot; many plots together have not many more than ten times that

_KEY = """<div class="key" aria-hidden="true">
<span><svg viewBox="0 0 30 12"><path class="difference" d="M0 6h30"/><path class="difference dots" d="M15 6h0"/></svg>
difference of h</span>
<span><svg viewBox="0 0 30 12"><path class="defect" d="M0 6h30"/><path class="defect dots" d="M15 6h0"/></svg>
of one step by itself</span>
<span><svg viewBox="0 0 30 12"><path class="field" d="M0 6h30v6h-30Z"/><path class="bound" d="M0 6h30"/></svg>
what rounding explains of a step</span>
</div>"""


def to_html(report: Results) -> str:
    """The page: text that is ready to be written to a file in UTF-8."""
    verdict = "agree" if report.agrees else "differ"
    title = f"{verdict}: {_text(report.reference.path)} and {_text(report.candidate.path)}"
    body = [
        _verdict(report),
        _section("Also", _list(report.problems)) if report.problems and report.first and not report.structure else "",
        _section("What fits what", _list(report.structure)) if report.structure else "",
        _section("Where", _where(report.first)) if report.first else "",
        _section("Why", _why(report)) if report.diagnoses else "",
        _section("Step by step", _figures(report)) if any(map(_plots.steps_of, report.tracks)) else "",
        _section("Layers and directions", _table(report.tracks)) if report.tracks else "",
        _section("The two sides", _sides(report)),
        "<footer>Written by <code>weft verify</code>. Values over a plot show when the pointer rests there.</footer>",
    ]
    return page(title, CSS, body)


def _number(value: float | None, digits: int = 3) -> str:
    """A number, with powers of ten as exponents."""
    if value is None:
        return "–"
    text = _plots.number(value, digits)
    return _powers(text) if math.isfinite(value) else text


def _powers(text: str) -> str:
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa.replace('-', '−')} × {_svg.power(int(power))}" if exponent else text.replace("-", "−")


def _with_powers(text: str) -> str:
    """A sentence, with powers of ten as exponents."""
    return re.sub(r"\b\d+(?:\.\d+)?e[+-]\d+\b", lambda found: f"<span class=whole>{_powers(found[0])}</span>", text)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>"


def _list(lines: Iterable[str]) -> str:
    return '<div class="card">' + "".join(f"<p>{_text(line)}</p>" for line in lines) + "</div>"


def _verdict(report: Results) -> str:
    if report.agrees:
        kind, sign, title = "agree", "=", "They agree"
        sentence = "At every step the two are within what rounding explains"
        sentence += f": {allowed}" if (allowed := _plots.allowed(report)) else ""
    elif report.structure:
        kind, sign, title = "differ", "≠", "They differ in structure"
        sentence = "; ".join(report.problems)
        sentence += f". Of those that fit: {_place(report.first)}" if report.first else ""
    else:
        kind, sign, title = "differ", "≠", "They differ"
        found = _main(report)
        sentence = found.sentence if found else _place(report.first) if report.first else "; ".join(report.problems)
    pair = f"<code>{_text(report.reference.path)}</code> and <code>{_text(report.candidate.path)}</code>"
    return (
        f'<header class="verdict {kind}"><div class="sign" aria-hidden="true">{sign}</div>\n'
        f"<div><h1>{title}</h1>\n<p>{_with_powers(_text(_plots.capitalised(sentence)))}</p>\n"
        f'<div class="pair">{pair}<br>Input: {_text(report.input)}; compared in {_text(report.precision)}.</div>'
        "</div></header>"
    )


def _main(report: Results) -> Diagnosis | None:
    """The diagnosis at the head of the page."""
    return next((found for found in report.diagnoses if found.changes), None)


def _place(place: Place) -> str:
    where = f"{_plots.step_name(place)}, {_plots.track_name(place)}, in the {_plots.quantity(place.quantity)}"
    return f"First at {where}."


def _facts(facts: Sequence[tuple[str, str]], kind: str = "") -> str:
    """Pairs of a name and HTML."""
    entries = (f'<div><dt>{name}</dt><dd class="{kind}">{value}</dd></div>' for name, value in facts)
    return f'<dl class="facts">{"".join(entries)}</dl>'


def _where(place: Place) -> str:
    named = f" <code>{_text(place.layer_name)}</code>" if place.layer_name else ""
    reference, candidate = _plots.pair(place.reference, place.candidate)
    step = f"{place.step}" + (f" (turn {place.turn})" if place.turn != place.step else "")
    facts = [
        ("Step", step),
        ("Layer", f"{place.layer}{named}"),
        ("Direction", _text(place.direction)),
        ("Quantity", _text(_plots.quantity(place.quantity))),
        ("Row, unit", f"{place.row}, {place.unit}"),
    ]
    values = [
        ("Reference", _powers(reference) if math.isfinite(place.reference) else reference),
        ("Candidate", _powers(candidate) if math.isfinite(place.candidate) else candidate),
        ("Difference", _number(place.difference)),
        ("Rounding explains", _number(place.bound)),
    ]
    if math.isfinite(place.difference) and 0 < place.bound < math.inf:
        values.append(("Times what rounding explains", _number(place.difference / place.bound, 2)))
    return f'<div class="card">{_facts(facts)}{_facts(values, "value")}</div>'


def _why(report: Results) -> str:
    return "\n".join(_diagnosis(found, found is _main(report), report.budget) for found in report.diagnoses)


def _diagnosis(found: Diagnosis, said: bool, budget: float) -> str:
    """`said`: the page has its sentence already."""
    names = "".join(f'<code class="name">{_text(change.name)}</code>' for change in found.changes)
    alone = len(found.changes) == 1
    detail = f"<code>{_text(found.changes[0].detail)}</code>" if alone and found.changes[0].detail else ""
    lines = [
        '<article class="card">',
        f'<div class="names">{names or "No known difference explains it"}{detail}'
        f'<span class="scope">{_text(found.scope)}</span></div>',
    ]
    if not said:
        lines.append(f"<p>{_text(_plots.capitalised(found.sentence))}</p>")
    lines += [_change(change, found.side, alone) for change in found.changes]
    if found.also:
        others = "; ".join(" + ".join(f"<code>{_text(_named(c))}</code>" for c in others) for others in found.also)
        lines.append(f'<p class="more">As small, and explains it as well: {others}</p>')
    if untried := in_words(found.untried, budget):
        lines.append(f'<p class="more">{_text(_plots.capitalised(untried))}</p>')
    return "\n".join([*lines, "</article>"])


def _named(change: Change) -> str:
    return f"{change.name} ({change.detail})" if change.detail else change.name


def _change(change: Change, side: str, alone: bool) -> str:
    title = "" if alone else f"<h3><code>{_text(_named(change))}</code></h3>"
    meaning = _text(_plots.capitalised(change.meaning))
    other = "candidate" if side == "reference" else "reference"
    code = (
        f'<p class="more">So changed, the {_text(side)} does what the {other} does:</p>'
        f"<pre><code>{escaped_lines(change.configuration.rstrip())}</code></pre>"
        if change.configuration
        else ""
    )
    return f'<div class="change{" alone" if alone else ""}">{title}<p>{meaning}</p>{code}</div>'


def _figures(report: Results) -> str:
    tracks = [track for track in _plots.differing_first(report) if _plots.steps_of(track)]
    columns = max(60, min(_COLUMNS, 10 * _COLUMNS // len(tracks)))
    differing = sum(track.first is not None for track in tracks)
    shown = min(_PLOTS, differing or len(tracks))
    parts = [_KEY, *(_figure(track, columns) for track in tracks[:shown])]
    if rest := tracks[shown:]:
        agreeing = sum(track.first is None for track in rest)
        counts = [f"{len(rest) - agreeing} more that differ"] if agreeing < len(rest) else []
        counts += [f"{agreeing} that agree{'s' if agreeing == 1 else ''}"] if agreeing else []
        parts.append(f"<details><summary>{', '.join(counts)}</summary>")
        parts += [*(_figure(track, columns) for track in rest), "</details>"]
    return "\n".join(parts)


def _figure(track: Track, columns: int) -> str:
    kind, state = "agree", "= agrees"
    if track.first:
        kind, state = "differ", f"≠ differs from {_plots.step_name(track.first)} on"
    worst = f"h is the furthest apart at {_plots.spot(track.largest)}" if track.largest else ""
    return (
        f'<figure class="card"><figcaption><h3>{_text(_plots.track_name(track))}</h3>'
        f'<span class="state {kind}">{state}</span><span class="spot">{worst}</span></figcaption>\n'
        f"{_svg.plot(track, columns)}\n</figure>"
    )


def _table(tracks: Sequence[Track]) -> str:
    head = '<th>Layer</th><th>Name</th><th>Direction</th><th>Cell</th><th class="right">Steps</th>'
    head += '<th class="right">Largest difference</th><th class="right">Of one step</th><th>Result</th>'
    rows = []
    for track in tracks:
        state = f"≠ from {_plots.step_name(track.first)}" if track.first else "= agrees"
        kind = "differ" if track.first else "agree"
        name = f"<code>{_text(track.layer_name)}</code>" if track.layer_name else "–"
        rows.append(
            f'<tr><td>{track.layer}</td><td class="wide">{name}</td>'
            f"<td>{_text(track.direction)}</td><td>{_text(track.kind)}</td>"
            f'<td class="right">{_plots.steps_of(track)}</td>'
            f'<td class="right">{_number(_plots.largest(track.difference))}</td>'
            f'<td class="right">{_number(_plots.largest(track.defect))}</td>'
            f'<td><span class="state {kind}">{state}</span></td></tr>'
        )
    return (
        f'<div class="card scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>'
        + "\n".join(rows)
        + "</tbody></table></div>"
    )


def _sides(report: Results) -> str:
    own = _plots.own_dtype(report)
    return f'<div class="sides">{_side("Reference", report.reference)}{_side("Candidate", report.candidate)}</div>' + (
        f'<p class="more">{_text(_plots.capitalised(own))}</p>' if own else ""
    )


def _side(role: str, side: Side) -> str:
    layers = "".join(f"<li><code>{_text(layer)}</code></li>" for layer in side.layers)
    notes = "".join(f'<li class="note">Note: {_text(note)}</li>' for note in side.notes)
    return (
        f'<div class="card"><dl><dt>{role}</dt><dd class="path"><strong>{_text(side.path)}</strong></dd></dl>'
        f'<div class="note">{_text(side.format)}, {_text(side.dtype)}</div><ul>{layers}{notes}</ul></div>'
    )
