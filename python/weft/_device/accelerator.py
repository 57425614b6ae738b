"""PyTorch takes every registered device for the machine's accelerator. A program that doesn't use the device must not
get it unasked: code that asks `torch.accelerator.is_available()` would train there.

So there is no accelerator until the program has made a tensor on the device, or has called `weft.device.register()`.
nn.DataParallel, which is for several devices, never takes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from weft import _C
from weft._base import torch_private


def _hidden(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, behaving as without weft until the device is in use."""
    gives_a_device = name in ("_accelerator_getAccelerator", "_get_accelerator")
    before = function() if gives_a_device else None

    @functools.wraps(function)
    def of_device_in_use(*args: Any, **kwargs: Any) -> Any:
        if _C.device_may_be_in_a_graph():
            return function(*args, **kwargs)
        if gives_a_device and not any((*args, *kwargs.values())):
            return before
        raise RuntimeError("Cannot access accelerator device when none is available.")

    return of_device_in_use


def _not_ours(find: Callable[[], str | None]) -> Callable[[], str | None]:
    def find_other() -> str | None:
        found = find()
        return None if found == "weft" else found

    return find_other


def register() -> bool:
    """To be called before PyTorch knows the device. Returns whether there is another accelerator; if so, the device
    takes its place at once."""
    other = torch.accelerator.current_accelerator(check_available=True)
    torch_private.replace_accelerator_functions(_hidden)
    torch_private.replace_device_of_data_parallel(_not_ours)
    return other is not None
