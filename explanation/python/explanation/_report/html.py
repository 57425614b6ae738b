"""A report as one self-contained page: no network, no script."""

from __future__ import annotations

import os

from weft._base.report import escaped_lines as text
from weft._base.report import page
from weft.explanation._report import figures
from weft.explanation._report.records import (
    Action,
    Break,
    Excerpt,
    Graph,
    Measured,
    Recompile,
    Results,
    Subject,
    Warned,
)
from weft.explanation._report.style import CSS
from weft.explanation._report.text import headline, measured, place, seconds, share_of, size


def to_html(results: Results) -> str:
    """The page: text that is ready to be written to a file in UTF-8."""
    return page(
        text(headline(results)),
        CSS,
        [
            _verdict(results),
            *(_subject(subject) for subject in results.subjects),
            _section("What PyTorch's compiler warned of", "\n".join(map(_warned, results.warnings))),
            f"<footer><code>{text(results.command)}</code><br>PyTorch {text(results.torch)}, {text(results.machine)}. "
            "A cost is what a step gains when the break is mended: the median of steps with and without the change "
            "that took turns, and the interval in which it lies with 95 %. What is marked as an estimate is the time "
            "between two graphs.</footer>",
        ],
    )


def _section(title: str, content: str) -> str:
    return f"<h3>{title}</h3>\n{content}" if content else ""


def _verdict(results: Results) -> str:
    kind = "bad" if results.breaks or results.interrupted else "good"
    lines = [f"<h1>{text(headline(results)[:1].upper() + headline(results)[1:])}</h1>"]
    for subject in results.subjects:
        compiled, mended = subject.base, subject.run("mended")
        if compiled and compiled.seconds and mended and mended.seconds:
            lines.append(
                f"<p>{text(subject.name)}: {seconds(compiled.seconds.median)} a step, "
                f"{seconds(mended.seconds.median)} with all changes that were tried.</p>"
            )
    if results.interrupted:
        lines.append("<p>Interrupted: what follows was measured until then.</p>")
    lines += [f'<p class="quiet">{text(note)}</p>' for note in results.notes]
    return f'<header class="verdict {kind}">' + "\n".join(lines) + "</header>"


def _subject(subject: Subject) -> str:
    mode = "training" if subject.train else "inference"
    where = f"{os.path.basename(subject.file)}:{subject.line}, " if subject.file else ""
    about = f"{where}backend {subject.backend}, {mode}, {seconds(subject.compile_seconds)} to compile"
    parts = [
        f"<section>\n<h2>{text(subject.name)}</h2>\n<p class='quiet'>{text(about)}</p>",
        *(f'<p class="quiet">{text(note)}</p>' for note in subject.notes),
        _section("What to do", "\n".join(_action(n, a, subject) for n, a in enumerate(subject.actions, 1))),
        _section("A step", _card(figures.time_line(subject))) if subject.timeline else "",
        _section("Ways to run a step", _card(figures.runs(subject))) if subject.runs else "",
        _section("Pieces of a step", _card(figures.stages(subject))) if subject.stages else "",
        _section("In the source", "\n".join(_excerpt(excerpt, subject) for excerpt in subject.sources)),
        _section("Time between graphs and gain", _card(figures.scatter(subject))),
        _section("Compiled anew", "\n".join(_recompile(again) for again in subject.recompiles)),
        _section("Graphs", _graphs(subject)) if subject.graphs else "",
        _section("Programs of Weft's", _programs(subject)) if subject.programs else "",
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _warned(each: Warned) -> str:
    times = f", {each.times} times" if each.times > 1 else ""
    return f'<div class="card scroll"><p class="quiet">{text(each.source)}{times}</p><pre>{text(each.text)}</pre></div>'


def _card(content: str) -> str:
    return f'<figure class="card">{content}</figure>' if content else ""


def _action(rank: int, action: Action, subject: Subject) -> str:
    sure = action.tried and action.gain is not None and action.gain.low > 0
    tags = [action.kind, "tried" if action.tried else "not tried"]
    if any(subject.breaks[number].hidden for number in action.breaks):
        tags.append("mends what lies behind it too")
    places = "".join(f'<p class="at">{_where(subject.breaks[number])}</p>' for number in action.breaks)
    change = _diff(action.change) if action.change else ""
    outcome = f'<p class="quiet">{text(action.outcome)}</p>' if not action.tried else ""
    return (
        f'<article class="card action"><div class="rank">{rank}</div><div>'
        f'<p class="change">{text(action.title)}</p>{places}'
        f"<p>{''.join(f'<span class=tag>{text(tag)}</span>' for tag in tags)}</p>{outcome}{change}</div>"
        f'<div class="gain {"sure" if sure else ""}">{_gain(action.gain, action)}</div></article>'
    )


def _gain(gain: Measured | None, action: Action) -> str:
    if gain is None:
        return "<strong>–</strong>gain not known"
    kind = "" if action.tried else "estimated, "
    share = f"{share_of(action.share)} of the step<br>" if action.share is not None else ""
    clear = "" if not action.tried or gain.clear else "<br>no effect measured"
    return (
        f"<strong>{seconds(gain.median)}</strong><span class='quiet'>{kind}{share}{seconds(gain.low)} to "
        f"{seconds(gain.high)}{clear}</span>"
    )


def _where(found: Break) -> str:
    details = [found.code or found.type]
    if found.hits is not None:
        details.append(f"{found.hits:g} a step")
    if found.bytes is not None:
        details.append(f"{size(found.bytes)} cross it")
    if found.gap is not None:
        backward = f", {seconds(found.backward_gap.median)} between backwards" if found.backward_gap else ""
        details.append(f"{seconds(found.gap.median)} between graphs{backward}")
    if found.skips_frame:
        details.append("the whole function runs in Python")
    if found.hidden:
        details.append("behind another break")
    ways = f", reached in {len(found.paths)} ways" if len(found.paths) > 1 else ""
    return (
        f"<code>{text(place(found))}</code> <code>{text(found.source)}</code><br>"
        f'<span class="quiet">{text(found.reason)} ({text("; ".join(details))}{ways})</span>'
    )


def _diff(change: str) -> str:
    kinds = {"+": "plus", "-": "minus", "@": "about"}
    lines = []
    for line in change.splitlines():
        kind = "about" if line.startswith(("---", "+++")) else kinds.get(line[:1], "")
        lines.append(f'<span class="{kind}">{text(line) or " "}</span>')
    return f'<pre class="diff">{"".join(lines)}</pre>'


def _excerpt(excerpt: Excerpt, subject: Subject) -> str:
    at = {found.line: found for found in subject.breaks if found.file == excerpt.file}
    most = max((found.cost.median for found in subject.breaks if found.cost), default=0.0)
    rows = []
    for number, line in enumerate(excerpt.lines, excerpt.first):
        found = at.get(number)
        rows.append(
            f'<tr class="{"broken" if found else ""}"><td class="number">{number}</td>'
            f'<td class="cost">{_cost(found, most)}</td><td><code>{text(line)}</code></td></tr>'
        )
    return (
        f'<div class="card scroll"><p class="quiet">{text(excerpt.file)}</p>'
        f'<table class="source"><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _cost(found: Break | None, most: float) -> str:
    if found is None:
        return ""
    if found.cost is None:
        return "not known"
    width = max(0.0, found.cost.median / most) * 3 if most > 0 else 0
    about = "~ " if found.cost_kind == "estimated" else ""
    shared = " *" if found.shared_with else ""
    return f'{about}{seconds(found.cost.median)}{shared}<span class="meter" style="width:{width:.2f}rem"></span>'


def _recompile(again: Recompile) -> str:
    guards = "".join(f"<li><code>{text(guard)}</code></li>" for guard in again.guards)
    return (
        f'<div class="card"><p class="change">{text(_advice(again))}</p>'
        f'<p class="quiet">{text(again.function)}, {text(os.path.basename(again.file))}:{again.line}: '
        f"{f'{again.times} times, ' if again.times > 1 else ''}"
        f"{seconds(again.seconds)} to compile</p><ul>{guards}</ul>"
        f"{_diff(again.change) if again.change else ''}</div>"
    )


def _advice(again: Recompile) -> str:
    if again.tried:
        gains = f"Saves {measured(again.saved)} of compiling, and {measured(again.gain)} a step"
        return f"{gains} ({again.outcome})"
    return f"{again.advice} ({again.outcome})" if again.outcome else again.advice


def _hlo(graph: Graph, subject: Subject) -> str:
    """Two cells, if a graph of the subject has something to say."""
    if not any(each.hlo for each in subject.graphs):
        return ""
    values = (graph.hlo.operations, graph.hlo.fusions) if graph.hlo else (None, None)
    title = text(graph.hlo.note) if graph.hlo else ""
    return "".join(f"<td class='right' title='{title}'>{'–' if value is None else value}</td>" for value in values)


def _programs(subject: Subject) -> str:
    rows = []
    for program in subject.programs:
        hlo = program.hlo
        counts = f"{hlo.operations} HLO operations, {hlo.fusions} fusions, {hlo.kernels} kernels" if hlo else ""
        if hlo and hlo.operations is None:
            counts = hlo.note
        rows.append(
            f"<tr><td>{program.id}</td><td class='right'>{program.ops}</td><td class='right'>{program.calls}</td>"
            f"<td>{text(counts)}</td></tr>"
        )
    head = "<th>Program</th><th class='right'>Ops</th><th class='right'>Calls</th><th>By XLA</th>"
    body = "\n".join(rows)
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _graphs(subject: Subject) -> str:
    head = "".join(
        f'<th class="{kind}">{name}</th>'
        for name, kind in (
            ("Graph", ""), ("Function", ""), ("Ops", "right"), ("Kernels", "right"), ("A step", "right"),
            ("Time", "right"), ("Backward", "right"),
            *((("HLO ops", "right"), ("Fusions", "right")) if any(graph.hlo for graph in subject.graphs) else ()),
            ("Compiled in", "right"), ("Ended by", ""),
        )
    )  # fmt: skip
    rows = []
    for graph in subject.graphs:
        ended = subject.breaks[graph.ended_by] if graph.ended_by is not None else None
        rows.append(
            f"<tr><td>{graph.id}</td><td>{text(graph.function)}</td><td class='right'>{graph.ops}</td>"
            f"<td class='right'>{'–' if graph.kernels is None else graph.kernels}</td>"
            f"<td class='right'>{'–' if graph.hits is None else f'{graph.hits:g}'}</td>"
            f"<td class='right' title='{measured(graph.seconds)}'>"
            f"{seconds(graph.seconds.median) if graph.seconds else '–'}</td>"
            f"<td class='right' title='{measured(graph.backward_seconds)}'>"
            f"{seconds(graph.backward_seconds.median) if graph.backward_seconds else '–'}</td>"
            f"{_hlo(graph, subject)}<td class='right'>{seconds(graph.compile_seconds)}</td>"
            f"<td>{f'<code>{text(place(ended))}</code>' if ended else 'the end of the function'}</td></tr>"
        )
    body = "\n".join(rows)
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
