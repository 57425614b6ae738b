"""Rules for vmap: `torch.ops.weft.call` is one call for each element of the mapped dim, results stacked; a
`torch.while_loop` runs until no element goes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft._base.torch_private import TransformType, add_batch_dim, unwrap_batched


def _rule(
    info: Any, in_dims: tuple[Any, ...], program: str, inputs: list[Tensor]
) -> tuple[list[Tensor], list[int | None]]:
    dims = in_dims[1]
    # Results of an empty mapped dim need shapes too: those of one element of zeros.
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


def _while_loop(
    interpreter: Any, cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any, *rest: Any
) -> Any:
    """Elements whose condition no longer holds keep their carries, whatever the body returns for them."""
    level, size = interpreter.level(), interpreter.batch_size()
    carries, count = [_in_front(carry, level, size) for carry in carried_inputs], len(carried_inputs)
    others, dims = [], [0] * count
    for other in additional_inputs:
        plain, dim = unwrap_batched(other, level) if isinstance(other, Tensor) else (other, None)
        others.append(plain)
        dims.append(dim)

    def going_on(*arguments: Any) -> Tensor:
        return torch.vmap(lambda *each: cond_fn(*each).reshape(()).bool(), tuple(dims))(*arguments)

    def some_go_on(*arguments: Any) -> Tensor:
        return going_on(*arguments).any()

    def body(*arguments: Any) -> tuple[Tensor, ...]:
        goes_on = going_on(*arguments)
        after = torch.vmap(lambda *each: tuple(body_fn(*each)), tuple(dims))(*arguments)
        return tuple(
            torch.where(goes_on.view(-1, *[1] * (new.dim() - 1)), new, old)
            for new, old in zip(after, arguments[:count], strict=True)
        )

    with interpreter.lower():
        results = torch.ops.higher_order.while_loop(some_go_on, body, tuple(carries), tuple(others), *rest)
    return tuple(add_batch_dim(result, 0, level) for result in results)


def _in_front(carry: Any, level: int, size: int) -> Tensor:
    """A carry of all elements, with the mapped dim first."""
    plain, dim = unwrap_batched(torch.as_tensor(carry), level)
    mapped = plain.expand(size, *plain.shape) if dim is None else plain.movedim(dim, 0)
    return mapped.clone(memory_format=torch.contiguous_format)


if TransformType.Vmap not in torch.ops.higher_order.while_loop.functorch_table:  # PyTorch has no rule of its own
    torch.ops.higher_order.while_loop.py_impl(TransformType.Vmap)(_while_loop)
