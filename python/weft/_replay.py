"""The program of a recorded run: its operations once more, on small tensors with numbers in them, under the tracer."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _free_numbers, _record, _recorder
from weft._aten import UnsupportedError
from weft._operations import Meta
from weft._record import Function, Run
from weft._trace import Tracer, lock, numbers
from weft._trace_symbols import MismatchError, Symbols
from weft._trace_writer import Run as TracedRun
from weft._trace_writer import Traced


def trace(function: Function, run: Run, free: Sequence[int] = ()) -> tuple[Traced, _C.Template]:
    """The program of the run, for all sizes for which the function does the same, and what it does for those.

    `free`: numbers, by their word in the record, that are inputs of the program: they come after the tensors from
    outside, as double[]. So do those that differ from run to run by themselves.

    Raises UnsupportedError for what a program can't express.
    """
    with lock:
        return _Replayer(function, run, free).replay()


class _Replayer(Tracer):
    def __init__(self, function: Function, run: Run, free: Sequence[int]) -> None:
        examples = [_example(leaf, function.first_dims.get(i)) for i, leaf in enumerate(function.leaves)]
        super().__init__(function.fn, examples, function.spec, function.what, function.dynamic)
        self.function, self.at_hand, self.free = function, run, list(free)
        self.recorded: dict[int, Run] = {}
        self.captured: list[Tensor] = []
        self.template: _C.Template | None = None

    def replay(self) -> tuple[Traced, _C.Template]:
        for symbols in self._choices():
            try:
                self._record(symbols)
                with _recorder.alone(), torch.autocast("cpu", enabled=False):
                    traced = self._trace(symbols)
                assert self.template is not None
                return traced, self.template
            except Exception:
                if not symbols.keys:
                    raise
        raise AssertionError

    def _record(self, symbols: Symbols) -> None:
        """The function at the sizes of all runs; what it does must be the same in all."""
        self.recorded = {symbols.runs()[-1]: self.at_hand}
        if not symbols.keys:
            self.template = _C.Template(self.at_hand.recording, self.at_hand.recording, [])
        else:
            with _randomness_kept():
                self.recorded |= {index: self._record_at(symbols, index) for index in (0, 1)}
            first, second = (self.recorded[index].recording for index in (0, 1))
            self.template = _C.Template(first, second, symbols.primes())
            if any(self.recorded[index].extra != self.at_hand.extra for index in (0, 1)):
                raise MismatchError
        if self.template is None:
            raise MismatchError
        for word in self.free:
            self.template.free_number(word)
        if not self.template.matches(self.at_hand.recording):
            raise MismatchError
        free = self.template.free_numbers(self.at_hand.recording)
        self.captured = [*self.at_hand.recording.outside, *map(torch.tensor, free)]

    def _record_at(self, symbols: Symbols, index: int) -> Run:
        def sizes(leaf: int, _: Tensor) -> list[int]:
            tensor = self.tensors[leaf]
            return [
                symbols.size(key, index) if key in symbols.keys else int(size)
                for key, size in zip(self._keys(tensor), tensor.shape, strict=True)
            ]

        substitutes = [(key.hint, symbols.size(key, index)) for key in symbols.keys]
        return _record.record(self.function, sizes, substitutes)

    # ---- a run

    def _run(self, symbols: Symbols, index: int, *, functional: bool) -> TracedRun:
        run = self.recorded[index]
        assert self.template is not None
        recorder = _recorder.Recorder()
        inputs = [self._stand_in(t, symbols, index, captured=False).contiguous() for t in self.tensors]
        metas = [Meta.of(tensor) for tensor in inputs]
        for tensor in inputs:
            recorder.add(tensor)
        captured = [_captured(t, s) for t, s in zip(run.recording.outside, run.recording.outside_sizes, strict=True)]
        captured += [torch.tensor(n, dtype=torch.float64) for n in self.template.free_numbers(run.recording)]
        for tensor in captured:
            recorder.add_fixed(tensor)
        fn = functools.partial(_operations, run, self.template.free)
        try:
            with recorder:
                outputs = (_functional if functional else _plain)(fn, inputs, captured)
                outputs = [_own(recorder, leaf) for leaf in outputs]
        except _recorder.NeedsFunctionalError:
            if functional:
                raise _recorder.MutatesCapturedError(f"{self.what} changes a captured tensor in place") from None
            raise
        except _recorder.CannotDrawError as error:
            raise UnsupportedError(f"{error}: random numbers that can't be drawn ahead") from None
        except _recorder.ShapeFromValuesError as error:
            raise UnsupportedError(f"{error}: the shape of its result depends on values") from None
        except _recorder.ReadsValueError:
            raise UnsupportedError("an operation that looks at values") from None
        lift = _Captures(self.captured, captured)
        return TracedRun(recorder, lift, metas, outputs, pytree.treespec_leaf())

    def _find_leaks(self, symbols: Symbols, runs: list[TracedRun]) -> None:
        """The user's function isn't run here; of its own run the recording tells."""


class _Captures:
    """The tensors from outside, and what stood for them in a run."""

    def __init__(self, captured: list[Tensor], stand_ins: list[Tensor]) -> None:
        self.captured, self.stand_ins = captured, stand_ins


def _plain(fn: Callable[..., list[Tensor]], inputs: list[Tensor], captured: list[Tensor]) -> list[Tensor]:
    return fn(inputs, captured)


def _functional(fn: Callable[..., list[Tensor]], inputs: list[Tensor], captured: list[Tensor]) -> list[Tensor]:
    """Without changes in place: those of the function's own tensors become new tensors."""
    return torch.func.functionalize(fn, remove="mutations")(inputs, captured)


def _own(recorder: _recorder.Recorder, tensor: Tensor) -> Tensor:
    if not recorder.owns(tensor):
        raise UnsupportedError("a result that comes from no operation known to PyTorch's dispatcher")
    return tensor


def _operations(run: Run, free: list[int], inputs: list[Tensor], captured: list[Tensor]) -> list[Tensor]:
    """What the run did, on other tensors."""
    values = dict(enumerate(inputs))
    outside = len(run.recording.outside)
    taken: set[int] = set()

    def given(argument: Any) -> Any:
        if type(argument) is tuple:
            kind, number, *_ = argument
            if kind == "value":
                return values[number] if number >= 0 else captured[-1 - number]
            taken.add(number)
            return _free_numbers.Free(captured[outside + number])
        return [given(item) for item in argument] if type(argument) is list else argument

    for name, arguments, grad_mode, results, payload in run.recording.operations(free):
        arguments = [given(argument) for argument in arguments]
        if name is None:
            found: Any = run.payloads[payload](*arguments)
        else:
            with torch.set_grad_enabled(grad_mode):
                found = _free_numbers.call(operator_of(*name), arguments)
        for number, tensor in zip(results, _tensors(found), strict=False):
            if number >= 0:
                values[number] = tensor
    if len(taken) < len(free):  # within the derivative of a torch.autograd.Function: it would stay what it is now
        raise UnsupportedError("a number that differs from call to call, in a derivative")
    return [given(("value", number)) for number in run.recording.outputs]


def _tensors(result: Any) -> Iterator[Any]:
    for item in result if isinstance(result, tuple | list) else [result]:
        if isinstance(item, tuple | list):
            yield from item
        else:
            yield item


@functools.cache
def operator_of(name: str, overload: str) -> Any:
    space, base = name.split("::")
    return getattr(getattr(getattr(torch.ops, space), base), overload)


# ---- tensors


def _example(leaf: Any, first_dim: int | None) -> Any:
    """Of one step what the function is given of all steps."""
    if not isinstance(leaf, Tensor) or not first_dim:
        return leaf
    with _recorder.alone():
        return leaf.detach()[0] if _recorder.is_plain(leaf) else numbers(list(leaf.shape[1:]), leaf.dtype)


def _captured(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    result = tensor.detach() if _recorder.is_plain(tensor) else numbers(list(sizes), tensor.dtype)
    for dim, size in enumerate(sizes):
        if size != result.shape[dim]:
            result = result.index_select(dim, torch.arange(size) % result.shape[dim])
    if result.is_inference():
        result = result.clone()
    return result.requires_grad_() if tensor.requires_grad else result


@contextmanager
def _randomness_kept() -> Iterator[None]:
    """Python's and NumPy's random numbers go on as if nothing within had drawn any."""
    numpy = sys.modules.get("numpy")
    state, other = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(other)
