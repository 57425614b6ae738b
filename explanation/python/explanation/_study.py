"""What `weft survey` found: rows of models as JSON, and as a page of Markdown."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weft.explanation import _C, _hlo
from weft.explanation._text import seconds


class StudyError(Exception):
    """A file is no study."""


@dataclasses.dataclass
class Row:
    """A model as it was run; None is what was not measured."""

    group: str
    name: str
    error: str = ""
    fx: int | None = None
    aot: int | None = None
    kernels: int | None = None
    weft: int | None = None
    lazy: int | None = None
    lazy_note: str = ""
    causes: list[str] = dataclasses.field(default_factory=list)
    breaks: int | None = None
    anew: int | None = None  #: functions compiled anew while steps were the same
    eager: float | None = None
    compiled: float | None = None
    mended: float | None = None
    lazy_seconds: float | None = None
    gaps: float | None = None  #: share of the compiled step outside of graphs
    compile_seconds: float | None = None
    stablehlo: int | None = None  #: modules
    xla: int | None = None  #: kernels that XLA makes of them


@dataclasses.dataclass
class Study:
    """The models of one run."""

    train: bool
    backend: str
    made: str  #: when and where, as the page says it
    rows: list[Row] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)  #: groups that are not there, and why
    without_hlo: str = ""  #: why there are no counts of XLA's


def new_study(train: bool, backend: str) -> Study:
    """One without rows, made here and now."""
    machine = f"{_processor()}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}"
    return Study(
        train,
        backend,
        f"{time.strftime('%Y-%m-%d')}: {machine}, PyTorch {torch.__version__}, Python {platform.python_version()}",
        without_hlo="" if _hlo.is_installed() else _hlo.NOT_INSTALLED,
    )


def write(studies: Sequence[Study], path: str) -> None:
    """As JSON, for `read`."""
    text = json.dumps({"studies": [dataclasses.asdict(study) for study in studies]}, indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read(path: str) -> list[Study]:
    """What `write` wrote.

    Raises:
        StudyError: the file can't be read, or is none of `weft survey`.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        studies = [Study(**each) for each in found["studies"]]
        for study in studies:
            study.rows = [Row(**row) for row in study.rows]  # type: ignore[arg-type]
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise StudyError(f"{path}: not what weft survey --json writes ({type(error).__name__}: {error})") from None
    return studies


# The page


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
    "step that is not in a graph. [explain.md](explain.md) says how steps are counted and timed."
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
    if study.without_hlo:
        lines.append(study.without_hlo[:1].upper() + study.without_hlo[1:] + ".")
    if study.missing:
        lines.append("Not there: " + "; ".join(study.missing) + ".")
    return "\n\n".join(lines)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


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
    causes = Counter(cause for row in at_dynamo for cause in row.causes)
    if causes:
        (cause, count), *_ = causes.most_common(1)
        lines.append(f"- What to do first: the cause that is met most often is {_cell(cause)!r} ({count} breaks).")
    better = [row for row in timed if row.lazy_seconds and row.lazy_seconds < min(row.eager or 0, row.compiled or 0)]
    lines.append(f"- The device is the fastest way for {len(better)} of the models with breaks.")
    return "\n".join(lines)


def row_of(results: Any, weft_results: Any) -> dict[str, Any]:
    """A row's figures from the reports of the backend asked for and of the backend weft."""
    subject = results.subjects[0]
    counts = {stage.name: stage for stage in subject.stages}

    def time_of(name: str) -> float | None:
        run = subject.run(name)
        return run.seconds.median if run and run.seconds else None

    inside = sum(event.end - event.begin for event in subject.timeline if event.graph is not None)
    whole = subject.timeline[-1].end if subject.timeline else 0.0
    lazy = subject.run("lazy")
    weft = weft_results.subjects[0].weft if weft_results else None
    visible = [found for found in subject.breaks if not found.hidden]
    return {
        "fx": len(subject.graphs),
        "aot": counts["AOT"].count if "AOT" in counts else None,
        "kernels": counts["kernels"].count if "kernels" in counts else None,
        "stablehlo": counts["StableHLO"].count if "StableHLO" in counts else None,
        "xla": counts["kernels of XLA"].count if "kernels of XLA" in counts else None,
        "weft": weft["backend_calls"] if weft else None,
        "lazy": counts["lazy"].count if "lazy" in counts else None,
        "lazy_note": lazy.note if lazy else "",
        "causes": [found.type for found in visible],
        "breaks": len(visible),
        "anew": sum(again.times for again in subject.recompiles),
        "eager": time_of("eager"),
        "compiled": time_of("compiled"),
        "mended": time_of("mended") or _only_mend(subject, time_of("compiled")),
        "lazy_seconds": time_of("lazy"),
        "gaps": (whole - inside) / whole if whole else None,
        "compile_seconds": subject.compile_seconds,
    }


def _only_mend(subject: Any, compiled: float | None) -> float | None:
    """Of a model with one change."""
    tried = [action for action in subject.actions if action.tried and action.gain]
    return compiled - tried[0].gain.median if len(tried) == 1 and compiled else None
