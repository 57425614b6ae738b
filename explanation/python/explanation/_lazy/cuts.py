"""Where a program that uses the lazy device cuts its steps into graphs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from weft import _C
from weft._base import users_code

Place = tuple[str, int]  #: file and line
_SETTLED = ("known", "refused")  #: what becomes of the record of a step that was done before
_FEWEST = 3  #: steps that make a loop


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


def find_line() -> tuple[str, int, str]:
    """The line of the user's code that is running, and its function."""
    frame = users_code.calling()
    return ("", 0, "") if frame is None else (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Cuts:
    """Records cuts while it is active; with `operations` also the lines of operations, which is slow."""

    def __init__(self, operations: bool = False, ended: Callable[[str, int, int], None] | None = None) -> None:
        self.operations, self.ended = operations, ended
        self.found: list[Cut] = []

    def __enter__(self) -> Cuts:
        _C.device_take_watched_runs()
        _C.device_watch_runs(find_line, self.operations, self.ended)
        return self

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


@dataclasses.dataclass
class Loop:
    """Steps that end at the same line."""

    place: Place
    function: str
    is_sync: bool  #: ends at a sync; else at the line that asks for values last
    steps: list[list[Cut]] = dataclasses.field(default_factory=list)

    def ends(self, cut: Cut) -> bool:
        """Whether the step ends there."""
        return cut.place == self.place and (cut.asked_by == "sync") == self.is_sync

    def settled(self) -> list[list[Cut]]:
        """Steps in which nothing was new; where there are none, the second half of all."""
        found = [step for step in self.steps if all(cut.is_settled for cut in step)]
        return found or self.steps[len(self.steps) // 2 :]

    def usual(self) -> list[list[Cut]]:
        """The settled steps with the most common sequence of cuts."""
        shapes = Counter(_shape(step) for step in self.settled())
        (shape, _), *_ = shapes.most_common(1)
        return [step for step in self.settled() if _shape(step) == shape]


def _shape(step: Sequence[Cut]) -> tuple[Any, ...]:
    return tuple((cut.place, cut.asked_by) for cut in step)


def loops(cuts: Sequence[Cut]) -> list[Loop]:
    """The program's loops, those with most steps first. A step ends at a sync; in a program without, where values are
    asked for most often."""
    by_sync = Counter(cut.place for cut in cuts if cut.asked_by == "sync")
    is_sync = any(count >= _FEWEST for count in by_sync.values())
    ends = set(by_sync) if is_sync else _last_reads(cuts)
    found: dict[Place, Loop] = {}
    step: list[Cut] = []
    before: Place | None = None
    for cut in cuts:
        step.append(cut)
        if cut.place not in ends or (cut.asked_by == "sync") != is_sync:
            continue
        loop = found.setdefault(cut.place, Loop(cut.place, cut.function, is_sync))
        if before == cut.place:  # what comes before the first is what prepares the loop
            loop.steps.append(step)
        step, before = [], cut.place
    return sorted((loop for loop in found.values() if len(loop.steps) >= _FEWEST), key=lambda each: -len(each.steps))


def _last_reads(cuts: Sequence[Cut]) -> set[Place]:
    """Of the lines that read values most often, the last one."""
    counts = Counter(cut.place for cut in cuts if cut.line)
    most = max(counts.values(), default=0)
    often = {place for place, count in counts.items() if count >= max(_FEWEST, most - 1)}
    last = next((cut.place for cut in reversed(cuts) if cut.place in often), None)
    return {last} if last else set()
