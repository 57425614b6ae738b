"""Steps: where a step ends, the closures to call then, and how many there were."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from weft import device as weft_device

_state = threading.local()  #: `closures` of the thread's step


class Clock:
    """Counts how often something ran, the sum of its times, and the last samples as (time, seconds)."""

    def __init__(self) -> None:
        self.count, self.total, self.samples = 0, 0.0, deque[tuple[float, float]](maxlen=1024)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.samples.append((time.time(), seconds))


lock = threading.Lock()
execution = Clock()  #: of steps
marked = 0  #: steps
_beside: ThreadPoolExecutor | None = None
_running: set[Future[Any]] = set()  #: closures that are running, or that raised an error


def the_device() -> torch.device:
    """`torch.device("weft:0")`. Registers the device if it isn't registered yet.

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
    for closure, run_async in closures:
        if run_async:
            _run_beside(closure)
        else:
            closure()


def at_end_of_step(closure: Callable[[], Any], run_async: bool) -> None:
    if not hasattr(_state, "closures"):
        _state.closures = []
    _state.closures.append((closure, run_async))


def _run_beside(closure: Callable[[], Any]) -> None:
    """Runs closures in another thread, one after the other. Raises the error of an earlier one, and then runs no
    more."""
    global _beside
    with lock:
        if _beside is None:
            _beside = ThreadPoolExecutor(1, "torch_xla closures")
        done = [future for future in _running if future.done()]
        _running.difference_update(done)
    for future in done:
        future.result()
    future = _beside.submit(closure)
    with lock:
        _running.add(future)
