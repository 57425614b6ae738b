"""A function of tensors as a program: traced once, for all sizes of the dims that may differ.

The function runs on small tensors of its own (`_recorder`), twice where some sizes are symbols, each time with other
small primes in their place. What both runs have alike is a number of the program; what differs as a symbol's primes do
is that symbol. A function that looks at its sizes and does something else for some of them gives two records that don't
match, and is traced for the sizes at hand.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _own_functions, _recorder, _step_functions
from weft._aten import DTYPES, UnsupportedError
from weft._recorder import Draw, Meta, MutatesCapturedError, Operation, OwnDerivative, Recorder, Ref, SideEffectError

__all__ = ["MutatesCapturedError", "SideEffectError", "Traced", "UnsupportedError", "trace"]

#: One trace at a time: the random numbers that it must leave as they were are the process's.
_lock = threading.RLock()
os.register_at_fork(after_in_child=lambda: _lock._at_fork_reinit())  # type: ignore[attr-defined]

_CHECK_ERRORS = torch.ops.aten._linalg_check_errors.default

# One small and one large, so that what depends on a size in steps (x[:10], n // 8) shows.
_PRIMES = ((3, 37), (5, 41), (7, 43), (11, 47), (13, 53), (17, 59), (19, 61), (23, 67))
LARGEST = 37  #: up to this size a trace has looked whatever the sizes at hand are
_HINT = 2  #: the run with the sizes at hand


class _MismatchError(Exception):
    """Two runs with other sizes did different things."""


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


def trace(
    fn: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    what: str,
    dynamic: Callable[[int, Tensor], Sequence[int]] | None = None,
) -> Traced:
    """The program of `fn(*arguments)`.

    Of plain tensors among the arguments numbers are read too, since the function runs on some of them; of others (of
    FakeTensorMode, of torch.func's transforms) only shape and dtype. `dynamic` says for each tensor leaf which dims may
    be symbols (by default the leading one); of a fake tensor's dims those are that are SymInts. SymInts may be
    arguments too, and are numbers to the function.

    Leaves of the result must be tensors. Raises UnsupportedError for what a program can't express, SideEffectError for
    what it mustn't do, and whatever the function itself raises.
    """
    leaves, spec = pytree.tree_flatten(tuple(arguments))
    tracer = _Tracer(fn, leaves, spec, what, dynamic or (lambda _, tensor: (0,)))
    with _lock, _recorder.alone(), _own_functions.traced():
        return tracer.trace()


@dataclasses.dataclass
class _Run:
    recorder: Recorder
    lift: _recorder.Lift
    inputs: list[Meta]  #: numbered from 0 on
    outputs: list[Tensor]
    spec: pytree.TreeSpec


@dataclasses.dataclass(frozen=True)
class _Key:
    """What a size that may be a symbol is told from others by."""

    hint: int | None
    symbol: str = ""  #: an outer trace's


class _Symbols:
    """Which sizes are symbols: those of equal size are one, and have a prime in each run."""

    def __init__(self, keys: Sequence[_Key]) -> None:
        self.keys = list(keys)[: len(_PRIMES)]

    def size(self, key: _Key, run: int) -> int:
        if run == _HINT:
            assert key.hint is not None
            return key.hint
        return _PRIMES[self.keys.index(key)][run]

    def at_hand(self, size: tuple[int, list[int]]) -> int:
        """A factor times symbols, with the sizes at hand."""
        return math.prod([size[0], *(self.size(self.keys[i], _HINT) for i in size[1])])

    def runs(self) -> list[int]:
        """Two runs with other sizes, and one that must bear out what they say of the sizes at hand."""
        if not self.keys:
            return [0]
        return [0, 1] if any(key.hint is None for key in self.keys) else [0, 1, _HINT]

    def hint(self, first: int) -> Any:
        """The size at hand that `first` of the first run stands for."""
        for key, (p, _) in zip(self.keys, _PRIMES, strict=False):
            if first == p:
                return key.hint
        return first

    def of(self, first: int, second: int) -> tuple[int, list[int]]:
        """The factor and the symbols that are `first` in the one run and `second` in the other."""
        if first == second:
            return first, []
        factors = []
        for index, (p, q) in enumerate(_PRIMES[: len(self.keys)]):
            while first and first % p == 0 and second % q == 0 and first != second:
                first, second = first // p, second // q
                factors.append(index)
        if first != second:
            raise _MismatchError
        return first, factors


class _Tracer:
    def __init__(
        self,
        fn: Callable[..., Any],
        leaves: list[Any],
        spec: pytree.TreeSpec,
        what: str,
        dynamic: Callable[[int, Tensor], Sequence[int]],
    ) -> None:
        self.fn, self.leaves, self.spec, self.what = fn, leaves, spec, what
        self.by_hint = False
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for tensor in self.tensors:
            _check_supported(tensor)
        self.dynamic = {id(t): tuple(dynamic(i, t)) for i, t in enumerate(self.tensors)}

    def trace(self) -> Traced:
        for symbols in self._choices():
            try:
                return self._trace(symbols)
            except (_step_functions.ReadsValueError, SideEffectError) as error:
                raise self._explained(error) from None
            except Exception:
                if not symbols.keys:
                    raise
        raise AssertionError

    def _choices(self) -> Iterator[_Symbols]:
        """All sizes that may be symbols, then with equal ones the same, then one less, then none."""
        keys = self._all_keys()
        if len({key.hint for key in keys}) < len(keys):
            yield _Symbols(keys)
            self.by_hint = True
            keys = self._all_keys()
        yield _Symbols(keys)
        if len(keys) > 1:
            for left_out in keys:
                yield _Symbols([key for key in keys if key != left_out])
        if keys:
            yield _Symbols([])

    def _all_keys(self) -> list[_Key]:
        keys: dict[_Key, None] = {}
        for tensor in self.tensors:
            for size, key in zip(tensor.shape, self._keys(tensor), strict=True):
                if isinstance(size, torch.SymInt):
                    keys.update((key, None) for key in self._outer_keys(size).values())
                elif key is not None:
                    keys[key] = None
        return list(keys)

    def _outer_keys(self, size: torch.SymInt) -> dict[Any, _Key]:
        """Of an outer trace's symbols in `size`, by symbol."""
        hints = size.node.shape_env.backed_var_to_val
        symbols = sorted(size.node.expr.free_symbols, key=str)
        return {s: _Key(int(hints[s]) if s in hints else None, "" if self.by_hint else str(s)) for s in symbols}

    def _number(self, number: Any, symbols: _Symbols, run: int) -> Any:
        """What the run has for an outer trace's size; anything else is what it is."""
        if not isinstance(number, torch.SymInt):
            return number
        sizes = {}
        for symbol, key in self._outer_keys(number).items():
            sizes[symbol] = symbols.size(key, run) if key in symbols.keys else key.hint
            if sizes[symbol] is None:
                raise UnsupportedError(f"the size {number}, which is known only when it runs")
        return int(number.node.expr.subs(sizes))

    def _keys(self, tensor: Tensor) -> list[_Key | None]:
        """For each dim what its symbol is known by; None where its size is a number, or an outer trace's."""
        keys: list[_Key | None] = []
        plain = all(type(size) is int for size in tensor.shape) and not _is_fake(tensor)
        dims = self.dynamic.get(id(tensor))
        for dim, size in enumerate(tensor.shape):
            if plain and dims is not None and dim in dims and size >= 2:
                keys.append(_Key(int(size)))
            else:
                keys.append(None)
        if plain and dims is None and not isinstance(tensor, torch.nn.Parameter) and tensor.dim() > 0:
            keys[0] = _Key(int(tensor.shape[0]))  # of a captured one: a symbol if an argument's is
        return keys

    # ---- one run

    def _trace(self, symbols: _Symbols) -> Traced:
        try:
            runs = [self._run(symbols, i, functional=False) for i in symbols.runs()]
        except _recorder.NeedsFunctionalError:
            runs = [self._run(symbols, i, functional=True) for i in symbols.runs()]
        traced = _Writer(symbols, runs).write()
        self._find_leaks(symbols, runs)
        return traced

    def _run(self, symbols: _Symbols, index: int, *, functional: bool) -> _Run:
        recorder = Recorder()
        lift = _recorder.Lift(recorder, self.what, lambda t: self._stand_in(t, symbols, index, captured=True))
        inputs = [self._stand_in(t, symbols, index, captured=False) for t in self.tensors]
        metas = [Meta.of(tensor) for tensor in inputs]
        for tensor in inputs:
            recorder.add(tensor)
        given = iter(inputs)
        leaves = [next(given) if isinstance(a, Tensor) else self._number(a, symbols, index) for a in self.leaves]
        arguments = pytree.tree_unflatten(leaves, self.spec)
        fn = _functional(self.fn, lift) if functional else self.fn
        try:
            with recorder, lift:
                leaves, spec = pytree.tree_flatten(fn(*arguments))
                outputs = [lift.lift(leaf) if isinstance(leaf, Tensor) else torch.full((), leaf) for leaf in leaves]
                outputs = [_own(recorder, leaf) for leaf in outputs]
        except _recorder.NeedsFunctionalError:
            if functional:
                raise MutatesCapturedError(f"{self.what} changes a captured tensor in place") from None
            raise
        except _step_functions.CannotDrawError as error:
            raise UnsupportedError(f"{error}: random numbers that can't be drawn ahead") from None
        except _step_functions.ShapeFromValuesError as error:
            raise UnsupportedError(f"{error}: the shape of its result depends on values") from None
        _refuse_own_functions(outputs)
        return _Run(recorder, lift, metas, outputs, spec)

    def _stand_in(self, tensor: Tensor, symbols: _Symbols, run: int, *, captured: bool) -> Tensor:
        _check_supported(tensor)
        sizes = [
            symbols.size(key, run) if key in symbols.keys else int(self._number(size, symbols, run))
            for key, size in zip(self._keys(tensor), tensor.shape, strict=True)
        ]
        if not _recorder.is_plain(tensor) or _is_fake(tensor) or 0 in tensor.shape:
            result = _numbers(sizes, tensor.dtype)
        else:
            result = tensor.detach()
            for dim, size in enumerate(sizes):
                if size != tensor.shape[dim]:
                    result = result.index_select(dim, torch.arange(size) % tensor.shape[dim])
            if result.is_inference() or (not captured and result.data_ptr() == tensor.data_ptr()):
                result = result.clone()
        if not result.is_floating_point() or (captured and not _may_need_gradient(tensor)):
            return result
        result.requires_grad_()
        return result if captured else result.clone()  # no leaf: a step may change its own arguments

    # ---- errors

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, SideEffectError):
            return error
        return RuntimeError(
            f"{self.what} needs the value of a tensor {_place(error)}, as `if` on a tensor, .item() and int() do. It "
            "is captured once for all steps, when there are no values yet: use torch.where to choose between values, "
            "weft.while_loop for a loop, or a Python number from outside"
        )

    def _find_leaks(self, symbols: _Symbols, runs: list[_Run]) -> None:
        """Tensors of the run that somebody keeps: a list that was appended to, an attribute that was set."""
        references: list[weakref.ref[Tensor]] = []
        for run in runs:
            run.outputs, run.lift.stand_ins = [], []
            references += run.recorder.forget()
        if not any(reference() is not None for reference in references):
            return
        gc.collect()
        for reference in references:
            if (tensor := reference()) is not None:
                sizes = [symbols.hint(size) for size in tensor.shape]
                raise SideEffectError(
                    f"{self.what} has a side effect: a {_type_name(tensor.dtype, sizes)} that it computes is kept "
                    "after it returns, as by appending to a list or setting an attribute; return it as part of the "
                    "result instead"
                )


class _Writer:
    """Writes what the runs have recorded as a program."""

    def __init__(self, symbols: _Symbols, runs: list[_Run]) -> None:
        self.symbols = symbols
        self.first, self.second = runs[0], runs[min(1, len(runs) - 1)]
        self.third = runs[_HINT] if len(runs) > _HINT else None
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
            raise _MismatchError
        if [id(t) for t in self.first.lift.captured] != [id(t) for t in self.second.lift.captured]:
            raise _MismatchError
        needed = {self.first.recorder.number(leaf) for leaf in self.first.outputs}
        kept = []
        for op, other in zip(reversed(one), reversed(two), strict=True):
            if op.target != other.target or op.numbers != other.numbers or op.stops_gradient != other.stops_gradient:
                raise _MismatchError
            if isinstance(op.target, Draw) or not needed.isdisjoint(op.numbers):
                kept.append((op, other))
                needed.update(_refs(op.arguments))
        return kept[::-1]

    def _bear_out(self, third: _Run) -> None:
        """Raises unless the run with the sizes at hand came to the shapes that the other two say."""
        one, two, real = (run.recorder.operations for run in (self.first, self.second, third))
        if len(one) != len(real):
            raise _MismatchError
        for a, b, c in zip(one, two, real, strict=True):
            if a.target != c.target:
                raise _MismatchError
            for x, y, z in zip(a.metas, b.metas, c.metas, strict=True):
                if [self.symbols.at_hand(size) for size in self._sizes(x, y)] != list(z.shape):
                    raise _MismatchError

    # ---- types

    def _sizes(self, a: Tensor | Meta, b: Tensor | Meta) -> list[tuple[int, list[int]]]:
        if len(a.shape) != len(b.shape) or a.dtype != b.dtype:
            raise _MismatchError
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
            raise _MismatchError
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
        return any(not set(_refs(check.arguments)).isdisjoint(op.numbers) for check in checks)

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
                raise _MismatchError
            return self.values[a.number]
        if type(a) is not type(b):
            raise _MismatchError
        if a is None or isinstance(a, bool | float | str):
            if a != b and a == a:
                raise _MismatchError
            return a
        if isinstance(a, int):
            factor, symbols = self.symbols.of(a, b)
            return _C.Unknown() if symbols else factor
        if isinstance(a, list | tuple):
            if len(a) != len(b):
                raise _MismatchError
            items = [self._argument(x, y) for x, y in zip(a, b, strict=True)]
            if all(type(item) is int for item in items) or all(
                item is None or isinstance(item, _C.Value) for item in items
            ):
                return items
        return _C.Unknown()


def _refs(argument: Any) -> Iterator[int]:
    if isinstance(argument, Ref):
        yield argument.number
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _refs(item)


def _functional(fn: Callable[..., Any], lift: _recorder.Lift) -> Callable[..., Any]:
    """`fn` without changes in place: those of its own tensors become new tensors."""

    def run(*arguments: Any) -> Any:
        leaves, spec = pytree.tree_flatten(arguments)
        result_spec = None

        def flat(*flat_leaves: Any) -> list[Any]:
            nonlocal result_spec
            lift.functional = True
            results, result_spec = pytree.tree_flatten(fn(*pytree.tree_unflatten(list(flat_leaves), spec)))
            lift.write_back()
            lift.functional = False
            return [lift.lift(r) if isinstance(r, Tensor) else torch.full((), r) for r in results]

        results = torch.func.functionalize(flat, remove="mutations")(*leaves)
        assert result_spec is not None
        return pytree.tree_unflatten(results, result_spec)

    return run


def _own(recorder: Recorder, tensor: Tensor) -> Tensor:
    if not recorder.owns(tensor):
        raise UnsupportedError("a result that comes from no operation known to PyTorch's dispatcher")
    return tensor


def _refuse_own_functions(outputs: list[Tensor]) -> None:
    """A torch.autograd.Function's backward is Python that no operation tells of."""
    stack = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise UnsupportedError(f"the torch.autograd.Function {node.name()}, whose derivative is its own")
        stack += [parent for parent, _ in node.next_functions if parent is not None]


def _may_need_gradient(tensor: Tensor) -> bool:
    return tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _is_fake(tensor: Tensor) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def _check_supported(tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"a tensor of layout {tensor.layout}")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"a tensor on {tensor.device}")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"a tensor of {tensor.dtype}")
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_traced(tensor):
        raise UnsupportedError(f"a {type(tensor).__name__}, a subclass of Tensor with operations of its own")


def _is_traced(tensor: Tensor) -> bool:
    """Whether it is one of PyTorch's own subclasses that stand for tensors while these are traced."""
    functional = sys.modules.get("torch._subclasses.functional_tensor")
    return _is_fake(tensor) or (functional is not None and isinstance(tensor, functional.FunctionalTensor))


def _numbers(sizes: list[int], dtype: torch.dtype) -> Tensor:
    """Some numbers, where there are none to be had."""
    if not dtype.is_floating_point:
        return torch.zeros(sizes, dtype=dtype)
    count = 1
    for size in sizes:
        count *= size
    return torch.linspace(0.1, 0.9, count).sin().reshape(sizes).to(dtype)


def _type_name(dtype: torch.dtype, sizes: Sequence[Any]) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, sizes))}]"


def _place(error: BaseException) -> str:
    """Where in the user's own code an error came from."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "/torch/" not in frame.filename and "/weft/" not in frame.filename:
            return f"({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}: {frame.line})"
    return ""
