"""`weft survey`: a zoo of models, explained one after the other, as a study."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.explanation import _C
from weft.explanation._models import GROUPS
from weft.explanation._text import seconds

_LIMIT = 240.0  #: seconds for one model

_DESCRIPTION = """\
Runs small models, eager, compiled and on the lazy device, and writes what Dynamo, AOTAutograd, the backend, Weft and
the device make of each. Each model runs in a process of its own, so one that fails or hangs is a line in the table.
"""


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
    eager: float | None = None
    compiled: float | None = None
    mended: float | None = None
    lazy_seconds: float | None = None
    gaps: float | None = None  #: share of the compiled step outside of graphs
    compile_seconds: float | None = None


def main(words: Sequence[str]) -> int:
    """The exit status: 0, 2 for a wrong command line, 130 interrupted with what was run until then."""
    parser = _parser()
    try:
        arguments = parser.parse_args(words)
        groups = arguments.models.split(",")
        if unknown := set(groups) - set(GROUPS):
            parser.error(f"--models: there is no {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    except SystemExit as exit:
        return int(exit.code or 0)
    rows: list[Row] = []
    missing: list[str] = []
    interrupted = False
    try:
        for group in groups:
            _group(group, arguments, rows, missing)
    except KeyboardInterrupt:
        interrupted = True
    text = to_markdown(rows, missing, arguments.backend, arguments.train)
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 130 if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("weft survey", description=_DESCRIPTION)
    parser.add_argument("--models", default=",".join(GROUPS), help="groups (all): " + ", ".join(GROUPS))
    parser.add_argument("--train", action="store_true", help="a step has a backward")
    parser.add_argument("--backend", default="inductor", help="torch.compile's (inductor)")
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure each model (2)")
    parser.add_argument("--cells", metavar="FOLDER", default="examples", help="where the package `cells` is (examples)")
    parser.add_argument("--output", metavar="FILE", help="write the study there, as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    return parser


def _group(group: str, arguments: argparse.Namespace, rows: list[Row], missing: list[str]) -> None:
    command = [sys.executable, "-m", "weft.explanation._survey_worker", group, arguments.cells]
    done = subprocess.run([*command, "--list"], capture_output=True, text=True)
    if done.returncode != 0:
        missing.append(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{group}: failed")
        return
    for name in json.loads(done.stdout.splitlines()[-1]):
        begin = time.monotonic()
        options = json.dumps({"backend": arguments.backend, "train": arguments.train, "seconds": arguments.seconds})
        row = _one([*command, name, options], group, name)
        rows.append(row)
        _keep(rows, arguments.json)
        what = row.error or f"{row.breaks} breaks, {row.fx} graphs"
        print(f"{group} {name}: {what} ({time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)


def _keep(rows: Sequence[Row], path: str | None) -> None:
    if path:
        Path(path).write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")


def _one(command: list[str], group: str, name: str) -> Row:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return Row(group, name, error=f"took longer than {_LIMIT:.0f} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return Row(group, name, error=lines[-1][:160] if lines else f"ended with {done.returncode}")
    return Row(group, name, **json.loads(done.stdout.splitlines()[-1]))


# The study


def to_markdown(rows: Sequence[Row], missing: Sequence[str], backend: str, train: bool) -> str:
    """The study, every figure of which is in a row."""
    ran = [row for row in rows if not row.error]
    parts = [
        "# Survey: graphs and breaks of small models",
        _introduction(ran, rows, missing, backend, train),
        "## Models",
        _table(ran, backend),
    ]
    if failed := [row for row in rows if row.error]:
        lines = "\n".join(f"- {row.group}, {row.name}: {_cell(row.error)}" for row in failed)
        parts += ["## Not run to the end", lines]
    parts += ["## Why graphs end", _causes(ran), "## Breaks and time", _correlations(ran)]
    parts += ["## Where the stages part", _stages(ran)]
    return "\n\n".join(parts) + "\n"


def _introduction(ran: Sequence[Row], rows: Sequence[Row], missing: Sequence[str], backend: str, train: bool) -> str:
    import torch

    machine = f"{_processor()}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}"
    lines = [
        f"Made by `weft survey{' --train' if train else ''}` on {time.strftime('%Y-%m-%d')}: {machine}, "
        f"PyTorch {torch.__version__}, Python {platform.python_version()}. {len(rows)} models, of which {len(ran)} "
        f"ran. A step is {'a forward and a backward' if train else 'a forward without gradients'} with the same input "
        f"each time; models have random parameters and small sizes, so times say what calling and joining graphs "
        f"costs, and little of what their arithmetic does. Compiled is `torch.compile(backend={backend!r})` with Weft "
        "imported; "
        'the column Weft counts calls of its programs under `torch.compile(backend="weft")`.',
        "[explain.md](explain.md) says how steps are counted and timed.",
    ]
    if missing:
        lines.append("Not there: " + "; ".join(missing) + ".")
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


def _table(rows: Sequence[Row], backend: str) -> str:
    head = "| group | model | breaks | FX | AOT | kernels | Weft | lazy | eager | compiled | lazy | outside graphs |"
    lines = [head, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        share = "–" if row.gaps is None else f"{row.gaps:.0%}"
        counts = [row.breaks, row.fx, row.aot, row.kernels, row.weft, row.lazy]
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
        "weft": weft["backend_calls"] if weft else None,
        "lazy": counts["lazy"].count if "lazy" in counts else None,
        "lazy_note": lazy.note if lazy else "",
        "causes": [found.type for found in visible],
        "breaks": len(visible),
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
