"""Both sides run as users will run them: by PyTorch's or `weft.nn`'s modules, in the dtype in which they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weft._base.dtypes import DTYPES
from weft.formats import FormatError, Layer
from weft.formats._stacks import stacks_of
from weft.verification import _C, _sides
from weft.verification._pairs import Pair
from weft.verification._results import OwnDtype
from weft.verification._where import without_states


def own_dtype(pair: Pair, input: _sides.Input) -> OwnDtype | None:
    """None where PyTorch and `weft.nn` have no module for a side."""
    dtype = _sides.dtype_of(pair.candidate)
    with torch.no_grad():
        try:
            answers = [_run(layers, input, dtype) for layers in (pair.reference, pair.candidate)]
        except (FormatError, ValueError):  # FormatError is ours, ValueError comes from PyTorch's constructors
            return None
    if answers[0].numel() == 0:
        return None
    difference = (answers[0].double() - answers[1].double()).abs().nan_to_num(nan=float("inf"))
    same = answers[0].isnan() & answers[1].isnan() | (answers[0] == answers[1])
    difference = torch.where(same, 0.0, difference)
    bounds = [_bound(layers, input, dtype) for layers in (pair.reference, pair.candidate)]
    bound = bounds[0] + bounds[1]
    excess = torch.where(difference == 0, -1.0, difference - bound).nan_to_num(nan=-1.0)
    where = int(excess.argmax()) if bool((excess > 0).any()) else int(difference.argmax())
    return OwnDtype(
        str(dtype).removeprefix("torch."),
        float(difference.flatten()[where]),
        float(bound.flatten()[where]),
        not bool((excess > 0).any()),
    )


def _run(layers: Sequence[Layer], input: _sides.Input, dtype: torch.dtype) -> Tensor:
    """y [T, B, D*H] of all layers run one after the other."""
    y = input.x.to(dtype)
    rest = list(layers)
    for stack in stacks_of("weft.nn", [without_states(layer) for layer in layers]):
        stack.dtype = dtype
        module = stack.make()
        own, rest = rest[: len(stack.layers)], rest[len(stack.layers) :]
        states = _states(own, input, dtype)
        y = module(y, states)[0] if states is not None else module(y)[0]
    return y


def _states(layers: Sequence[Layer], input: _sides.Input, dtype: torch.dtype) -> object:
    directions = [direction for layer in layers for direction in layer.directions]
    if all(direction.h0 is None and direction.c0 is None for direction in directions):
        return None
    batch = input.x.shape[1]

    def stacked(name: str, size: int) -> Tensor:
        rows = [getattr(direction, name) for direction in directions]
        zeros = torch.zeros(batch, size)
        return torch.stack([zeros.to(dtype) if row is None else row.to(dtype).expand(batch, size) for row in rows])

    h0 = stacked("h0", directions[0].output_size)
    return (h0, stacked("c0", layers[0].hidden_size)) if layers[0].kind == "LSTM" else h0


def _bound(layers: Sequence[Layer], input: _sides.Input, dtype: torch.dtype) -> Tensor:
    """The largest change of y that rounding in this dtype can cause when the layers run by themselves."""
    return torch.from_numpy(_C.rounding_bound(_sides.engine(layers), input.x.numpy(), DTYPES[dtype]))
