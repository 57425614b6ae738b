"""Operations that the IR doesn't have, as `extern` ops: PyTorch runs them from inside the program.

The derivative of such an operation is found as everybody finds it, by asking autograd: the operation and its backward
are traced into a program of their own, which the op brings along. That program may hold extern ops again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _trace
from weft._aten import DTYPES, UnsupportedError
from weft._operations import Operation, Ref, references

#: A size of both runs as a factor times symbols.
SizeOf = Callable[[int, int], tuple[int, list[int]]]

_WORDS: dict[Any, str] = {
    torch.strided: "strided",
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
} | DTYPES

_MOST_DERIVATIVES = 2  #: how often an op can be differentiated: the derivative's derivative has none

_nesting = 0  # guarded by the lock of _trace
_derivatives: dict[tuple[Any, ...], str] = {}


@dataclasses.dataclass(frozen=True)
class External:
    call: str  #: the operator and its arguments, as ops.def says
    vjp: str  #: the derivative's program, empty where there is none
    operands: list[int]  #: the recorder's numbers of the tensors


class _Tensors:
    """The tensors of two runs by the recorder's numbers."""

    def __init__(self, first: Sequence[Tensor], second: Sequence[Tensor], size_of: SizeOf) -> None:
        self.first, self.second, self.size_of = first, second, size_of

    def sizes(self, number: int) -> list[tuple[int, list[int]]]:
        a, b = self.first[number].shape, self.second[number].shape
        return [self.size_of(x, y) for x, y in zip(a, b, strict=True)]


def external(
    op: Operation, other: Operation, first: Sequence[Tensor], second: Sequence[Tensor], size_of: SizeOf, checks: bool
) -> External:
    """The operation, which `other` is in the second run. `first` and `second` are the tensors of the runs by number.

    `checks`: whether what failed numerically (a singular matrix) is an error, where the operation can make it one.
    Raises UnsupportedError for an argument that can't be written down.
    """
    if checks:
        op, other = _checking(op), _checking(other)
    for parameter, argument in zip(op.target._schema.arguments, op.arguments, strict=True):
        if isinstance(parameter.type, torch.TensorType) and isinstance(argument, bool | int | float):
            raise UnsupportedError(f"{op.target} of a number for a tensor")
    tensors = _Tensors(first, second, size_of)
    operands = list(dict.fromkeys(references(op.arguments)))
    spell = _Speller(tensors, operands)
    call = f"{op.target}({', '.join(spell(a, b) for a, b in zip(op.arguments, other.arguments, strict=True))})"
    vjp = _derivative(call, op, operands, tensors)
    if not vjp and _nesting == 0 and any(result.requires_grad for result in op.results):
        raise UnsupportedError(f"{op.target}: its derivative is not known")
    return External(call, vjp, operands)


def _checking(op: Operation) -> Operation:
    """The operation with its argument check_errors, if it has one, true."""
    names = [parameter.name for parameter in op.target._schema.arguments]
    arguments = [True if name == "check_errors" else a for name, a in zip(names, op.arguments, strict=True)]
    return dataclasses.replace(op, arguments=arguments)


class _Speller:
    def __init__(self, tensors: _Tensors, operands: list[int]) -> None:
        self.tensors, self.operands = tensors, operands

    def __call__(self, a: Any, b: Any) -> str:
        if isinstance(a, Ref):
            return f"%{self.operands.index(a.number)}"
        if isinstance(a, list | tuple):
            return f"[{', '.join(self(x, y) for x, y in zip(a, b, strict=True))}]"
        if isinstance(a, bool):
            return "true" if a else "false"
        if isinstance(a, int):
            return self._size(a, b)
        if a is None or isinstance(a, float):
            return repr(a)
        if isinstance(a, str) and "'" not in a:
            return f"'{a}'"
        if isinstance(a, torch.device) and a.type == "cpu":
            return "cpu"
        try:
            return _WORDS[a]
        except (KeyError, TypeError):
            raise UnsupportedError(f"an argument {a!r} of an operation that PyTorch runs") from None

    def _size(self, a: int, b: int) -> str:
        factor, symbols = self.tensors.size_of(a, b)
        return "*".join(([str(factor)] if factor != 1 or not symbols else []) + [self._place(s) for s in symbols])

    def _place(self, symbol: int) -> str:
        for i, number in enumerate(self.operands):
            for dim, size in enumerate(self.tensors.sizes(number)):
                if size == (1, [symbol]):
                    return f"size({i}, {dim})"
        raise UnsupportedError("a size that no tensor of the operation has")


def _derivative(call: str, op: Operation, operands: list[int], tensors: _Tensors) -> str:
    global _nesting
    if _nesting == _MOST_DERIVATIVES:
        return ""
    sizes = [tensors.sizes(number) for number in operands]
    key = (call, _nesting, str(sizes), tuple(tensors.first[number].dtype for number in operands))
    if key not in _derivatives:
        _nesting += 1
        try:
            _derivatives[key] = _trace_derivative(op, operands, tensors)
        except (RuntimeError, UnsupportedError):
            _derivatives[key] = ""  # PyTorch has none, or one that no program can express
        finally:
            _nesting -= 1
    return _derivatives[key]


def _trace_derivative(op: Operation, operands: list[int], tensors: _Tensors) -> str:
    inputs = [tensors.first[number].detach() for number in operands]
    outputs = [result.detach() for result in op.results]
    cotangents = [torch.ones_like(output) for output in outputs if output.is_floating_point()]
    sizes = [tensors.sizes(number) for number in [*operands, *op.numbers]]
    sizes += [tensors.sizes(number) for number, r in zip(op.numbers, outputs, strict=True) if r.is_floating_point()]

    def dynamic(leaf: int, _: Tensor) -> list[int]:
        return [dim for dim, (_, symbols) in enumerate(sizes[leaf]) if symbols]

    def gradients(inputs: list[Tensor], _: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
        computed = _flat(_call(op, dict(zip(operands, inputs, strict=True))))
        pairs = list(zip([t for t in computed if t.is_floating_point()], cotangents, strict=True))
        pairs = [(t, cotangent) for t, cotangent in pairs if t.requires_grad]
        wanted = [x for x in inputs if x.is_floating_point()]
        if not pairs and any(result.requires_grad for result in op.results):
            raise UnsupportedError("a derivative that functionalisation hides")
        if not pairs:
            return [torch.zeros_like(x) for x in wanted]
        found = torch.autograd.grad(
            [t for t, _ in pairs], wanted, [c for _, c in pairs], create_graph=True, allow_unused=True
        )
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]

    traced = _trace.trace(
        gradients, (inputs, outputs, cotangents), what=f"the derivative of {op.target}", dynamic=dynamic
    )
    of_any_size = [[isinstance(size, str) for size in shape] for shape in traced.sizes[: len(sizes)]]
    if of_any_size != [[bool(symbols) for _, symbols in shape] for shape in sizes]:
        raise UnsupportedError("a derivative for some sizes only")
    if traced.captured or traced.noise:
        raise UnsupportedError("a derivative with numbers of its own")
    return traced.program


def _call(op: Operation, tensors: dict[int, Tensor]) -> Any:
    def fill(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return tensors[argument.number]
        if isinstance(argument, list | tuple):
            return [fill(item) for item in argument]
        return argument

    positional, named = [], {}
    for parameter, argument in zip(op.target._schema.arguments, op.arguments, strict=True):
        if parameter.kwarg_only:
            named[parameter.name] = fill(argument)
        else:
            positional.append(fill(argument))
    return op.target(*positional, **named)


def _flat(result: Any) -> list[Tensor]:
    results = result if isinstance(result, tuple | list) else [result]
    return [t for t in results if isinstance(t, Tensor)]
