"""`torch_xla.experimental.gradient_accumulation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: tuple[Tensor, ...],
    model: torch.nn.Module,
    *carried_tensors: Tensor,
) -> Any:
    """Calls `train_step(*slices, *carried)`, which returns a loss or `(loss, *carried)`, with every slice along the
    first dimension of `iterable_tensors`, and adds the gradients of the losses to those of the model's parameters.

    Returns:
        The sum of the losses, or `(sum, *carried)` if there are carried tensors.

    Raises:
        ValueError: no tensor to iterate over, an empty one, something else, or other lengths than the first's.
    """
    if not iterable_tensors:
        raise ValueError("iterable_tensors cannot be empty")
    for i, tensor in enumerate(iterable_tensors):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Element {i} of iterable_tensors is not a tensor")
        if tensor.numel() == 0:
            raise ValueError(f"Element {i} of iterable_tensors is empty")
        if tensor.size(0) != iterable_tensors[0].size(0):
            raise ValueError(f"Element {i} of iterable_tensors has inconsistent first dimension")
    total: Any = 0
    for slices in zip(*iterable_tensors, strict=True):
        result = train_step(*slices, *carried_tensors)
        loss, *carried = result if isinstance(result, tuple) else (result,)
        if len(carried) != len(carried_tensors):
            raise ValueError(f"train_step gives {len(carried)} carried tensors, and takes {len(carried_tensors)}")
        loss.backward()
        total, carried_tensors = total + loss.detach(), tuple(each.detach() for each in carried)
    return (total, *carried_tensors) if carried_tensors else total
