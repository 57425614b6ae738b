"""PyTorch's decompositions of operations, for those that Weft doesn't decompose itself (pytorch/decompose)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from weft import _C
from weft._base import torch_private


def decompose(name: tuple[str, str], arguments: list[Any]) -> Any:
    """Decomposes the operation, given by name and overload, on all its arguments in order; NotImplemented where nothing
    does."""
    op = operator_of(*name)
    function = _decomposition(op)
    return NotImplemented if function is None else call(op, function, arguments)


def is_made_of_others(op: Any) -> bool:
    """Whether Weft or PyTorch has a decomposition of the operation."""
    return _C.decomposes(op._schema.name, op._overloadname) or _decomposition(op) is not None


def call(op: Any, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """Calls `function` with the arguments of the operation `op`, given in the schema's order."""
    positional, named = [], {}
    for parameter, argument in zip(op._schema.arguments, arguments, strict=True):
        if parameter.kwarg_only:
            named[parameter.name] = argument
        else:
            positional.append(argument)
    return function(*positional, **named)


@functools.cache
def operator_of(name: str, overload: str) -> Any:
    space, base = name.split("::")
    return getattr(getattr(getattr(torch.ops, space), base), overload)


@functools.cache
def _decomposition(op: Any) -> Callable[..., Any] | None:
    if op.namespace == "prims":  # the operations that PyTorch's decompositions are written in
        return getattr(op, "impl_aten", None)
    return _from_pytorch().get(op)


@functools.cache
def _from_pytorch() -> dict[Any, Callable[..., Any]]:
    found = {**torch_private.decomposition_table, **torch_private.core_aten_decompositions()}
    aten = torch.ops.aten
    # At ties these decompositions would share the gradient; the operation gives it to the first of the equal elements.
    for op in (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default):
        found.pop(op, None)
    found[aten.grid_sampler_2d.default] = functools.partial(_grid_sampler, found[aten.grid_sampler_2d.default])
    return found


def _grid_sampler(
    sample: Callable[..., Any], x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool
) -> Any:
    """PyTorch's decomposition `sample`, but without a gradient at the bounds to which coordinates are clamped, as in
    the operation."""
    zeros, reflection, bicubic = 0, 2, 2
    if padding == zeros or interpolation == bicubic:
        return sample(x, grid, interpolation, padding, align_corners)
    inside = []
    for i, size in enumerate((x.shape[3], x.shape[2])):
        at = grid[..., i] * ((size - 1) / 2 if align_corners else size / 2) + (size - 1) / 2
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if padding == reflection:
            way = torch.remainder(at - low, 2 * span)
            at = torch.minimum(way, 2 * span - way) + low
        inside.append((at > 0) & (at < size - 1))
    return sample(x, torch.where(torch.stack(inside, -1), grid, grid.detach()), interpolation, padding, align_corners)
