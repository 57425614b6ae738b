"""The vmap rule of `torch.ops.weft.call`: one call for each element of the mapped dim, results stacked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _rule(
    info: Any, in_dims: tuple[Any, ...], program: str, inputs: list[Tensor]
) -> tuple[list[Tensor], list[int | None]]:
    dims = in_dims[1]
    # With nothing to map over there are still the results' shapes to find: those of one element of zeros.
    count = info.batch_size
    columns = [_elements(tensor, dim, max(count, 1)) for tensor, dim in zip(inputs, dims, strict=True)]
    calls = [torch.ops.weft.call(program, [column[i] for column in columns]) for i in range(max(count, 1))]
    results = [torch.stack(parts)[:count] for parts in zip(*calls, strict=True)]
    return results, [0] * len(results)


def _elements(tensor: Tensor, dim: int | None, count: int) -> list[Tensor]:
    if dim is None:
        return [tensor] * count
    if tensor.shape[dim] == 0:
        return [tensor.new_zeros(tensor.shape[:dim] + tensor.shape[dim + 1 :])]
    return list(tensor.unbind(dim))


torch.library.register_vmap("weft::call", _rule)
