"""The results of `weft survey`: rows of models, stored as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weft.explanation._measuring import hlo


class StudyError(Exception):
    """A file is no study."""


@dataclasses.dataclass
class Gain:
    """The gain from mending some of a model's breaks."""

    title: str  #: of the change
    causes: list[str]  #: of the breaks that it mends, those that others hid among them
    seconds: float  #: a step, the median
    share: float  #: of the step
    clear: bool  #: the interval leaves out 0


@dataclasses.dataclass
class Row:
    """A model's run; None for what was not measured."""

    group: str
    name: str
    error: str = ""
    fx: int | None = None
    aot: int | None = None
    kernels: int | None = None
    weft: int | None = None
    lazy: int | None = None
    lazy_note: str = ""
    lazy_causes: list[str] = dataclasses.field(default_factory=list)  #: why the device cut the step, by line
    causes: list[str] = dataclasses.field(default_factory=list)
    gains: list[Gain] = dataclasses.field(default_factory=list)  #: of the changes that mend its breaks
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
    load: float | None = None  #: of the machine while it ran: processes that wanted a core, this one among them


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
    """A study without rows, made on this machine and now."""
    machine = f"{_processor()}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}"
    return Study(
        train,
        backend,
        f"{time.strftime('%Y-%m-%d')}: {machine}, PyTorch {torch.__version__}, Python {platform.python_version()}",
        without_hlo="" if hlo.is_installed() else hlo.NOT_INSTALLED,
    )


def write(studies: Sequence[Study], path: str) -> None:
    """Writes the study as JSON, for `read`."""
    text = json.dumps({"studies": [dataclasses.asdict(study) for study in studies]}, indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read(path: str) -> list[Study]:
    """Reads what `write` wrote.

    Raises:
        StudyError: the file can't be read, or wasn't written by `weft survey`.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        studies = [Study(**each) for each in found["studies"]]
        for study in studies:
            study.rows = [row_from(row) for row in study.rows]  # type: ignore[arg-type]
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise StudyError(f"{path}: not what weft survey --json writes ({type(error).__name__}: {error})") from None
    return studies


def row_from(found: dict[str, Any]) -> Row:
    """A row from its JSON fields."""
    row = Row(**found)
    row.gains = [Gain(**gain) for gain in row.gains]  # type: ignore[arg-type]
    return row


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


# From reports


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
        "lazy_causes": _without_places(lazy.causes) if lazy else [],
        "causes": [found.type for found in visible],
        "gains": [dataclasses.asdict(gain) for gain in _gains(subject)],
        "breaks": len(visible),
        "anew": sum(again.times for again in subject.recompiles),
        "eager": time_of("eager"),
        "compiled": time_of("compiled"),
        "mended": time_of("mended") or _only_mend(subject, time_of("compiled")),
        "lazy_seconds": time_of("lazy"),
        "gaps": (whole - inside) / whole if whole else None,
        "compile_seconds": subject.compile_seconds,
        "load": os.getloadavg()[0],
    }


def _without_places(causes: Sequence[str]) -> list[str]:
    """`FILE:LINE: reason (N times a step)` shortened to the reason."""
    return [re.sub(r" \(\d+ times a step\)$", "", re.sub(r"^.*?:\d+: ", "", cause)) for cause in causes]


def _gains(subject: Any) -> list[Gain]:
    """The gains of single changes, without the row for all of them."""
    single = [each for each in subject.actions if each.tried and each.gain and each.kind != "device" and each.change]
    return [
        Gain(
            each.title,
            [subject.breaks[number].type for number in each.breaks],
            each.gain.median,
            each.share or 0.0,
            each.gain.clear,
        )
        for each in single
    ]


def _only_mend(subject: Any, compiled: float | None) -> float | None:
    """The gain of a model with only one change."""
    tried = [action for action in subject.actions if action.tried and action.gain]
    return compiled - tried[0].gain.median if len(tried) == 1 and compiled else None
