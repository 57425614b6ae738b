"""What the runs of a trace have recorded, as a program: what they have alike is in it as it is, what differs as a
symbol's primes do is that symbol."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _recorder
from weft._aten import DTYPES, UnsupportedError
from weft._operations import Draw, Meta, Operation, OwnDerivative, Ref, references
from weft._recorder import Recorder
from weft._trace_symbols import HINT, MismatchError, Symbols

_CHECK_ERRORS = torch.ops.aten._linalg_check_errors.default


@dataclasses.dataclass(frozen=True)
class Noise:
    """Random numbers that the program takes as an input."""

    draw: Draw
    dtype: torch.dtype
    sizes: list[tuple[int, list[tuple[int, int]]]]  #: a factor times the sizes of (input, dim)s

    def shape(self, shapes: Sequence[Sequence[Any]]) -> list[Any]:
        """Its shape, with the shapes of the program's inputs being these."""
        shape = []
        for factor, dims in self.sizes:
            size: Any = factor
            for leaf, dim in dims:
                size = size * shapes[leaf][dim]
            shape.append(size)
        return shape


@dataclasses.dataclass(frozen=True)
class Traced:
    """A program whose inputs are the arguments' tensor leaves, in order, then `noise`, then `captured`."""

    program: str
    noise: list[Noise]
    captured: list[Tensor]  #: outside tensors that the function reads
    outputs: pytree.TreeSpec  #: the structure of what it returned, whose leaves are the program's outputs
    constants: int  #: how many of `captured`, at its end, are tensors of numbers that the function itself made
    sizes: list[list[int | str]]  #: of each argument and captured tensor, by dim: a number, or the name of a symbol


@dataclasses.dataclass
class Run:
    recorder: Recorder
    lift: _recorder.Lift
    inputs: list[Meta]  #: numbered from 0 on
    outputs: list[Tensor]
    spec: pytree.TreeSpec


class Writer:
    """Writes what the runs have recorded as a program."""

    def __init__(self, symbols: Symbols, runs: list[Run]) -> None:
        self.symbols = symbols
        self.first, self.second = runs[0], runs[min(1, len(runs) - 1)]
        self.third = runs[HINT] if len(runs) > HINT else None
        self.region = _C.Region()
        self.values: dict[int, _C.Value] = {}
        self.names: dict[int, str] = {}  #: of symbols, in order of appearance, so that equal programs print alike
        self.binders: dict[int, tuple[int, int]] = {}
        self.noise: list[Noise] = []
        self.constants: list[Tensor] = []

    def write(self) -> Traced:
        operations = self._matched()
        if self.third is not None:
            self._bear_out(self.third)
        inputs = list(zip(self.first.inputs, self.second.inputs, strict=True))
        captured = list(zip(self.first.lift.stand_ins, self.second.lift.stand_ins, strict=True))
        for i, (a, b) in enumerate(inputs):
            for dim, (_, symbols) in enumerate(self._sizes(a, b)):
                if symbols:
                    self.binders.setdefault(symbols[0], (i, dim))
            self._input(i, a, b)
        for op, other in operations:
            if isinstance(op.target, Draw):
                self._add_noise(op, other)
        for a, b in captured:
            self._input(self.first.recorder.number(a), a, b)
        for op, other in operations:
            if op.target == "constant":
                self._add_constant(op, other)
        for op, other in operations:
            if not isinstance(op.target, Draw) and op.target != "constant":
                self._operation(op, other)
        outputs = [self.values[self.first.recorder.number(leaf)] for leaf in self.first.outputs]
        sizes = [
            [self.names[symbols[0]] if symbols else n for n, symbols in self._sizes(a, b)] for a, b in inputs + captured
        ]
        sizes += [list(tensor.shape) for tensor in self.constants]
        program = self.region.finish(outputs)
        tensors = self.first.lift.captured + self.constants
        return Traced(program, self.noise, tensors, self.first.spec, len(self.constants), sizes)

    def _matched(self) -> list[tuple[Operation, Operation]]:
        """Operations of both runs that something reads."""
        one, two = self.first.recorder.operations, self.second.recorder.operations
        same_outputs = [self.first.recorder.number(t) for t in self.first.outputs] == [
            self.second.recorder.number(t) for t in self.second.outputs
        ]
        if len(one) != len(two) or not same_outputs or self.first.spec != self.second.spec:
            raise MismatchError
        if [id(t) for t in self.first.lift.captured] != [id(t) for t in self.second.lift.captured]:
            raise MismatchError
        needed = {self.first.recorder.number(leaf) for leaf in self.first.outputs}
        kept = []
        for op, other in zip(reversed(one), reversed(two), strict=True):
            if op.target != other.target or op.numbers != other.numbers or op.stops_gradient != other.stops_gradient:
                raise MismatchError
            if isinstance(op.target, Draw) or not needed.isdisjoint(op.numbers):
                kept.append((op, other))
                needed.update(references(op.arguments))
        return kept[::-1]

    def _bear_out(self, third: Run) -> None:
        """Raises unless the run with the sizes at hand came to the shapes that the other two say."""
        one, two, real = (run.recorder.operations for run in (self.first, self.second, third))
        if len(one) != len(real):
            raise MismatchError
        for a, b, c in zip(one, two, real, strict=True):
            if a.target != c.target:
                raise MismatchError
            for x, y, z in zip(a.metas, b.metas, c.metas, strict=True):
                if [self.symbols.at_hand(size) for size in self._sizes(x, y)] != list(z.shape):
                    raise MismatchError

    # ---- types

    def _sizes(self, a: Tensor | Meta, b: Tensor | Meta) -> list[tuple[int, list[int]]]:
        if len(a.shape) != len(b.shape) or a.dtype != b.dtype:
            raise MismatchError
        return [self.symbols.of(x, y) for x, y in zip(a.shape, b.shape, strict=True)]

    def _type(self, a: Tensor | Meta, b: Tensor | Meta) -> _C.Type:
        if a.dtype not in DTYPES:
            raise UnsupportedError(f"a tensor of {a.dtype}")
        sizes = [
            (factor, [self.names.setdefault(i, f"N{len(self.names)}") for i in symbols])
            for factor, symbols in self._sizes(a, b)
        ]
        return _C.Type(DTYPES[a.dtype], sizes)

    # ---- inputs

    def _input(self, number: int | None, a: Tensor | Meta, b: Tensor | Meta) -> None:
        assert number is not None
        self.values[number] = self.region.input(self._type(a, b))

    def _add_noise(self, op: Operation, other: Operation) -> None:
        sizes = [
            (factor, [self.binders[i] for i in symbols]) for factor, symbols in self._sizes(op.metas[0], other.metas[0])
        ]
        self._input(op.numbers[0], op.metas[0], other.metas[0])
        self.noise.append(Noise(op.target, op.metas[0].dtype, sizes))

    def _add_constant(self, op: Operation, other: Operation) -> None:
        tensor = op.results[0]
        if tensor.shape != other.results[0].shape or not torch.equal(tensor, other.results[0]):
            raise MismatchError
        self.constants.append(tensor.detach().clone())
        self._input(op.numbers[0], tensor, tensor)

    # ---- operations

    def _operation(self, op: Operation, other: Operation) -> None:
        arguments = [self._argument(a, b) for a, b in zip(op.arguments, other.arguments, strict=True)]
        if isinstance(op.target, str) and op.target != "weft.stop_gradient":
            results = self.region.inline_program(op.target, arguments)
        elif isinstance(op.target, OwnDerivative):
            n = op.target.inputs
            results = self.region.custom_vjp(op.target.vjp, arguments[:n], arguments[n:])
        else:
            results = self._aten(op, other, arguments)
        for number, value, a, b in zip(op.numbers, results, op.metas, other.metas, strict=True):
            if op.stops_gradient and a.dtype.is_floating_point:
                value = self._import("weft.stop_gradient", [value], self._type(a, b))
            self.values[number] = value

    def _aten(self, op: Operation, other: Operation, arguments: list[Any]) -> list[_C.Value]:
        if len(op.results) == 1:
            try:
                return [self._import(str(op.target), arguments, self._type(op.metas[0], other.metas[0]))]
            except UnsupportedError:
                if isinstance(op.target, str):
                    raise
        return self._external(op, other)

    def _external(self, op: Operation, other: Operation) -> list[_C.Value]:
        """What the IR has no op for: PyTorch does it, where the program comes to it."""
        from weft import _extern

        one, two = self.first.recorder, self.second.recorder
        found = _extern.external(op, other, one.tensors(), two.tensors(), self.symbols.of, self._is_checked(op))
        types = [self._type(a, b) for a, b in zip(op.metas, other.metas, strict=True)]
        return self.region.external(found.call, found.vjp, [self.values[n] for n in found.operands], types)

    def _is_checked(self, op: Operation) -> bool:
        """Whether the function raises an error where the operation says that it has failed: nothing else reads that."""
        checks = (o for o in self.first.recorder.operations if o.target is _CHECK_ERRORS)
        return any(not set(references(check.arguments)).isdisjoint(op.numbers) for check in checks)

    def _import(self, name: str, arguments: list[Any], type_: _C.Type) -> _C.Value:
        try:
            return self.region.aten(name, arguments, type_)
        except RuntimeError as error:
            if "weft internal error" in str(error):
                raise
            raise UnsupportedError(str(error).split("\n")[0]) from None

    def _argument(self, a: Any, b: Any) -> Any:
        """An argument as capture::Argument."""
        if isinstance(a, Ref):
            if a != b:
                raise MismatchError
            return self.values[a.number]
        if type(a) is not type(b):
            raise MismatchError
        if a is None or isinstance(a, bool | float | str):
            if a != b and a == a:
                raise MismatchError
            return a
        if isinstance(a, int):
            factor, symbols = self.symbols.of(a, b)
            return _C.Unknown() if symbols else factor
        if isinstance(a, list | tuple):
            if len(a) != len(b):
                raise MismatchError
            items = [self._argument(x, y) for x, y in zip(a, b, strict=True)]
            if all(type(item) is int for item in items) or all(
                item is None or isinstance(item, _C.Value) for item in items
            ):
                return items
        return _C.Unknown()
