"""What Weft did since the process began, or since `reset_stats()`."""

from __future__ import annotations

from typing import Any

from weft import _C

_start: dict[str, Any] = {}


def stats() -> dict[str, Any]:
    """Counters since `reset_stats()`, else since the process began.

    `compiled`: programs compiled; `object_cache_hits`: programs taken from the disk instead; `compile_seconds`; `calls`:
    calls of programs; `fallbacks`: how often something ran elsewhere than in Weft's machine code, by reason.
    """
    now = _C.stats()
    since = {name: value - _start.get(name, 0) for name, value in now.items() if name != "fallbacks"}
    before = _start.get("fallbacks", {})
    fallbacks = {reason: count - before.get(reason, 0) for reason, count in now["fallbacks"].items()}
    return since | {"fallbacks": {reason: count for reason, count in fallbacks.items() if count}}


def reset_stats() -> None:
    """Count from zero again."""
    global _start
    _start = _C.stats()
