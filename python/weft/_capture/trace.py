"""A function of tensors as a program for all sizes of the dims that may differ: the function is run once on tensors
without data.

If some sizes are symbols it is run twice, each time with other numbers in their place. A size that is equal in both
runs is a number in the program; a size that differs as a symbol's numbers do is that symbol, or an expression of
symbols (pytorch/record/size_fit.h). A function that looks at its sizes and does something else for some of them gives
two records that don't match, and is traced for the sizes at hand.

Expressions such as `T+1` are guesses, which three runs bear out. They are made only where somebody compares what they
say of a call's sizes with the call's own record (`programs`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from weft import _C
from weft._base import fork
from weft._base.dtypes import DTYPES
from weft._base.errors import FailedError, ReadsValueError, SideEffectError, UnrecordableError, UnsupportedError
from weft._base.torch_private import is_fake, is_functional, pytree
from weft._capture import decompositions, extern_derivatives, modes, record
from weft._capture.runs import Function, Run, Shown
from weft._capture.symbols import HINT, Key, Symbols
from weft._capture.traced import Noise, Traced

T = TypeVar("T")

#: One trace at a time: Python's random numbers, and the switch that lets PyTorch's decompositions run, belong to the
#: process.
lock = threading.RLock()
fork.hold_across_fork(lock, fork.TRACE)


def trace(
    fn: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    what: str,
    dynamic: Callable[[int, Tensor], Sequence[int]] = lambda _, tensor: (0,),
    follow: Callable[[list[list[int]]], list[list[int]]] | None = None,
) -> Traced:
    """The program of `fn(*arguments)`.

    Arguments may be of FakeTensorMode and of torch.func's transforms. `dynamic` says for each tensor leaf which dims
    may be symbols (by default the leading one); of a fake tensor's dims those are that are SymInts. SymInts may be
    arguments too, and are numbers to the function. `follow` gives the shapes of the last tensor leaves, which follow
    from those of the first.

    Leaves of the result must be tensors or numbers. Raises UnsupportedError for what a program can't express,
    SideEffectError for what it mustn't do, and whatever the function itself raises.
    """
    leaves, spec = pytree.tree_flatten(tuple(arguments))

    def flat(*given: Any) -> tuple[list[Tensor], pytree.TreeSpec]:
        results, results_spec = pytree.tree_flatten(fn(*given))
        return [leaf if isinstance(leaf, Tensor) else torch.full((), leaf) for leaf in results], results_spec

    return of_function(Function(flat, leaves, spec, what, dynamic=dynamic, follow=follow))


def of_function(function: Function) -> Traced:
    """The program of a function that has not been run yet."""
    with lock, modes.alone():
        return _Tracer(function, None, ()).trace()[0]


def of_run(function: Function, run: Run, free: Sequence[int] = ()) -> tuple[Traced, _C.Template]:
    """The program of the run, for all sizes for which the function does the same, and the template of its records at
    these sizes.

    `free`: numbers, by their word in the record, that are inputs of the program: they come after the tensors from
    outside, as double[]. So do those that differ from run to run by themselves.

    Raises UnsupportedError for what a program can't express.
    """
    with lock:
        return _Tracer(function, run, free).trace()


class _Tracer:
    def __init__(self, function: Function, at_hand: Run | None, free: Sequence[int]) -> None:
        self.function, self.at_hand, self.free = function, at_hand, list(free)
        self.by_hint = False
        self.template: _C.Template  #: found last
        self.before: dict[tuple[int, int], int] = {}  #: by tensor leaf and dim: the size in a call before
        #: shapes of all leaves in two runs, where some shapes follow from others
        self.followed: list[list[list[int]]] = []
        self.shapes = [
            list(leaf.shape[function.first_dims.get(i, 0) :])
            for i, leaf in enumerate(function.leaves)
            if isinstance(leaf, Tensor)
        ]
        self.tensors = [leaf for leaf in function.leaves if isinstance(leaf, Tensor)]
        for tensor in self.tensors:
            _check_supported(tensor)
        self.dims = self._dims_by(function.dynamic)

    def _dims_by(self, dynamic: Callable[[int, Tensor], Sequence[int]]) -> list[list[int]]:
        pairs = enumerate(zip(self.tensors, self.shapes, strict=True))
        return [_dims(dynamic, i, tensor, shape) for i, (tensor, shape) in pairs]

    def trace(self) -> tuple[Traced, _C.Template]:
        if self.function.follow is not None:
            return self._trace(self._followed())
        narrow = self.dims
        for way in (self._wider, self._widest):
            found = way()
            # Weights of a constant size have kernels of their own.
            if found is not None and not _C.has_symbolic_weights(found[0].program):
                return found
            if self.before and self.function.wider is not None:
                self.function.wider.widening.failed()
            self.dims, self.before = narrow, {}
        for symbols in self._choices():
            try:
                return self._trace(symbols)
            except (ReadsValueError, SideEffectError):
                raise
            except Exception as error:
                if symbols.keys:
                    continue
                raise _own_error(error) from None
        raise AssertionError

    # ---- sizes

    def _wider(self) -> tuple[Traced, _C.Template] | None:
        """Traces with symbols also for the sizes in which calls before differed."""
        wider = self.function.wider
        if wider is None:
            return None
        self.dims = [
            sorted({*dims, *(dim for input, dim, _ in wider.sizes if input == i)}) for i, dims in enumerate(self.dims)
        ]
        self.before = {(input, dim): before for input, dim, before in wider.sizes}
        sizes_before = {self._key(*place): size for place, size in self.before.items()}
        keys = self._all_keys()
        seen = [(sizes_before.get(key, key.hint), key.hint) for key in keys]
        return self._tried([Symbols(keys, each, guesses=True) for each in _C.sample_choices(seen)], self._trace)

    def _widest(self) -> tuple[Traced, _C.Template] | None:
        """Traces with symbols for all dims that are better symbols where the function allows it."""
        if self.function.more_dynamic is None or self.at_hand is None:
            return None
        self.dims = self._dims_by(self.function.more_dynamic)
        keys = self._all_keys()[: Symbols.MOST]
        choices = _small_and_larger(keys)
        if len(keys) == 1:
            choices += [Symbols(keys, [sample], guesses=True) for sample in self.function.samples]
        if (found := self._tried(choices, self._trace)) is None:
            allowed: list[Key] = []
            for key in keys if len(keys) > 1 else ():
                if self._tried(_small_and_larger([*allowed, key]), self._probe) is not None:
                    allowed.append(key)
            if 0 < len(allowed) < len(keys):
                found = self._tried(_small_and_larger(allowed), self._trace)
        return found

    def _tried(self, choices: Sequence[Symbols], attempt: Callable[[Symbols], T]) -> T | None:
        """The attempt with the first choice of symbols for which the function does the same as at hand."""
        for symbols in choices:
            try:
                found = attempt(symbols)
                if self.function.proof is None or self.function.proof(self.template):
                    return found
            except (ReadsValueError, SideEffectError):
                raise
            except Exception:  # for sizes that the user did not ask for
                continue
        return None

    def _probe(self, symbols: Symbols) -> _C.Template:
        with record.randomness_kept():
            runs = [self._run(symbols, index) for index in symbols.runs()]
        self.template = self._template(runs, self._fit(symbols))
        return self.template

    def _key(self, i: int, dim: int) -> Key:
        before = self.before.get((i, dim))
        return Key(int(self.shapes[i][dim]), "" if before is None else f"was {before}")

    def _followed(self) -> Symbols:
        """Symbols for the first leaves' sizes, and for sizes of the last leaves that don't follow from them."""
        follow = self.function.follow
        assert follow is not None
        count = len(self.shapes) - len(follow([list(shape) for shape in self.shapes]))
        first = zip(self.shapes[:count], self.dims[:count], strict=True)
        keys = {Key(int(shape[dim])) for shape, dims in first for dim in dims}
        symbols = Symbols.larger([key for key in self._all_keys() if key in keys], guesses=False)
        given = [[self._leaf_sizes(leaf, symbols, i) for leaf in range(count)] for i in range(2)]
        self.followed = [[*sizes, *follow(sizes)] for sizes in given]
        known = {(*sample, key.hint) for key, sample in zip(symbols.keys, symbols.samples, strict=True)}
        for i in range(count, len(self.shapes)):
            for dim in self.dims[i]:
                sample = (self.followed[0][i][dim], self.followed[1][i][dim])
                hint = int(self.shapes[i][dim])
                if sample[0] != sample[1] and (*sample, hint) not in known:
                    known.add((*sample, hint))
                    symbols.add(Key(hint, f"of leaf {i}, dim {dim}"), sample)
        return symbols

    def _choices(self) -> Iterator[Symbols]:
        """What may be a symbol, tried in this order: all sizes; equal sizes as one symbol; all but one of these;
        none."""
        keys = self._all_keys()
        if len({key.hint for key in keys}) < len(keys):
            yield Symbols.small(keys, guesses=False)
            self.by_hint = True
            keys = self._all_keys()
        guesses = self.at_hand is not None
        yield Symbols.small(keys, guesses=guesses)
        if len(keys) > 1:
            for left_out in keys:
                yield Symbols.small([key for key in keys if key != left_out], guesses=guesses)
        if keys:
            yield Symbols([], [])

    def _all_keys(self) -> list[Key]:
        keys: dict[Key, None] = {}
        for i, (shape, dims) in enumerate(zip(self.shapes, self.dims, strict=True)):
            for dim, size in enumerate(shape):
                if isinstance(size, torch.SymInt):
                    keys.update((key, None) for key in self._outer_keys(size).values())
                elif dim in dims:
                    keys[self._key(i, dim)] = None
        return list(keys)

    def _own_keys(self, size: Any) -> list[Key]:
        """The possible keys of a size that belongs to no outer trace: the key of equal sizes, and keys of sizes that
        differed before."""
        if isinstance(size, torch.SymInt):
            return []
        keys = [self._key(*place) for place in self.before]
        return [Key(int(size)), *(key for key in keys if key.hint == size)]

    def _outer_keys(self, size: torch.SymInt) -> dict[Any, Key]:
        """The keys of an outer trace's symbols in `size`, by symbol."""
        hints = size.node.shape_env.backed_var_to_val
        symbols = sorted(size.node.expr.free_symbols, key=str)
        return {s: Key(int(hints[s]) if s in hints else None, "" if self.by_hint else str(s)) for s in symbols}

    def _number(self, number: Any, symbols: Symbols, index: int) -> Any:
        """The run's number for an outer trace's size; any other value unchanged."""
        if not isinstance(number, torch.SymInt):
            return number
        sizes = {}
        for symbol, key in self._outer_keys(number).items():
            sizes[symbol] = symbols.size(key, index) if key in symbols.keys else key.hint
            if sizes[symbol] is None:
                raise UnsupportedError(f"the size {number}, which is known only at run time")
        return int(number.node.expr.subs(sizes))

    def _leaf_sizes(self, leaf: int, symbols: Symbols, index: int) -> list[int]:
        return [
            symbols.size(key, index)
            if not isinstance(size, torch.SymInt)
            and dim in self.dims[leaf]
            and (key := self._key(leaf, dim)) in symbols.keys
            else int(self._number(size, symbols, index))
            for dim, size in enumerate(self.shapes[leaf])
        ]

    def _captured_sizes(self, tensor: Tensor, symbols: Symbols, index: int) -> list[int] | None:
        """The sizes of a stand-in for a tensor from outside; None: itself. Its leading size is a symbol if an
        argument's equal size is; weights keep their sizes."""
        shape, is_plain = list(tensor.shape), modes.is_plain(tensor)
        if is_plain and (index == HINT or not symbols.keys or isinstance(tensor, torch.nn.Parameter)):
            return None
        if self.at_hand is not None and not is_plain and not modes.is_transformed(tensor):
            return None  # the recording says what is wrong with the tensor
        _check_supported(tensor)
        sizes = [int(self._number(size, symbols, index)) for size in shape]
        if shape and not isinstance(tensor, torch.nn.Parameter) and not is_fake(tensor):
            alike = [key for key in self._own_keys(shape[0]) if key in symbols.keys]
            sizes[0] = symbols.size(alike[0], index) if alike else sizes[0]
        return None if is_plain and sizes == shape else sizes

    def _captured(self, symbols: Symbols, index: int) -> Callable[[Tensor], list[int] | None] | None:
        """`_captured_sizes`, if it has a stand-in for a tensor that this run has read."""

        def sizes(tensor: Tensor) -> list[int] | None:
            return self._captured_sizes(tensor, symbols, index)

        if self.at_hand is None or self.at_hand.transformed or modes.in_forward_mode():
            return sizes
        return sizes if any(sizes(tensor) is not None for tensor in self.at_hand.recording.outside) else None

    # ---- runs

    def _trace(self, symbols: Symbols) -> tuple[Traced, _C.Template]:
        indices = symbols.runs()
        with record.randomness_kept() if self.at_hand is not None and symbols.keys else contextlib.nullcontext():
            runs = [self._run(symbols, index) for index in indices]
        sizes_of_runs = self._fit(symbols)
        template = self.template = self._template(runs, sizes_of_runs)
        real = self.at_hand or runs[-1]
        free = template.free_numbers(real.recording)
        with modes.alone(), torch.autocast("cpu", enabled=False):
            derivative: Any = functools.partial(extern_derivatives.derivative, trace)
            if not self.function.has_gradient:
                derivative = _no_derivative
            program, noise, constants, sizes = _C.program_of_runs(
                [run.recording for run in runs],
                list(template.free),
                decompositions.decompose,
                [_backward_of(run) for run in runs],
                sizes_of_runs,
                derivative,
                self.function.whole,
            )
            captured = [*real.recording.outside, *map(torch.tensor, free), *constants]
        for run in runs:
            if run is not self.at_hand:  # the caller checks `at_hand`, whose kept tensors this run may have replaced
                run.backwards.clear()
                record.refuse_leaks(self.function, run, has_own_sizes=self.at_hand is None)
        traced = Traced(program, [Noise(*one) for one in noise], captured, real.extra, len(constants), sizes)
        return traced, template

    def _run(self, symbols: Symbols, index: int) -> Run:
        if self.at_hand is not None and (index == HINT or not symbols.keys):
            return self.at_hand
        followed = self.followed[index] if self.followed and index != HINT else None
        shown = Shown(
            followed or [self._leaf_sizes(leaf, symbols, index) for leaf in range(len(self.shapes))],
            lambda number: self._number(number, symbols, index),
            self._captured(symbols, index),
        )
        return record.record(self.function, shown)

    @staticmethod
    def _fit(symbols: Symbols) -> _C.SizeFit:
        return _C.SizeFit(symbols.samples, symbols.at_hand(), symbols.guesses)

    def _template(self, runs: list[Run], sizes: _C.SizeFit) -> _C.Template:
        """The template of all runs, which must do the same."""
        first, second = runs[0].recording, runs[min(1, len(runs) - 1)].recording
        third = runs[HINT].recording if len(runs) > HINT else None
        template = _C.Template(first, second, third, sizes)
        if template is None or any(run.extra != runs[0].extra for run in runs):
            raise _C.MismatchError("what it does depends on sizes")
        if self.at_hand is None and template.free:
            # there is no run at hand whose numbers would be asked for again
            raise _C.MismatchError("numbers in it depend on sizes")
        for word in self.free:
            template.free_number(word)
        if not template.matches(runs[-1].recording):
            raise _C.MismatchError("what it does depends on sizes")
        return template


def _backward_of(run: Run) -> Callable[[int, list[Tensor]], _C.Program]:
    """The program of a torch.autograd.Function's backward, by the Function's index in the run and tensors like its
    inputs and differentiable outputs: (inputs..., differentiable outputs..., their cotangents...) -> cotangents of the
    floating inputs. The program contains the forward again; the parts of it that the backward doesn't need fall
    away."""

    def program(which: int, like: list[Tensor]) -> _C.Program:
        backward = run.backwards[which]
        traced, template = of_run(backward.function(like), backward.run)
        if traced.noise or template.free or traced.constants:
            raise UnsupportedError(f"{backward.what}, which draws random numbers or has constants of its own")
        return traced.program

    return program


def _small_and_larger(keys: Sequence[Key]) -> list[Symbols]:
    return [make(keys, guesses=True) for make in (Symbols.small, Symbols.larger)]


def _no_derivative(*_: Any) -> None:
    """The derivative of an `extern` in a program that nobody differentiates."""


def _own_error(error: Exception) -> BaseException:
    """The function's own error, as it was raised."""
    if isinstance(error, FailedError) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, UnrecordableError):
        return UnsupportedError(str(error))
    return error


def _dims(
    dynamic: Callable[[int, Tensor], Sequence[int]], index: int, tensor: Tensor, shape: Sequence[Any]
) -> list[int]:
    """The dims of a tensor leaf that may be symbols."""
    if is_fake(tensor) or not all(type(size) is int for size in shape):
        return []
    return [dim for dim in dynamic(index, tensor) if dim < len(shape) and shape[dim] >= 2]


def _check_supported(tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"a tensor of layout {tensor.layout}")
    if tensor.device.type not in ("cpu", "weft"):
        raise UnsupportedError(f"a tensor on {tensor.device}")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"a tensor of {tensor.dtype}")
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_traced(tensor):
        raise UnsupportedError(f"a {type(tensor).__name__}, a subclass of Tensor with operations of its own")


def _is_traced(tensor: Tensor) -> bool:
    """Whether the tensor is of a PyTorch class that stands for tensors during a trace."""
    return is_fake(tensor) or is_functional(tensor)
