"""A function of tensors as a program for all sizes of the dims that may differ: the function is run once on tensors
without data.

If some sizes are symbols it is run twice, each time with other numbers in their place. A size that is equal in both
runs is a number in the program; a size that differs as a symbol's numbers do is that symbol, or an expression of
symbols (pytorch/record/size_fit.h). A function that looks at its sizes and does something else for some of them gives
two records that don't match, and is traced for the sizes at hand.

Expressions such as `T+1` are guesses, which three runs bear out. Guesses are made only for callers that compare the
guessed sizes with the record of each call (`programs`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import fork
from weft._base.dtypes import DTYPES
from weft._base.errors import FailedError, ReadsValueError, SideEffectError, UnrecordableError, UnsupportedError
from weft._base.torch_private import is_fake, is_functional, pytree
from weft._capture import decompositions, extern_derivatives, modes, record
from weft._capture.runs import Function, Run, Shown
from weft._capture.traced import Noise, Traced

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
    has_pairs: bool = False,
) -> Traced:
    """The program of `fn(*arguments)`.

    Arguments may be of FakeTensorMode and of torch.func's transforms. `dynamic` says for each tensor leaf which dims
    may be symbols (by default the leading one); of a fake tensor's dims those are that are SymInts. SymInts may be
    arguments too, and are numbers to the function. `follow` gives the shapes of the last tensor leaves, which follow
    from those of the first. `has_pairs`: the program may take and give complex tensors, as pairs (complex_numbers.py).

    Leaves of the result must be tensors or numbers. Raises UnsupportedError for what a program can't express,
    SideEffectError for what it mustn't do, and whatever the function itself raises.
    """
    leaves, spec = pytree.tree_flatten(tuple(arguments))

    def flat(*given: Any) -> tuple[list[Tensor], pytree.TreeSpec]:
        results, results_spec = pytree.tree_flatten(fn(*given))
        return [leaf if isinstance(leaf, Tensor) else torch.full((), leaf) for leaf in results], results_spec

    return of_function(Function(flat, leaves, spec, what, has_pairs=has_pairs, dynamic=dynamic, follow=follow))


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
    """A function that _C.generalise runs again at other sizes."""

    def __init__(self, function: Function, at_hand: Run | None, free: Sequence[int]) -> None:
        self.function, self.at_hand, self.free = function, at_hand, list(free)
        self.found: tuple[Traced, _C.Template]
        self.shapes = [
            list(leaf.shape[function.first_dims.get(i, 0) :])
            for i, leaf in enumerate(function.leaves)
            if isinstance(leaf, Tensor)
        ]
        self.tensors = [leaf for leaf in function.leaves if isinstance(leaf, Tensor)]
        for tensor in self.tensors:
            _check_supported(tensor, function.has_pairs)

    def trace(self) -> tuple[Traced, _C.Template]:
        function, wider = self.function, self.function.wider
        dims = self._dims_by(function.dynamic)
        more_dims = self._dims_by(function.more_dynamic) if function.more_dynamic is not None else dims
        sizes = [[_outer_keys(size) or int(size) for size in shape] for shape in self.shapes]
        _C.generalise(
            list(zip(sizes, dims, more_dims, strict=True)),
            function.more_dynamic is not None,
            self.at_hand is not None,
            wider.sizes if wider is not None else [],
            wider.widening if wider is not None else None,
            list(function.samples),
            function.follow,
            self._attempt,
            self._does_same,
        )
        return self.found

    def _dims_by(self, dynamic: Callable[[int, Tensor], Sequence[int]]) -> list[list[int]]:
        pairs = enumerate(zip(self.tensors, self.shapes, strict=True))
        return [_dims(dynamic, i, tensor, shape) for i, (tensor, shape) in pairs]

    def _attempt(self, sizes: _C.SizeAttempt, is_beyond: bool) -> _C.Outcome:
        try:
            self.found = traced, template = self._trace(sizes)
            if not is_beyond:
                return _C.Outcome.MADE
            # Weights of a constant size have kernels of their own.
            if self.function.proof is None or self.function.proof(template):
                return _C.Outcome.UNWANTED if _C.has_symbolic_weights(traced.program) else _C.Outcome.MADE
        except (ReadsValueError, SideEffectError):
            raise
        except Exception as error:
            if sizes.is_fixed and not is_beyond:
                raise _own_error(error) from None
        return _C.Outcome.FAILED

    def _does_same(self, sizes: _C.SizeAttempt) -> bool:
        try:
            with record.randomness_kept():
                runs = [self._run(sizes, index) for index in sizes.runs]
            template = self._template(runs, sizes.fit())
            return self.function.proof is None or self.function.proof(template)
        except (ReadsValueError, SideEffectError):
            raise
        except Exception:  # at sizes that the user did not ask for
            return False

    # ---- sizes

    def _number(self, number: Any, sizes: _C.SizeAttempt, index: int) -> Any:
        """The run's number for an outer trace's size; any other value unchanged."""
        if not isinstance(number, torch.SymInt):
            return number
        values = {symbol: sizes.outer(key, index) for symbol, key in _outer(number).items()}
        if None in values.values():
            raise UnsupportedError(f"the size {number}, which is known only at run time")
        return int(number.node.expr.subs(values))

    def _leaf_sizes(self, leaf: int, sizes: _C.SizeAttempt, index: int) -> list[int]:
        pairs = zip(sizes.sizes(leaf, index), self.shapes[leaf], strict=True)
        return [self._number(size, sizes, index) if number is None else number for number, size in pairs]

    def _captured_sizes(self, tensor: Tensor, sizes: _C.SizeAttempt, index: int) -> list[int] | None:
        """The sizes of a stand-in for a tensor from outside; None if the tensor needs no stand-in. The leading size is
        a symbol if an equal size of an argument is one; weights keep their sizes."""
        shape, is_plain = list(tensor.shape), modes.is_plain(tensor)
        is_weight = isinstance(tensor, torch.nn.Parameter)
        if is_plain and (index == sizes.AT_HAND or sizes.is_fixed or is_weight):
            return None
        if self.at_hand is not None and not is_plain and not modes.is_transformed(tensor):
            return None  # the recording says what is wrong with the tensor
        _check_supported(tensor, self.function.has_pairs)
        shown = [int(self._number(size, sizes, index)) for size in shape]
        if shape and not is_weight and not is_fake(tensor) and not isinstance(shape[0], torch.SymInt):
            shown[0] = sizes.alike(shape[0], index)
        return None if is_plain and shown == shape else shown

    def _captured(self, sizes: _C.SizeAttempt, index: int) -> Callable[[Tensor], list[int] | None] | None:
        """`_captured_sizes`, if it has a stand-in for a tensor that this run has read."""

        def shown(tensor: Tensor) -> list[int] | None:
            return self._captured_sizes(tensor, sizes, index)

        if self.at_hand is None or self.at_hand.transformed or modes.in_forward_mode():
            return shown
        return shown if any(shown(tensor) is not None for tensor in self.at_hand.recording.outside) else None

    # ---- runs

    def _trace(self, sizes: _C.SizeAttempt) -> tuple[Traced, _C.Template]:
        with record.randomness_kept() if self.at_hand is not None and not sizes.is_fixed else contextlib.nullcontext():
            runs = [self._run(sizes, index) for index in sizes.runs]
        fit = sizes.fit()
        template = self._template(runs, fit)
        real = self.at_hand or runs[-1]
        free = template.free_numbers(real.recording)
        with modes.alone(), torch.autocast("cpu", enabled=False):
            derivative: Any = functools.partial(extern_derivatives.derivative, trace)
            if not self.function.has_gradient:
                derivative = _no_derivative
            program, noise, constants, sizes_of_inputs = _C.program_of_runs(
                [run.recording for run in runs],
                list(template.free),
                decompositions.decompose,
                [_backward_of(run) for run in runs],
                fit,
                derivative,
                self.function.whole,
                self.function.has_pairs,
                self.function.keeps_unread,
            )
            captured = [*real.recording.outside, *map(torch.tensor, free), *constants]
        for run in runs:
            if run is not self.at_hand:  # the caller checks `at_hand`, whose kept tensors this run may have replaced
                run.backwards.clear()
                record.refuse_leaks(self.function, run, has_own_sizes=self.at_hand is None)
        noise = [Noise(*one) for one in noise]
        return Traced(program, noise, captured, real.extra, len(constants), sizes_of_inputs), template

    def _run(self, sizes: _C.SizeAttempt, index: int) -> Run:
        if self.at_hand is not None and (index == sizes.AT_HAND or sizes.is_fixed):
            return self.at_hand
        shown = Shown(
            [self._leaf_sizes(leaf, sizes, index) for leaf in range(len(self.shapes))],
            lambda number: self._number(number, sizes, index),
            self._captured(sizes, index),
        )
        return record.record(self.function, shown)

    def _template(self, runs: list[Run], fit: _C.SizeFit) -> _C.Template:
        """The template of all runs, which must do the same."""
        if any(run.extra != runs[0].extra for run in runs):
            raise _C.MismatchError("what it does depends on sizes")
        return _C.template_of([run.recording for run in runs], fit, self.free, self.at_hand is not None)


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


def _no_derivative(*_: Any) -> None:
    """The derivative of an `extern` in a program that nobody differentiates."""


def _own_error(error: Exception) -> BaseException:
    """The function's own error, as it was raised."""
    if isinstance(error, FailedError) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, UnrecordableError):
        return UnsupportedError(str(error))
    return error


def _outer(size: torch.SymInt) -> dict[Any, tuple[int | None, str]]:
    """For an outer trace's symbols in the size: their values at hand, if known, and names."""
    values = size.node.shape_env.backed_var_to_val
    symbols = sorted(size.node.expr.free_symbols, key=str)
    return {symbol: (int(values[symbol]) if symbol in values else None, str(symbol)) for symbol in symbols}


def _outer_keys(size: Any) -> list[tuple[int | None, str]] | None:
    return list(_outer(size).values()) if isinstance(size, torch.SymInt) else None


def _dims(
    dynamic: Callable[[int, Tensor], Sequence[int]], index: int, tensor: Tensor, shape: Sequence[Any]
) -> list[int]:
    """The dims of a tensor leaf that may be symbols."""
    if is_fake(tensor) or not all(type(size) is int for size in shape):
        return []
    return [dim for dim in dynamic(index, tensor) if dim < len(shape) and shape[dim] >= 2]


def _check_supported(tensor: Tensor, may_be_complex: bool) -> None:
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"a tensor of layout {tensor.layout}")
    if tensor.device.type not in ("cpu", "weft"):
        raise UnsupportedError(f"a tensor on {tensor.device}")
    if tensor.dtype not in DTYPES and not (may_be_complex and tensor.is_complex()):
        raise UnsupportedError(f"a tensor of {tensor.dtype}")
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_traced(tensor):
        raise UnsupportedError(f"a {type(tensor).__name__}, a subclass of Tensor with operations of its own")


def _is_traced(tensor: Tensor) -> bool:
    """Whether the tensor is of a PyTorch class that stands for tensors during a trace."""
    return is_fake(tensor) or is_functional(tensor)
