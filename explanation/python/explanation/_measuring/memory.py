"""How much memory a step takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from weft import _C as engine  # noqa: N811

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler says on the console when it begins


def most_bytes(step: Callable[[], Any]) -> int | None:
    """The most bytes of the CPU's tensors at once beside those that there were, with the memory of Weft's own that the
    step's programs take for what lies between their operations. None: PyTorch's profiler is at work already, or isn't
    there."""
    engine.trim_arena()
    before = engine.idle_arena_bytes()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = step()
            del result
        events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
    except (RuntimeError, AttributeError):
        return None
    now = most = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return int(most + max(engine.idle_arena_bytes() - before, 0))
