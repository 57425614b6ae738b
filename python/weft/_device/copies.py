"""Tensors of the device are printed, and written to files, as tensors of the CPU.

Before it prints tensors of its own lazy devices, which it knows by name, PyTorch copies them. Formatting a tensor of
weft number by number would record and run thousands of operations. Files are written as the CPU's, so that they can be
read where weft isn't imported; `map_location="weft"` reads them to the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft._base import torch_private

_BEFORE_PYTORCHS = 5  #: PyTorch's own packages for files begin at 10, the CPU's


def _printed_by_cpu(write: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(write)
    def write_on_cpu(tensor: Tensor, indent: int) -> str:
        return write(tensor.cpu() if tensor.device.type == "weft" else tensor, indent)

    return write_on_cpu


def _tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "weft" else None


def _leave_to_others(storage: Any, location: str) -> None:
    return None


def register() -> None:
    torch_private.replace_tensor_str(_printed_by_cpu)
    torch.serialization.register_package(_BEFORE_PYTORCHS, _tag, _leave_to_others)
