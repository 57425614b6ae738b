"""Where a program that uses the lazy device cuts its steps into graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from weft import _C
from weft._base import users_code

Place = tuple[str, int]  #: file and line
Callers = tuple[Place, ...]  #: the lines of the user's code that were running, from the outermost call to the place
_SETTLED = ("known", "refused")  #: what becomes of the record of a step that was done before


@dataclasses.dataclass(frozen=True)
class Cut:
    """One cut: the pending operations ran, as one graph."""

    file: str
    line: int
    function: str
    asked_by: str  #: the operation that asked for values; "sync"; "long" for a record that grew too long
    operations: int
    results: int
    begin: float  #: time.perf_counter()
    end: float
    compiling: float
    found: str  #: "new", "compiled", "known", "refused"
    structure: int  #: equal for records that differ in sizes and numbers only
    differs: str  #: of a new record: in what from the one most like it
    differs_file: str
    differs_line: int

    @property
    def place(self) -> Place:
        """Where the user's code was."""
        return self.file, self.line

    @property
    def is_settled(self) -> bool:
        """Whether the graph was known, so that nothing was compiled."""
        return self.found in _SETTLED


class Cuts:
    """Records cuts while it is active; with `operations` also the lines of operations, which is slow."""

    def __init__(self, operations: bool = False, ended: Callable[[str, int, int], None] | None = None) -> None:
        self.operations, self.ended = operations, ended
        self.found: list[Cut] = []
        self.callers: dict[Place, Callers] = {}  #: by place, when it was met first

    def __enter__(self) -> Cuts:
        _C.device_take_watched_runs()
        _C.device_watch_runs(self._find_line, self.operations, self.ended)
        return self

    def _find_line(self) -> tuple[str, int, str]:
        """The line of the user's code that is running, and its function."""
        frame = users_code.calling()
        if frame is None:
            return "", 0, ""
        code = frame.f_code
        place = code.co_filename, frame.f_lineno
        if place not in self.callers:
            self.callers[place] = _callers(frame)
        return *place, code.co_name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _C.device_watch_runs(None, False, None)
        self.found += self.take()

    def take(self) -> list[Cut]:
        """The cuts since the last call."""
        return [_cut(each) for each in _C.device_take_watched_runs()]


def _cut(run: dict[str, Any]) -> Cut:
    file, line, function = run.pop("place")
    differs_file, differs_line, _ = run.pop("differs_at")
    return Cut(file, line, function, differs_file=differs_file, differs_line=differs_line, **run)


def _callers(frame: FrameType | None) -> Callers:
    found: list[Place] = []
    while (frame := users_code.innermost(frame)) is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found))
