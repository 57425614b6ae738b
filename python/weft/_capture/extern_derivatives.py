"""Derivatives of operations that PyTorch runs from inside a program (`extern` ops).

Autograd gives the derivative of such an operation: the operation and its backward are traced into a program of their
own, which the op brings along. That program may contain extern ops again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base.errors import UnsupportedError
from weft._base.torch_private import DisableTorchFunction
from weft._capture.decompositions import call, operator_of
from weft._capture.traced import Traced

_MOST_DERIVATIVES = 2  #: how often an op can be differentiated: the derivative of its derivative has no derivative

_nesting = 0  # guarded by the lock of `trace`
_derivatives: dict[tuple[Any, ...], _C.Program | None] = {}
_MOST_KEPT = 1024

#: dtype; sizes; by dim the size's expression, or ""; whether autograd would ask for its derivative
Type = tuple[torch.dtype, list[int], list[str], bool]


def derivative(
    trace: Callable[..., Traced],
    text: str,
    name: tuple[str, str],
    arguments: list[Any],
    operands: list[Type],
    results: list[Type],
) -> _C.Program | None:
    """The program of the operation's derivative: (operands, results, cotangents of the floating results) -> cotangents
    of the floating operands; None if nothing asks for one.

    `text` is the operation's call; among its `arguments` tensors are ("operand", which), and sizes that may vary
    ("size", factor, [(operand, dim)]). `trace` is the tracer, in the
    middle of whose work this is asked.

    Raises UnsupportedError where there is a derivative to be had that no program can express.
    """
    global _nesting
    key = (text, _nesting, str(operands), str(results))
    if _nesting < _MOST_DERIVATIVES and key not in _derivatives:
        _nesting += 1
        if len(_derivatives) >= _MOST_KEPT:
            _derivatives.clear()
        try:
            _derivatives[key] = _first_of(
                # With create_graph some backwards read values (det's does), and without it they don't.
                lambda again=again: _traced(trace, operator_of(*name), arguments, operands, results, again)
                for again in (True, False)
            )
        finally:
            _nesting -= 1
    found = _derivatives.get(key)
    if found is None and _nesting == 0 and any(requires_gradient for *_, requires_gradient in results):
        raise UnsupportedError(f"{operator_of(*name)}: its derivative is not known")
    return found


def _first_of(ways: Iterable[Callable[[], _C.Program]]) -> _C.Program | None:
    """The program of the first way that works; None if PyTorch has no derivative, or none that a program can
    express."""
    for way in ways:
        with contextlib.suppress(RuntimeError, UnsupportedError, NotImplementedError):
            return way()
    return None


def _traced(
    trace: Callable[..., Traced],
    op: Any,
    arguments: list[Any],
    operands: list[Type],
    results: list[Type],
    create_graph: bool,
) -> _C.Program:
    floating = [result for result in results if result[0].is_floating_point]
    types = [*operands, *results, *floating]

    def gradients(inputs: list[Tensor], _: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
        computed = _flat(call(op, op, [_given(argument, inputs) for argument in arguments]))
        pairs = list(zip([t for t in computed if t.is_floating_point()], cotangents, strict=True))
        pairs = [(t, cotangent) for t, cotangent in pairs if t.requires_grad]
        wanted = [x for x in inputs if x.is_floating_point()]
        if not pairs and any(requires_gradient for *_, requires_gradient in results):
            raise UnsupportedError("a derivative that functionalisation hides")
        if not pairs:
            return [torch.zeros_like(x) for x in wanted]
        with DisableTorchFunction():  # PyTorch's own functions in Python may run within
            found = _C.gradients([t for t, _ in pairs], wanted, [c for _, c in pairs], create_graph)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]

    def dynamic(leaf: int, _: Tensor) -> list[int]:
        return [dim for dim, expression in enumerate(types[leaf][2]) if expression]

    def follow(shapes: list[list[int]]) -> list[list[int]]:
        """The shapes of the results, and of their cotangents, for operands of these shapes."""
        like = zip(shapes, operands, strict=False)
        given = [torch.empty(shape, dtype=dtype, device="meta") for shape, (dtype, *_) in like]
        computed = [list(t.shape) for t in _flat(call(op, op, [_given(argument, given) for argument in arguments]))]
        kept = [shape for shape, result in zip(computed, results, strict=True) if result[0].is_floating_point]
        return [*computed, *kept]

    # A size that is a single symbol may be any number; a size that is an expression follows from others.
    follows = any(
        expression and not expression.isidentifier() for *_, expressions, _ in types for expression in expressions
    )
    traced = trace(
        gradients,
        (_like(operands), _like(results), _like(floating)),
        what=f"the derivative of {op}",
        dynamic=dynamic,
        follow=follow if follows else None,
    )
    of_any_size = [[isinstance(size, str) for size in shape] for shape in traced.sizes[: len(types)]]
    if of_any_size != [[bool(one) for one in expressions] for _, _, expressions, _ in types]:
        raise UnsupportedError("a derivative for some sizes only")
    if traced.captured or traced.noise:
        raise UnsupportedError("a derivative with numbers of its own")
    return traced.program


def _like(types: list[Type]) -> list[Tensor]:
    return [torch.empty(sizes, dtype=dtype, device="cpu") for dtype, sizes, _, _ in types]


def _given(argument: Any, tensors: list[Tensor]) -> Any:
    if type(argument) is tuple and argument[0] == "size":
        return argument[1] * math.prod(tensors[operand].shape[dim] for operand, dim in argument[2])
    if type(argument) is tuple:
        return tensors[argument[1]]
    return [_given(item, tensors) for item in argument] if type(argument) is list else argument


def _flat(result: Any) -> list[Tensor]:
    results = result if isinstance(result, tuple | list) else [result]
    return [t for t in results if isinstance(t, Tensor)]
