"""Tensors of the device on their way to another process: the workers of a DataLoader, `torch.multiprocessing`."""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor


def _arrived(tensor: Tensor, kind: type, requires_grad: bool) -> Tensor:
    made = tensor.to("weft")
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad)
    return made.requires_grad_(requires_grad)


def _reduce(tensor: Tensor) -> Any:
    """PyTorch's reduction, except that a tensor of the device is sent as a copy, since the other process has a device
    of its own.

    Raises:
        RuntimeError: it is no leaf and requires a gradient, in PyTorch's words.
    """
    if tensor.device.type != "weft":
        return reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    return _arrived, (tensor.detach().cpu(), type(tensor), tensor.requires_grad)


def register() -> None:
    for kind in (Tensor, torch.nn.Parameter):
        reduction.register(kind, _reduce)  # type: ignore[arg-type]
