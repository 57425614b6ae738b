"""Events of the trace as graphs, breaks and recompilations."""

from __future__ import annotations

import json
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from weft._base import users_code
from weft.explanation import _C
from weft.explanation._report.records import Break, Frame, Graph, Recompile
from weft.explanation._watching import reasons as _reasons
from weft.explanation._watching.trace import TraceEvent

_TORCH = str(Path(torch.__file__).parent) + "/"
_STANDARD = sysconfig.get_path("stdlib") + "/"
_OWN = str(Path(__file__).parents[2]) + "/"
_KERNEL = re.compile(
    r"^\s+(?:cpp_fused\w*\(|triton_\w+\.run\(|extern_kernels\.\w+\(|torch\.ops\.[\w.]+\(|buf\d+ = torch\.ops\.[\w.]+)"
)
_NAME, _FUSED = re.compile(r"[\w.]+\w"), "fused by Inductor"

BreakKey = tuple[str, int, str]


class Collected:
    """A summary of one subject's events."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.breaks: list[Break] = []
        self.recompiles: list[Recompile] = []
        self.compile_seconds = 0.0

    def keys(self) -> set[BreakKey]:
        """The keys of the breaks."""
        return {key_of(found) for found in self.breaks}


def key_of(found: Break) -> BreakKey:
    """Identifies a break: the user's line and the reason."""
    return found.file, found.line, found.type


def collect(events: Iterable[TraceEvent]) -> Collected:
    """Graphs in the order in which they were compiled, breaks in the order in which Dynamo met them."""
    found = Collected()
    by_compile: dict[str, list[TraceEvent]] = {}
    for event in events:
        by_compile.setdefault(event.compile_id, []).append(event)
    breaks: dict[BreakKey, Break] = {}
    for compile_id, group in by_compile.items():
        _one_compilation(found, breaks, compile_id, group)
    found.breaks = list(breaks.values())
    return found


def _one_compilation(
    found: Collected, breaks: dict[BreakKey, Break], compile_id: str, events: Sequence[TraceEvent]
) -> None:
    """One compilation of a frame: at most one graph, which the last break ended if there was a break."""
    metrics = [event.metadata for event in events if event.name == "compilation_metrics"]
    metric: dict[str, Any] = next((entry for entry in metrics if entry.get("co_name")), {})
    seconds = float(sum(entry.get("entire_frame_compile_time_s") or 0.0 for entry in metrics))
    found.compile_seconds += seconds
    last: Break | None = None
    for event in events:
        if event.name == "dynamo_graph_break_reason":
            last = _add_break(breaks, event.payload)
        elif event.name == "recompile_reasons":
            _add_recompile(found, event, metric, seconds)
    output = next((event for event in events if event.name == "dynamo_output_graph"), None)
    if output is None:
        return
    names = [event.name for event in events]
    code = [event.payload for event in events if event.name == "inductor_output_code"]
    kernels = sum(map(_kernels, code), Counter[str]())
    found.graphs.append(
        Graph(
            id=len(found.graphs),
            compile_id=compile_id,
            function=plain_name(metric.get("co_name") or ""),
            file=metric.get("co_filename") or "",
            line=metric.get("co_firstlineno") or 0,
            ops=metric.get("graph_op_count") or output.payload.count(" = "),
            ended_by=last.id if last else None,
            aot=sum(name.startswith("aot_") for name in names),
            kernels=sum(kernels.values()) if code else None,
            compile_seconds=seconds,
            backwards=sum(name.startswith("aot_backward") for name in names),
            kernel_calls=dict(kernels),
        )
    )


def plain_name(function: str) -> str:
    """The user's name of a function: Dynamo compiles the rest of one as torch_dynamo_resume_in_NAME_at_LINE."""
    while match := re.fullmatch(r"torch_dynamo_resume_in_(.+)_at_\d+(?:_\d+)?", function):
        function = match[1]
    return function


def _kernels(code: str) -> Counter[str]:
    """The kernels that Inductor's code calls, by name; the kernels that Inductor generated share one name."""
    _, _, body = code.rpartition("def call(")
    names = [match[0] for line in body.splitlines() if (match := _KERNEL.match(line))]
    return Counter(_FUSED if "_fused" in name else _NAME.findall(name)[-1] for name in names)


def is_library(file: str) -> bool:
    """Whether the file is PyTorch's, Weft's or Python's own: no line of the user's."""
    if file.startswith("<"):
        return True
    if users_code.is_counted(file):
        return False
    if "site-packages" in file:
        return file.startswith((_TORCH, _OWN)) or "/torch/" in file
    return file.startswith((_TORCH, _OWN, _STANDARD))


def _add_break(breaks: dict[BreakKey, Break], payload: str) -> Break:
    text = _C.parse_break(payload)
    path = [Frame(*frame) for frame in text["path"]]
    users = [frame for frame in path if not is_library(frame.file)] or path or [Frame("", 0, "", "")]
    place = users[-1]
    key = (place.file, place.line, text["type"])
    known = breaks.get(key)
    if known is None:
        known = breaks[key] = Break(
            id=len(breaks),
            file=place.file,
            line=place.line,
            function=plain_name(place.function),
            source=place.code,
            type=text["type"],
            code=text["code"],
            reason=_reasons.in_plain_words(text["type"], text["explanation"]),
            explanation=text["explanation"],
            hints=text["hints"],
            context=text["context"],
            skips_frame=text["skipped"],
            skipped_by=text["skipped_by"],
            hidden=False,
            met=0,
            paths=[],
        )
    known.met += 1
    known.skips_frame = known.skips_frame or text["skipped"]
    if users not in known.paths:
        known.paths.append(users)
    return known


def _add_recompile(found: Collected, event: TraceEvent, metric: dict[str, Any], seconds: float) -> None:
    """Adds a recompilation, or counts one more of its kind: the failed guard of the newest code is the same except for
    numbers."""
    guards = _guards(event.payload)
    function, file = plain_name(metric.get("co_name") or ""), metric.get("co_filename") or ""
    line = metric.get("co_firstlineno") or 0
    kind = function, file, line, re.sub(r"\d+", "", guards[0] if guards else "")
    for known in found.recompiles:
        if kind == (known.function, known.file, known.line, re.sub(r"\d+", "", (known.guards or [""])[0])):
            known.times += 1
            known.seconds += seconds
            return
    found.recompiles.append(Recompile(function, file, line, guards, 1, seconds, _reasons.advice_for_guards(guards)))


def _guards(payload: str) -> list[str]:
    """The first line of each reason, without the number of the compilation and what stands behind it as a comment."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        reasons = payload
    lines = [str(reason).strip().splitlines() for reason in (reasons if isinstance(reasons, list) else [reasons])]
    guards = [re.sub(r"^\d+/\d+: ", "", line[0]) for line in lines if line]
    return list(dict.fromkeys(_cut(re.sub(r"\s+#.*$", "", guard)) for guard in guards))


def _cut(guard: str, most: int = 200) -> str:
    """A value in a guard can be of any length: a string of bytes, a list."""
    return guard if len(guard) <= most else f"{guard[:most]} ... ({len(guard)} characters)"
