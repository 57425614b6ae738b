"""PyTorch's structured trace as events: of this process while it runs, or from a TORCH_TRACE directory."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: The kinds of records that are kept. The others, above all descriptions of tensors, are a thousand times as many.
_KEPT = frozenset(
    {
        "dynamo_graph_break_reason", "dynamo_output_graph", "recompile_reasons", "compilation_metrics",
        "aot_forward_graph", "aot_backward_graph", "aot_inference_graph", "inductor_output_code", "dynamo_start",
    }
)  # fmt: skip


class TraceError(Exception):
    """A trace can't be read."""


@dataclasses.dataclass(frozen=True)
class TraceEvent:
    """One record of the trace."""

    name: str
    compile_id: str  #: "frame/compile"; empty where there is none
    attempt: int
    metadata: Any
    payload: str
    subject: int = 0  #: whose compilation it was


def _event(record: dict[str, Any], payload: str, subject: int = 0) -> TraceEvent | None:
    artifact = record.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else next((key for key in record if key in _KEPT), None)
    if name not in _KEPT:
        return None
    frame, compilation = record.get("frame_id"), record.get("frame_compile_id")
    compile_id = f"{frame}/{compilation}" if frame is not None else ""
    if (rank := record.get("rank")) is not None and compile_id:
        compile_id = f"rank{rank}:{compile_id}"
    metadata = record.get(name, artifact)
    return TraceEvent(name, compile_id, int(record.get("attempt", 0)), metadata, payload, subject)


class Listener(logging.Handler):
    """Passes on the records of this process's trace that are kept."""

    def __init__(self, take: Callable[[TraceEvent], None], subject: Callable[[], int]) -> None:
        super().__init__(logging.DEBUG)
        self._take = take
        self._subject = subject

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if isinstance(metadata, dict):
            event = _event(metadata, getattr(record, "payload", None) or "", self._subject())
            if event is not None:
                self._take(event)


_PREFIX = re.compile(r"V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]]*\] (\{.*)")


def read_directory(path: str | Path) -> list[list[TraceEvent]]:
    """The events of each process that wrote to the directory, or of one file.

    Raises:
        TraceError: there is no such directory, or it has no readable record.
    """
    place = Path(path)
    if not place.exists():
        raise TraceError(f"{path}: there is no such file or directory")
    files = sorted(file for file in place.rglob("*.log") if file.is_file()) if place.is_dir() else [place]
    if not files:
        raise TraceError(f"{path}: no trace in it (TORCH_TRACE writes files that end in .log)")
    processes = [_read(file) for file in files]
    if not any(processes):
        raise TraceError(f"{path}: holds no compilation that can be read")
    return [events for events in processes if events]


def _read(file: Path) -> list[TraceEvent]:
    """Leaves out lines that can't be read, such as the last one of a killed process."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from None
    events: list[TraceEvent] = []
    record: dict[str, Any] | None = None
    payload: list[str] = []
    for line in [*lines, "V"]:
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        if record is not None and (event := _event(record, "\n".join(payload))):
            events.append(event)
        record, payload = None, []
        if match := _PREFIX.match(line):
            try:
                found = json.loads(match[1])
            except ValueError:
                continue
            record = found if isinstance(found, dict) else None
    return events
