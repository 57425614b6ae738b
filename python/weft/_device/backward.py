"""Backwards of the device's tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from weft import _C
from weft._base import torch_private


def register() -> None:
    """From now on, once the device is in use, a backward runs on the thread that calls it: autograd's engine has no
    thread for the device (pytorch/device/run/devices_in_use.h). Nothing is lost, since the device's operations are only
    recorded, and run when a result is read."""

    def here(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_here(*args: Any, **kwargs: Any) -> Any:
            if not _C.device_may_be_in_a_graph():
                return run(*args, **kwargs)
            with torch.autograd.set_multithreading_enabled(False):
                return run(*args, **kwargs)

        return run_here

    torch_private.replace_engine_run_backward(here)
