"""x[..., p] and x[..., p] = v in a recorded function, where p is a scalar tensor without a value yet.

PyTorch asks for the value of such an index before any operation reaches the recorder. Within `ByTensors` rows are taken
and replaced by operations instead. That costs every function of PyTorch's a call of Python's, so that a function is
run so only if it asked for a value without.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft import _C


class ByTensors(TorchFunctionMode):
    """Takes scalar tensors of the recording as indices. `used`: whether there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            x, index, *value = args
            index = index if isinstance(index, tuple) else (index,)
            if isinstance(x, Tensor) and any(map(_is_position, index)) and all(map(_is_basic, index)):
                self.used = True
                return _put(x, index, value[0]) if value else _taken(x, index)
        return func(*args, **(kwargs or {}))


def _is_position(item: object) -> bool:
    """Whether PyTorch would ask for the value of this index."""
    return (
        isinstance(item, Tensor)
        and item.dim() == 0
        and not item.dtype.is_floating_point
        and item.dtype not in (torch.bool, torch.uint8)
        and _C.is_recorded(item)
    )


def _is_basic(item: object) -> bool:
    """Whether the number of dims that the index takes is known. (A bool is an int, and takes none.)"""
    return (isinstance(item, int | slice | EllipsisType | None) and not isinstance(item, bool)) or _is_position(item)


def _sizes(x: Tensor, index: tuple[Any, ...]) -> list[int]:
    """The number of dims of x that each part of the index stands for."""
    taken = sum(item is not None and item is not Ellipsis for item in index)
    return [0 if item is None else x.dim() - taken if item is Ellipsis else 1 for item in index]


def _rest(x: Tensor, rest: list[Any]) -> Tensor:
    """x indexed by the parts that need no value; x itself if they select all of it."""
    return x if all(item is Ellipsis or item == slice(None) for item in rest) else x[tuple(rest)]


def _taken(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    rest, dim = [], 0
    for item, dims in zip(index, _sizes(x, index), strict=True):
        if _is_position(item):
            x = torch.narrow(x, dim, item, 1).squeeze(dim)
        else:
            rest.append(item)
            dim += dims
    return _rest(x, rest)


def _put(x: Tensor, index: tuple[Any, ...], value: Any) -> None:
    """Writes to a view of x that the other parts of the index select."""
    shown = _rest(x, [slice(None) if _is_position(item) else item for item in index])
    positions: list[Tensor | None] = []  # by dim of `shown`
    for item, dims in zip(index, _sizes(x, index), strict=True):
        if _is_position(item):
            positions.append(item)
        elif not isinstance(item, int):
            positions += [None] * (1 if item is None else dims)
    value = torch.as_tensor(value).to(x.dtype)
    kept = shown.dim() - sum(position is not None for position in positions)
    while value.dim() > kept and value.shape[0] == 1:  # as PyTorch does
        value = value[0]
    torch.ops.aten.index_put_.default(shown, positions, value)
