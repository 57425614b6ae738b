"""`torch_xla.experimental.gradient_accumulation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[Tensor],
    model: torch.nn.Module,
    *carried_tensors: Tensor,
) -> Any:
    """Calls `train_step(*slices, *carried)`, which returns a loss or `(loss, *carried)`, with every slice along the
    first dimension of `iterable_tensors`, N of them. Each loss is divided by N before its backward, so that what is
    added to the gradients of the model's parameters is the gradient of the losses' mean. A step finds the parameters
    without gradients, as in PyTorch/XLA.

    Returns:
        The mean of the losses, [] of float32 unless they are of float64; or `(mean, *carried)` if there are carried
        tensors.

    Raises:
        ValueError: no tensor to iterate over, an empty one, something else, or other lengths than the first's.
        AssertionError: `train_step` changes in place what it is given, or a parameter. The tensors of the caller keep
            their values; a parameter doesn't.
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
    parameters = list(model.parameters())
    before = [each.grad for each in parameters]
    steps, total = iterable_tensors[0].size(0), torch.zeros((), dtype=torch.float32)
    sums: list[Tensor | None] = [None] * len(parameters)
    try:
        for number in range(steps):
            for each in parameters:
                each.grad = None
            slices = [tensor[number] for tensor in iterable_tensors]
            loss, carried_tensors = _call(train_step, slices, carried_tensors, parameters)
            loss = loss / steps
            loss.backward()
            total = total.to(loss.device) + loss.detach()
            sums = [_sum(one, each.grad) for one, each in zip(sums, parameters, strict=True)]
    finally:
        for each, grad in zip(parameters, before, strict=True):
            each.grad = grad
    for each, grad in zip(parameters, sums, strict=True):
        if each.grad is None or grad is None:
            each.grad = grad if each.grad is None else each.grad
        else:
            with torch.no_grad():
                each.grad.add_(grad)
    return (total, *carried_tensors) if carried_tensors else total


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other


def _call(
    train_step: Callable[..., Any], slices: Sequence[Tensor], carried: Sequence[Tensor], parameters: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loss, and the carry for the next step. The step gets copies: if it changes its arguments, no tensor of the
    caller's has changed when that is noticed."""
    given = [each.clone() for each in (*slices, *carried)]
    watched = [*given, *parameters]
    versions = [each._version for each in watched]
    result = train_step(*given)
    for i, (each, version) in enumerate(zip(watched, versions, strict=True)):
        if each._version != version:
            name = f"argument {i}" if i < len(given) else f"parameter {i - len(given)} of the model"
            raise AssertionError(
                f"gradient_accumulation: train_step changes {name} in place; it must be pure: return a new tensor"
            )
    loss, *after = result if isinstance(result, tuple) else (result,)
    if len(after) != len(carried):
        raise ValueError(f"train_step gives {len(after)} carried tensors, and takes {len(carried)}")
    return loss, tuple(each.detach() for each in after)
