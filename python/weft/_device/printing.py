"""Printing tensors of the device. PyTorch copies those of its own lazy devices to the CPU first, by their names; in
formatting a tensor of weft number by number it would record and run thousands of operations."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from weft._base import torch_private


def register() -> None:
    def on_cpu(write: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(write)
        def write_on_cpu(tensor: Tensor, indent: int) -> str:
            return write(tensor.cpu() if tensor.device.type == "weft" else tensor, indent)

        return write_on_cpu

    torch_private.replace_tensor_str(on_cpu)
