"""What the tables of decompositions of a step's operations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]


def entering(table: dict[Any, Function]) -> Callable[..., Callable[[Function], Function]]:
    """A decorator of the overloads that a function decomposes, which enters it in `table`."""

    def decomposes(*overloads: Any) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            for overload in overloads:
                table[overload] = function
            return function

        return register

    return decomposes


def select(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """torch.where whose numbers are of the dtype of the tensor beside them."""
    like = x if isinstance(x, Tensor) else y
    assert isinstance(like, Tensor)
    x = x if isinstance(x, Tensor) else torch.full((), x, dtype=like.dtype)
    y = y if isinstance(y, Tensor) else torch.full((), y, dtype=like.dtype)
    return torch.where(condition, x, y)


def dims_of(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The dims that a reduction goes over, none meaning all."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return [d % max(x.dim(), 1) for d in dims] or list(range(x.dim()))


def floating(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    if dtype is not None:
        return x.to(dtype)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def wide(x: Tensor) -> Tensor:
    """f16 and bf16 in f32, where PyTorch's kernels compute in it and round once."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def root(x: Tensor) -> Tensor:
    """The square root whose derivative at 0 is 0, as those of norms and deviations are."""
    zero = x == 0
    return select(zero, 0.0, torch.sqrt(select(zero, 1.0, x)))
