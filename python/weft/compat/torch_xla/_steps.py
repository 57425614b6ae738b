"""Steps: where one ends, what is to be called then, and how often that was."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from weft import device as weft_device

_state = threading.local()  #: `closures` of the thread's step


class Clock:
    """How long something took: how often, the sum, and the last samples as (time, seconds)."""

    def __init__(self) -> None:
        self.count, self.total, self.samples = 0, 0.0, deque[tuple[float, float]](maxlen=1024)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.samples.append((time.time(), seconds))


lock = threading.Lock()
execution = Clock()  #: of steps
marked = 0  #: steps


def the_device() -> torch.device:
    """`torch.device("weft:0")`, which it makes known to PyTorch if it isn't.

    Raises:
        RuntimeError: another package has taken PyTorch's place for a device from outside.
    """
    weft_device.register()
    return torch.device("weft", 0)


def end_step(counts: bool = True) -> None:
    """Runs what this thread has recorded, then the step's closures."""
    global marked
    begin = time.perf_counter()
    weft_device.sync()
    seconds = time.perf_counter() - begin
    with lock:
        execution.add(seconds)
        marked += counts
    closures, _state.closures = getattr(_state, "closures", []), []
    for closure in closures:
        closure()


def at_end_of_step(closure: Callable[[], Any]) -> None:
    if not hasattr(_state, "closures"):
        _state.closures = []
    _state.closures.append(closure)
