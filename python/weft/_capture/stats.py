"""What Weft did since the process began, or since `reset_stats()`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft import _C
from weft._capture import programs

#: Calls left to ATen in the graphs that the backend compiled, by op.
extern: Counter[str] = Counter()

_start: dict[str, Any] = {}


def stats() -> dict[str, Any]:
    """Counters since `reset_stats()`, else since the process began.

    `compiled`: programs compiled; `object_cache_hits`: programs taken from the disk instead; `compile_seconds`;
    `calls`: calls of programs; `fallbacks`: how often something ran elsewhere than in Weft's machine code, by reason;
    `extern`: by op, calls left to ATen in graphs compiled by `torch.compile(backend="weft")`, and calls of ATen's
    operators from inside programs. `captured`: how many programs of steps are kept now, the most that are
    (WEFT_CAPTURED, 512), the bytes that their records and texts take (64 MB at most), and how many compiled programs
    are kept in all (WEFT_EXECUTABLES, 1024, at most).
    """
    now = _totals()
    since = {name: value - _start.get(name, 0) for name, value in now.items() if not isinstance(value, dict)}
    for name in ("fallbacks", "extern"):
        before = _start.get(name, {})
        counts = {key: count - before.get(key, 0) for key, count in now[name].items()}
        since[name] = {key: count for key, count in counts.items() if count}
    return since | {"captured": programs.kept()}


def reset_stats() -> None:
    """Count from zero again."""
    global _start
    _start = _totals()


def _totals() -> dict[str, Any]:
    now = _C.stats()
    return now | {"extern": dict(extern + Counter(now["extern"]))}
