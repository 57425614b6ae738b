"""PyTorch's decompositions: how it makes operations of others, where Weft (pytorch/decompose) has no way of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import _C
from weft._base import torch_private


def decompose(name: tuple[str, str], arguments: list[Any]) -> Any:
    """The operation, by name and overload, on all its arguments in order; NotImplemented where there is no way."""
    op = operator_of(*name)
    function = _decomposition(op)
    return NotImplemented if function is None else call(op, function, arguments)


def is_made_of_others(op: Any) -> bool:
    """Whether there is a way, Weft's or PyTorch's."""
    return _C.decomposes(op._schema.name, op._overloadname) or _decomposition(op) is not None


def call(op: Any, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """`function` with the arguments of the operation `op`, in the schema's order."""
    positional, named = [], {}
    for parameter, argument in zip(op._schema.arguments, arguments, strict=True):
        if parameter.kwarg_only:
            named[parameter.name] = argument
        else:
            positional.append(argument)
    return function(*positional, **named)


@functools.cache
def operator_of(name: str, overload: str) -> Any:
    import torch

    space, base = name.split("::")
    return getattr(getattr(getattr(torch.ops, space), base), overload)


@functools.cache
def _decomposition(op: Any) -> Callable[..., Any] | None:
    if op.namespace == "prims":  # what PyTorch's decompositions are written in
        return getattr(op, "impl_aten", None)
    return _from_pytorch().get(op)


@functools.cache
def _from_pytorch() -> dict[Any, Callable[..., Any]]:
    return {**torch_private.decomposition_table, **torch_private.core_aten_decompositions()}
