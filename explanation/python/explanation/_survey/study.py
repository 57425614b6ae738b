"""The results of `weft survey` as a page of Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from weft.explanation import _C
from weft.explanation._report.text import seconds
from weft.explanation._survey.study_rows import Gain, Row, Study


def to_markdown(studies: Sequence[Study]) -> str:
    """The page, every figure of which is in a row."""
    parts = ["# Survey: graphs and breaks of small models", _EXPLAINED]
    for study in studies:
        parts += _study(study, "" if len(studies) == 1 else f"{_KIND[study.train]}: ")
    return "\n\n".join(parts) + "\n"


_KIND = {False: "Inference", True: "Training"}
_EXPLAINED = (
    "Models have random parameters and small sizes, so times say what calling and joining graphs costs, and little of "
    "what their arithmetic does. The column anew counts functions compiled again, though every step has the same "
    "input; StableHLO counts modules, and XLA the kernels that it makes of them; outside is the share of a compiled "
    "step that is not in a graph. [explain.md](../explain.md) says how steps are counted and timed."
)


def _study(study: Study, title: str) -> list[str]:
    """Sections whose names begin with `title`."""
    ran = [row for row in study.rows if not row.error]

    def section(name: str, content: str) -> list[str]:
        return [f"## {title}{name if title else name[:1].upper() + name[1:]}", content]

    parts = [*section("models", _introduction(ran, study)), _table(ran)]
    if failed := [row for row in study.rows if row.error]:
        lines = "\n".join(f"- {row.group}, {row.name}: {_cell(row.error)}" for row in failed)
        parts += section("not run to the end", lines)
    parts += section("why graphs end", _causes(ran))
    parts += section("breaks and time", _correlations(ran))
    parts += section("where the stages part", _stages(ran))
    return parts + section("the answer", _answer(ran))


def _introduction(ran: Sequence[Row], study: Study) -> str:
    step = "a forward and a backward" if study.train else "a forward without gradients"
    lines = [
        f"Made by `weft survey` on {study.made}. {len(study.rows)} models, of which {len(ran)} ran. A step is {step} "
        f"with the same input each time. Compiled is `torch.compile(backend={study.backend!r})` with Weft imported; "
        'the column Weft counts calls of its programs under `torch.compile(backend="weft")`.'
    ]
    if loads := [row.load for row in study.rows if row.load is not None]:
        lines.append(
            f"The machine's load was {_C.quantile(loads, 0.5):.1f} (median over the models; the survey itself makes "
            "1), so times of one row compare with each other, and those of two rows less."
        )
    if study.without_hlo:
        lines.append(study.without_hlo[:1].upper() + study.without_hlo[1:] + ".")
    if study.missing:
        lines.append("Not there: " + "; ".join(study.missing) + ".")
    return "\n\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def _time(value: float | None) -> str:
    return "–" if value is None else seconds(value)


def _table(rows: Sequence[Row]) -> str:
    head = (
        "| group | model | breaks | anew | FX | AOT | kernels | StableHLO | XLA | Weft | lazy | eager | compiled | "
        "lazy | outside |"
    )
    lines = [head, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        share = "–" if row.gaps is None else f"{row.gaps:.0%}"
        counts = [row.breaks, row.anew, row.fx, row.aot, row.kernels, row.stablehlo, row.xla, row.weft, row.lazy]
        times = [_time(row.eager), _time(row.compiled), _time(row.lazy_seconds)]
        lines.append(f"| {row.group} | {_cell(row.name)} | {' | '.join([*map(_number, counts), *times, share])} |")
    return "\n".join(lines)


def _causes(rows: Sequence[Row]) -> str:
    by_cause: Counter[str] = Counter()
    models: dict[str, set[str]] = {}
    for row in rows:
        for cause in row.causes:
            by_cause[cause] += 1
            models.setdefault(cause, set()).add(row.name)
    if not by_cause:
        return "No model has a break."
    lines = ["| cause, in Dynamo's words | breaks | models |", "|---|--:|---|"]
    lines += [
        f"| {_cell(cause)} | {n} | {_cell(', '.join(sorted(models[cause])))} |" for cause, n in by_cause.most_common()
    ]
    return "\n".join(lines)


def _correlations(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if row.eager and row.compiled and row.breaks is not None]
    lines = []
    ratio = [(row.compiled or 0) / (row.eager or 1) for row in timed]
    for words, values in (
        ("distinct breaks", [float(row.breaks or 0) for row in timed]),
        ("FX graphs", [float(row.fx or 0) for row in timed]),
        ("the share of the step outside of graphs", [row.gaps or 0.0 for row in timed]),
    ):
        correlation = _C.rank_correlation(values, ratio) if len(timed) > 2 else math.nan
        known = "not defined: all are the same" if math.isnan(correlation) else f"{correlation:.2f}"
        lines.append(
            f"- Rank correlation over {len(timed)} models of compiled time by eager time with {words}: {known}."
        )
    broken = [row for row in timed if row.breaks]
    whole = [row for row in timed if not row.breaks]
    for words, some in (("with breaks", broken), ("without", whole)):
        if some:
            middle = _C.quantile([(row.compiled or 0) / (row.eager or 1) for row in some], 0.5)
            lines.append(f"- Compiled time by eager time, the median of {len(some)} models {words}: {middle:.2f}.")
    for row in broken:
        if row.mended:
            gain = f"{_time(row.compiled)} a step as it is, {_time(row.mended)} with the changes that mend its breaks"
            lines.append(f"- {row.name}: {gain}.")
    return "\n".join(lines)


def _stages(rows: Sequence[Row]) -> str:
    more = [row for row in rows if row.lazy is not None and row.fx is not None and row.lazy < row.fx]
    same = [row for row in rows if row.lazy is not None and row.lazy == row.fx]
    notes = Counter(row.lazy_note for row in rows if row.lazy_note)
    lines = [
        f"- The device runs {len(same)} models in as many programs as Dynamo makes graphs, {len(more)} in fewer.",
        f"- Of {sum(row.weft is not None for row in rows)} models compiled with the backend weft, "
        f"{sum(bool(row.weft) for row in rows)} have programs of Weft's in them.",
    ]
    lines += [f"- {count} on the device: {_cell(note)}" for note, count in notes.most_common()]
    return "\n".join(lines)


def _answer(rows: Sequence[Row]) -> str:
    """Which stage causes the breaks, what they cost, what to do first."""
    known = [row for row in rows if row.fx is not None]
    at_dynamo = [row for row in known if row.breaks]
    at_aot = [row for row in known if row.aot is not None and row.fx and row.aot > 2 * row.fx]
    lowered = [row for row in known if row.fx and row.stablehlo is not None]
    refused = [row for row in known if row.fx and row.stablehlo is None and any(each.stablehlo for each in known)]
    lazily = [row for row in known if row.lazy is not None and row.lazy > 1]
    lines = [
        f"- Which stage: {len(at_dynamo)} of {len(known)} models have breaks where Dynamo reads Python. AOTAutograd "
        f"splits {len(at_aot)} of them further than into a forward and a backward. Of each FX graph there is one "
        f"module of StableHLO in {len(lowered)} models; {len(refused)} have a graph that isn't lowered. The device, "
        f"which reads no Python, is cut by values that are asked for in {len(lazily)}.",
    ]
    slower = [row for row in at_dynamo if row.eager and row.compiled and row.compiled > row.eager]
    timed = [row for row in at_dynamo if row.eager and row.compiled]
    if timed:
        lines.append(
            f"- What they cost: of {len(timed)} models with breaks {len(slower)} are slower compiled than eager; a "
            f"model whose loop has a break is not compiled at all ({sum(not row.fx for row in timed)} models)."
        )
    gains = [(row.compiled - row.mended, row) for row in timed if row.mended and row.compiled]
    if gains:
        most, row = max(gains, key=lambda each: each[0] / (each[1].compiled or 1))
        lines.append(f"- The most is gained in {row.name}: {_time(most)} of {_time(row.compiled)} a step.")
    lines += _first(at_dynamo)
    better = [row for row in timed if row.lazy_seconds and row.lazy_seconds < min(row.eager or 0, row.compiled or 0)]
    lines.append(f"- The device is the fastest way for {len(better)} of the models with breaks.")
    if cuts := Counter(cause for row in lazily for cause in dict.fromkeys(row.lazy_causes)):
        words = ", ".join(f"{_cell(cause)} in {count}" for cause, count in cuts.most_common())
        lines.append(f"- What cuts the device's steps, by models: {words}.")
    return "\n".join([*lines, *_by_cause(at_dynamo)])


def _first(rows: Sequence[Row]) -> list[str]:
    """What to do first: by gain, or, where nothing was measured, by how often it occurs."""
    causes = Counter(cause for row in rows for cause in row.causes)
    if not causes:
        return []
    (cause, count), *_ = causes.most_common(1)
    met = f"the cause that is met most often is {_cell(cause)!r} ({count} breaks)"
    clear = [(gain, row) for row in rows for gain in row.gains if gain.clear and gain.seconds > 0]
    if not clear:
        return [f"- What to do first: {met}; no change gains a time that is more than noise."]
    by_title: dict[str, list[float]] = {}
    for gain, _ in clear:
        by_title.setdefault(gain.title, []).append(gain.share)
    title, shares = max(by_title.items(), key=lambda each: sum(each[1]))
    return [
        f"- What to do first: {_cell(title)!r}, which gains {_C.quantile(shares, 0.5):.0%} of a step (median) in "
        f"{len(shares)} model{'s'[: len(shares) != 1]}, more in sum than any other change; {met}."
    ]


def _by_cause(rows: Sequence[Row]) -> list[str]:
    """A table of what mending each cause gained, the largest sum of shares first."""
    found: dict[str, list[Gain]] = {}
    for row in rows:
        for gain in row.gains:
            for cause in dict.fromkeys(gain.causes):
                found.setdefault(cause, []).append(gain)
    if not found:
        return []
    lines = [
        "",
        "What mending gained, by cause; one change may mend breaks of several causes, and counts for each:",
        "",
        "| cause | changes that worked | of them faster | slower | share of the step gained, median | change |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for cause, gains in sorted(found.items(), key=lambda each: -sum(gain.share for gain in each[1])):
        faster = sum(gain.clear and gain.seconds > 0 for gain in gains)
        slower = sum(gain.clear and gain.seconds < 0 for gain in gains)
        (title, _), *_ = Counter(gain.title for gain in gains).most_common(1)
        middle = _C.quantile([gain.share for gain in gains], 0.5)
        lines.append(f"| {_cell(cause)} | {len(gains)} | {faster} | {slower} | {middle:.0%} | {_cell(title)} |")
    return lines
