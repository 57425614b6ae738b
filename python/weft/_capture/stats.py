"""What Weft did since the process began, or since `reset_stats()`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from weft import _C
from weft._capture import programs

#: Calls left to ATen in the graphs that the backend compiled, by op.
extern: Counter[str] = Counter()
#: Models that weft.stream made streams of, by what runs their steps.
streams: Counter[str] = Counter()


@dataclasses.dataclass
class BackendStats:
    """What `torch.compile(backend="weft")` did since the process began."""

    frames: int = 0  #: graphs taken from Dynamo
    graphs: int = 0  #: forward, backward and inference graphs compiled
    calls: int = 0  #: calls of Weft programs in them
    regions: int = 0  #: how many of these calls ATen ops have joined
    rolled: int = 0  #: loops of Python that became scans
    #: steps of loops that stay written out, by the line of the user's code and the reason
    not_rolled: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0  #: AOTAutograd's time and the backend's own, without Dynamo's


backend = BackendStats()


NOTHING_MET = "no recurrent layer was met, and nothing else that Weft compiles"


class Stats(dict[str, Any]):
    """The result of `weft.stats()`: a dict, whose `str()` is a text."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing ran through Weft: no recurrent layer, no step, no graph."""
        met = (self["calls"], self["compiled"], self["backend"]["frames"], self["device"]["records"])
        return not any(met) and not self["fallbacks"] and not self["extern"]

    def __str__(self) -> str:
        kept = self["captured"]
        lines = [
            f"programs: {self['compiled']} made ready in {self['compile_seconds']:.2f} s, "
            f"{self['object_cache_hits']} of them from the disk; {self['calls']} calls",
            f"kept: {kept['programs']} captured steps of at most {kept['most']} ({kept['bytes'] / 1000:.0f} kB), "
            f"{kept['executables']} compiled programs",
        ]
        graphs, lazy = self["backend"], self["device"]
        if graphs["frames"]:
            lines.append(
                f"backend: {graphs['frames']} frames, {graphs['graphs']} graphs with {graphs['calls']} calls of "
                f"programs, {graphs['rolled']} loops rolled up, {graphs['seconds']:.2f} s"
            )
        if lazy["records"]:
            lines.append(
                f"device: {lazy['programs']} programs for {lazy['records']} batches of operations, which ran as "
                f"programs {lazy['compiled_batches']} times and one by one {lazy['plain_batches']} times"
            )
        if count := self["contended"]:
            lines.append(f"cores: threads kept apart in {count} calls, as other programs used the cores")
        at_once = {
            f"{op} at {place or 'no line of yours'}": count
            for op, places in lazy["ran_at_once"].items()
            for place, count in places.items()
        }
        left = {
            f"{place}: {reason}": steps
            for place, reasons in graphs["not_rolled"].items()
            for reason, steps in reasons.items()
        }
        for title, counts in (
            ("steps of loops that stay one after the other", left),
            ("calls of ATen's operators", self["extern"]),
            ("operations that the device ran at once", at_once),
            ("streams, by what runs their steps", self["streams"]),
            ("ran elsewhere than in Weft's machine code", self["fallbacks"]),
        ):
            if counts:
                lines.append(f"{title}:")
                lines += [f"{count:8} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]
        if self.is_empty:
            lines.append(NOTHING_MET)
        elif not self["fallbacks"]:
            lines.append("all that came to Weft ran in its machine code")
        return "\n".join(lines)


#: Counters with names that come up at run time; only names that grew are shown.
_BY_NAME = ("fallbacks", "extern", "ran_at_once", "not_rolled", "streams")
#: Current values, not counts since the last reset.
_LEVELS = ("captured", "kept")

_start: dict[str, Any] = {}


def stats() -> Stats:
    """Counters since `reset_stats()`, else since the process began; `print(weft.stats())` shows them as a text.

    `compiled`: programs made ready; `object_cache_hits`: how many of these were taken from the disk; `compile_seconds`,
    which calls waited for them; `calls`: calls of programs; `fallbacks`: how often something ran elsewhere than in
    Weft's machine code, by reason; `extern`: by op, calls left to ATen in graphs compiled by
    `torch.compile(backend="weft")`, and calls of ATen's operators from inside programs; `contended`: calls that ran on
    one thread, or whose threads split the rows of a batch rather than its columns, since other programs used the cores
    (docs/engine/execution.md). `streams`: how many streams `weft.stream` made, by what runs their steps: machine code
    for a target, or the engine, and why. `captured`: how many programs of steps are kept now, the most that are
    (WEFT_CAPTURED, 512), the bytes that their records and texts take (64 MB at most), and how many compiled programs
    are kept in all (WEFT_EXECUTABLES, 1024, at most).

    `backend`, of `torch.compile(backend="weft")`: `frames`, graphs taken from Dynamo; `graphs` compiled of them
    (forward, backward, inference); in these `calls` of programs, and `regions`, calls that ATen ops have joined;
    `rolled`, loops of Python that became scans; `not_rolled`, how many like steps of loops are left one after the
    other, by the place in the user's code ("train.py:12") and the reason; `seconds`, without Dynamo's. `device`, of the
    lazy device: `programs` that were compiled; `records`, how many different batches of operations were seen, and how
    many of these are `kept`; `widenings`, attempts at one program for all sizes of two of them; how many batches ran as
    a program (`compiled_batches`) and one by one (`plain_batches`); `ran_at_once`, operations whose result, or its
    shape, depends on values, so that they were not recorded but ran what was pending: how often, by operation and by
    the place in the user's code ("train.py:12"; "" where there is none, as in a backward).
    """
    return Stats(since(totals(), _start))


def reset_stats() -> None:
    """Count from zero again."""
    global _start
    _start = _counters()


def since(now: dict[str, Any], before: dict[str, Any], *, by_name: bool = False) -> dict[str, Any]:
    """How much the counters of `totals()` grew since `before`; names that didn't grow are left out of counters by
    name."""
    found: dict[str, Any] = {}
    for name, value in now.items():
        if name in _LEVELS:
            found[name] = value
        elif isinstance(value, dict):
            found[name] = since(value, before.get(name, {}), by_name=by_name or name in _BY_NAME)
        else:
            found[name] = value - before.get(name, 0)
    return {name: value for name, value in found.items() if value} if by_name else found


def totals() -> dict[str, Any]:
    """Counters since the process began, and what is kept now."""
    return _counters() | {"captured": programs.kept()}


def _counters() -> dict[str, Any]:
    """Without what is kept, which is counted program by program."""
    now = _C.stats()
    return now | {
        "extern": dict(extern + Counter(now["extern"])),
        "streams": dict(streams),
        "backend": dataclasses.asdict(backend),
        "device": _C.device_stats() | {"ran_at_once": _C.device_ran_at_once()},
    }
