"""Checks that a stream gives the results of its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft._base import trees
from weft._capture.complex_numbers import as_pairs, kind_of, next_leaf
from weft._streaming.capture import StreamingModel

#: How far a result may be from the model's, as a part of the largest element.
BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}


def check_against_whole(
    model: Callable[..., Any], made: StreamingModel, new_run: Callable[[], Callable[..., Any]]
) -> None:
    """Runs the model, and a stream by `new_run()`, on sequences of the example's steps in other orders.

    Raises RuntimeError where they differ.
    """
    examples = made.examples
    ports = made.inputs
    steps = max(e.shape[p.time] for e, p in zip(examples, ports, strict=True) if p.time is not None)
    chunks = max(-(-steps // made.chunk), 1)
    generator = torch.Generator().manual_seed(0)
    for count in dict.fromkeys((chunks, chunks + 3, max(chunks // 2, 1))):
        inputs = [_alike(e, p.time, count * made.chunk, generator) for e, p in zip(examples, ports, strict=True)]
        left = iter(inputs)
        leaves = [next_leaf(left, kind_of(leaf)) if isinstance(leaf, Tensor) else leaf for leaf in made.arguments]
        arguments = trees.unflatten(leaves, made.argument_spec)[0]
        try:
            with torch.no_grad():
                whole = _tensors_of(model(*arguments))
        except Exception:
            if count == chunks:
                raise
            continue  # a model may refuse few steps, or more than it knows
        parts = _tensors_of(new_run()(*arguments))
        for i, (expected, found, port) in enumerate(zip(whole, parts, made.outputs, strict=True)):
            _compare(i, expected, found, port.time, port.lag)


def _tensors_of(result: Any) -> list[Tensor]:
    """The tensors among a result's leaves, complex ones as pairs."""
    return as_pairs([leaf for leaf in trees.flatten(result)[0] if isinstance(leaf, Tensor)])


def _alike(example: Tensor, time: int | None, steps: int, generator: torch.Generator) -> Tensor:
    """Steps of the example in another order; numbers changed a little, so that no two steps are the same."""
    if time is None:
        return example
    picked = torch.randint(example.shape[time], (steps,), generator=generator)
    values = example.index_select(time, picked)
    if not values.is_floating_point():
        return values
    spread = values.double().std(unbiased=False).clamp(min=0.0)
    scale = float(spread) if bool(spread > 0) else 1.0
    return values + (0.5 * scale * torch.randn(values.shape, generator=generator)).to(values.dtype)


def _compare(i: int, whole: Tensor, parts: Tensor, time: int | None, lag: int) -> None:
    if time is not None:
        first, last = min(max(lag, 0), parts.shape[time]), min(parts.shape[time], whole.shape[time] + lag)
        parts = parts.narrow(time, first, max(last - first, 0))
        begin = max(first - lag, 0)
        whole = whole.narrow(time, begin, max(last - first, 0))
    if whole.dtype not in BOUNDS:
        is_same = torch.equal(whole, parts)
    else:
        finite = whole[whole.isfinite()].double()
        bound = BOUNDS[whole.dtype] * max(float(finite.abs().max()) if finite.numel() else 0.0, 1e-6)
        is_same = torch.allclose(parts, whole, rtol=0, atol=bound, equal_nan=True)
    if not is_same:
        off = (parts.double() - whole.double()).abs().max() if whole.numel() else 0
        raise RuntimeError(
            f"weft.stream: result {i} of the stream is not that of the model; they differ by {float(off):.3g}. Either "
            "the model does something else for other numbers of steps, or this is a bug of weft's"
        )
