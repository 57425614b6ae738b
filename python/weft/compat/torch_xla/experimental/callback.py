"""`torch_xla.experimental.callback`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torch import Tensor

from weft import device as weft_device


def on_ready_callback(tensor: Tensor, callback: Callable[[Tensor], None]) -> None:
    """Runs what this thread has recorded, then `callback(tensor)`, in this thread: nothing runs in the background."""
    weft_device.sync()
    callback(tensor)


def on_ready_event(tensor: Tensor) -> threading.Event:
    """An event that is set, since what this thread has recorded has run when this returns."""
    event = threading.Event()
    on_ready_callback(tensor, lambda _: event.set())
    return event
