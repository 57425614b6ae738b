"""A model over time as a step program with its constants and its initial state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft import _C
from weft._base import trees
from weft._base.errors import FailedError, MutatesCapturedError, UnsupportedError
from weft._base.torch_private import pytree
from weft._capture import record, trace
from weft._capture.complex_numbers import as_pairs, of_pairs
from weft._capture.runs import Function, Run
from weft._capture.traced import Traced

Time = int | None | Sequence[int | None]


Names = frozenset[str]
#: Operations that the streaming pass knows, but not their decompositions: those that always stay whole, and those that
#: stay whole if their decomposition depends on sizes.
WHOLE: tuple[Names, Names] = (
    frozenset(
        f"aten.{name}.default"
        for name in ("max_pool2d_with_indices", "max_pool3d_with_indices", "upsample_nearest1d", "unfold")
    ),
    frozenset(f"aten.{name}.default" for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")),
)

#: Loops in Python of fewer steps are not rolled up.
FEWEST_ROLLED = 8

DIFFERS = "the model does something else for another number of steps"


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of a step."""

    time: (
        int | None
    )  #: the dim of its time; None: it has none, and is the same, or the sequence's so far, in each chunk
    per_chunk: int  #: elements along it
    lag: int  #: of an output: chunk c holds the whole's elements from c * per_chunk - lag on


@dataclasses.dataclass(frozen=True)
class StreamingModel:
    """A model as a step: (states..., inputs..., constants...) -> (next states..., outputs...)."""

    step: _C.Program
    constants: list[Tensor]
    initial: list[Tensor]  #: each state's value before the first step
    states: list[str]  #: a name of each
    chunk: int  #: steps of the inputs that it takes at once
    inputs: list[Port]  #: of the tensors among the arguments
    outputs: list[Port]  #: of the tensors among the results
    arguments: list[Any]  #: the leaves of the example, (args, kwargs)
    argument_spec: pytree.TreeSpec
    results: list[tuple[Any] | None]  #: by leaf of the result: a constant, or None for a tensor
    are_complex: list[bool]  #: by tensor of the result
    spec: pytree.TreeSpec  #: of the result

    @property
    def examples(self) -> list[Tensor]:
        """The tensors among the example's arguments, as the program takes them: complex ones as pairs [..., 2]."""
        return as_pairs([leaf for leaf in self.arguments if isinstance(leaf, Tensor)])

    def has_complex(self) -> bool:
        """Whether an argument or a result is complex."""
        return any(self.are_complex) or any(isinstance(x, Tensor) and x.is_complex() for x in self.arguments)

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The model's result, with the program's results as its leaves."""
        each = zip(tensors, self.are_complex, strict=True)
        return self.structured([of_pairs(tensor) if is_complex else tensor for tensor, is_complex in each])

    def structured(self, leaves: Sequence[Any]) -> Any:
        """The result's structure with these in the place of its tensors."""
        left = iter(leaves)
        return trees.unflatten([next(left) if c is None else c[0] for c in self.results], self.spec)


def streaming_model(
    model: Callable[..., Any],
    example: tuple[Any, ...],
    *,
    time: Time = 1,
    delay: int = 0,
    chunk: int | None = None,
    what: str = "weft.stream",
) -> StreamingModel:
    """The model as a step. Messages begin with `what`.

    Raises the errors of weft.stream.
    """
    check_initialised(model, what)
    for name, number in (("delay", delay), ("chunk", chunk)):
        if not _is_number(number) and (number is not None or name == "delay"):
            raise TypeError(f"{what}: {name} is a number of steps, but is {number!r}")
    leaves, spec = trees.flatten((example, {}))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    whole = _Whole(model, leaves, spec, _time_dims(tensors, time, what), what)
    steps = _steps(tensors, whole.dims, what)
    if chunk is not None and chunk < 1:
        raise ValueError(f"{what}: chunk is a number of steps, but is {chunk}")
    with torch.no_grad():
        try:
            streamed, traced = _streamed(whole, max(steps, 2), delay, chunk or 0)
        except FailedError as failure:
            raise RuntimeError(f"{what}: the model failed: {failure.__cause__}") from failure.__cause__
        except NotImplementedError as error:
            raise RuntimeError(f"{what}: the model can't be captured: {error}") from error
        except MutatesCapturedError as error:
            if not getattr(model, "training", False):
                raise
            said = f"{what}: the model is in training, and changes tensors of its own: call its eval() before ({error})"
            raise MutatesCapturedError(said, error.tensor) from error
        except UnsupportedError as error:
            place = record.place_of(whole.function, error.operation) if error.operation is not None else ""
            raise RuntimeError(f"{what}: {error} {place}".rstrip()) from error
        captured = as_pairs(traced.captured)
        derived = torch.ops.weft.call(streamed.start.text, captured)
    results_spec, results, are_complex = traced.extra
    count = len(streamed.states)
    return StreamingModel(
        streamed.step,
        [(captured if is_weight else derived)[i].detach().clone() for is_weight, i in streamed.constants],
        derived[:count],
        streamed.states,
        streamed.chunk,
        [Port(*port) for port in streamed.inputs],
        [Port(*port) for port in streamed.outputs],
        leaves,
        spec,
        results,
        are_complex,
        results_spec,
    )


def check_initialised(model: Callable[..., Any], what: str) -> None:
    """Raises ValueError if a lazy module among the model's has no parameters yet."""
    if isinstance(model, nn.Module):
        for name, parameter in model.named_parameters():
            if nn.parameter.is_lazy(parameter):
                raise ValueError(f"{what}: {name} of the model has no size yet: call the (lazy) module once before")


def _streamed(whole: _Whole, steps: int, delay: int, chunk: int) -> tuple[_C.Streamed, Traced]:
    """The first capture that the pass can turn into a step. With few groups of steps, a capture may mistake sizes for
    fractions, which then shows as windows that don't fit a chunk."""
    first: tuple[UnsupportedError, Function] | None = None
    for program, traced in whole.programs(steps):
        if traced.noise:
            raise UnsupportedError(
                "the model draws random numbers: give them as an argument (dropout does nothing after eval())"
            )
        try:
            return _C.stream(program, whole.dims, delay, whole.group, chunk), traced
        except UnsupportedError as error:
            first = first or (error, whole.function)
    assert first is not None
    whole.function = first[1]
    raise first[0]


class _Whole:
    """The capture of a model for any number of steps, or any multiple of some."""

    def __init__(
        self, model: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec, dims: list[int | None], what: str
    ) -> None:
        self.model, self.leaves, self.spec, self.dims, self.what = model, leaves, spec, dims, what
        self.group = 1  #: a multiple of so many steps, which are a dim behind the time's
        self.function: Function  #: that was recorded last
        self.gives = True  #: whether results of the last run have elements
        self.proved: _C.Template | None = None  #: the last that _is_proved() bore out

    def programs(self, steps: int) -> Iterator[tuple[_C.Program, Traced]]:
        """Captured programs with a symbol as time dims, and their arguments: of single steps, or of groups of steps,
        small groups first."""
        failed: Exception | None = None
        found = False
        for group in (1, *(group for group in range(2, 257) if steps % group == 0 and steps > group)):
            self.group = group
            try:
                traced = self._traced(steps, WHOLE)
                if self._is_for_any(traced):
                    found = True
                    yield traced.program, traced
                elif group == 1:
                    for made in self._rolled(steps):
                        found = True
                        yield made
            except UnsupportedError as error:
                failed = failed or error
            if found and group == 1:
                return
        if found:
            return
        self.group = 1
        if failed is not None:
            raise failed
        raise UnsupportedError(
            f"{DIFFERS} than the example's {steps}, and no multiple of a few steps is alike. Try an example of ten "
            "times as many steps as the model takes at once. A padding of more than 16384 steps fails with every "
            "example: pad in several layers of at most 16384"
        )

    def _traced(self, steps: int, whole: tuple[Names, Names] | None, *, keeps_unread: bool = False) -> Traced:
        self.function = self._function(steps, whole, keeps_unread)
        run = record.record(self.function)
        # A tensor from outside with as many rows as steps would be mistaken for one that has a row for each step.
        factor = 1
        while any(t.dim() > 0 and t.shape[0] == steps // self.group * factor for t in run.recording.outside):
            factor += 1
        if factor > 1:
            self.function = self._function(steps * factor, whole, keeps_unread)
            run = record.record(self.function)
        traced, template = trace.of_run(self.function, run)
        if self._is_for_any(traced):
            if template.free:
                raise UnsupportedError("a number in it follows from the number of steps, which a stream doesn't know")
            if template is not self.proved and not self._is_proved(template, steps * factor, whole):
                raise UnsupportedError(f"{DIFFERS}: it is found for {steps} steps, and others have another form")
        return traced

    def _is_proved(self, template: _C.Template, steps: int, whole: tuple[Names, Names] | None) -> bool:
        """Whether the model does the same, word for word, for all other numbers of steps for which it works."""
        size, tried = steps // self.group, []
        # Near the example, and far from it: there a wrong divisor of few elements shows.
        for more in (1, 2, 3, 5, 8, size + 1, 3 * size + 4):
            run = self._run((size + more) * self.group, whole)
            if run is None:
                continue
            if not template.matches(run.recording):
                return False
            tried.append((size + more, run.recording))
        if len(tried) < 2 or self._gives_for(_not_from_end(tried[0], tried[-1]), whole):
            return False
        self.proved = template
        return True

    def _run(self, steps: int, whole: tuple[Names, Names] | None) -> Run | None:
        """A recording with so many steps; None if the model raises, as where a table of positions ends."""
        try:
            return record.record(self._function(steps, whole))
        except Exception:
            return None

    def _gives_for(self, most: int, whole: tuple[Names, Names] | None) -> bool:
        """Whether the model gives any elements for some number of groups of steps up to `most`."""
        for count in sorted({1, most // 4, most // 2, most * 3 // 4, most}):
            if 0 < count <= most and self._run(count * self.group, whole) is not None and self.gives:
                return True
        return False

    def _function(self, steps: int, whole: tuple[Names, Names] | None, keeps_unread: bool = False) -> Function:
        def flat(args: Any, kwargs: Any) -> tuple[list[Tensor], Any]:
            if self.group > 1:
                args = self._ungrouped(args)
            results, results_spec = trees.flatten(self.model(*args, **kwargs))
            constants = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in results]
            tensors = [leaf for leaf in results if isinstance(leaf, Tensor)]
            self.gives = any(tensor.numel() > 0 for tensor in tensors)
            return tensors, (results_spec, constants, [tensor.is_complex() for tensor in tensors])

        def dynamic(i: int, _: Tensor) -> tuple[int, ...]:
            dim = self.dims[i]
            return () if dim is None else (dim,)

        size = steps // self.group
        return Function(
            flat,
            self._resized(steps),
            self.spec,
            f"{self.what}: the model",
            (self.model,),
            dynamic,
            dynamic,
            has_gradient=False,
            # Sizes of a division by a small number are told apart by samples of all remainders.
            samples=[(size + a, size + b) for a, b in ((1, 2), (1, 5), (2, 7), (3, 10), (5, 11))],
            proof=lambda template: self._is_proved(template, steps, whole),
            whole=whole,
            has_pairs=True,
            is_alone=True,
            keeps_unread=keeps_unread,
        )

    def _resized(self, steps: int) -> list[Any]:
        """The leaves resized to this number of steps: tensors without values, which a capture doesn't read."""
        each = iter(self.dims)
        resized = []
        for leaf in self.leaves:
            dim = next(each) if isinstance(leaf, Tensor) else None
            if dim is not None:
                sizes = list(leaf.shape)
                sizes[dim : dim + 1] = [steps] if self.group == 1 else [steps // self.group, self.group]
                leaf = leaf.detach() if sizes == list(leaf.shape) else leaf.new_empty(sizes)
            resized.append(leaf)
        return resized

    def _ungrouped(self, args: Any) -> Any:
        """The arguments in the model's own form."""
        leaves, spec = trees.flatten(args)
        each = iter(self.dims)
        for i, leaf in enumerate(leaves):
            dim = next(each) if isinstance(leaf, Tensor) else None
            if dim is not None:
                leaves[i] = leaf.flatten(dim, dim + 1)
        return trees.unflatten(leaves, spec)

    def _is_for_any(self, traced: Traced) -> bool:
        return all(isinstance(traced.sizes[i][dim], str) for i, dim in enumerate(self.dims) if dim is not None)

    def _rolled(self, steps: int) -> Iterator[tuple[_C.Program, Traced]]:
        """For a model with a Python loop over the steps: its programs for any number of them."""
        # What the last step does for a step that doesn't come mostly makes it like the others. But it may be what
        # makes it another one, as a write behind the end.
        for keeps_unread in (True, False):
            if made := self._joined(steps, keeps_unread=keeps_unread):
                yield made

    def _joined(self, steps: int, *, keeps_unread: bool) -> tuple[_C.Program, Traced] | None:
        """The rolled programs for two numbers of steps as one for any, which those for one of the two and for a third
        must give too."""
        first, made = None, []
        steps = max(steps, FEWEST_ROLLED)
        for count in (steps, steps + 5, steps + 12):
            try:
                traced = self._traced(count, None, keeps_unread=keeps_unread)
            except FailedError:
                if count == steps:
                    raise
                return None  # the model itself refuses that many
            rolled, length = _C.run_passes(traced.program, ["roll"]), self._length(traced)
            if first is None:
                if rolled.count("scan") == traced.program.count("scan"):
                    return None
                first = rolled, length, traced
                continue
            joined = _C.any_length(first[0], first[1], rolled, length)
            if joined is None:
                return None
            made.append(joined)
        assert first is not None
        return (made[0], first[2]) if made[0].text == made[1].text else None

    def _length(self, traced: Traced) -> int:
        return next(int(traced.sizes[i][dim]) for i, dim in enumerate(self.dims) if dim is not None)


def _not_from_end(first: tuple[int, _C.StepRecording], last: tuple[int, _C.StepRecording]) -> int:
    """The largest number of steps at which a place that two records count from the end isn't counted so: 3 for
    -(T - 3), which for 3 steps or fewer is a place from the front. 0 if there is no such place."""
    (steps, one), (more, other) = first, last
    pairs = zip(one.words, other.words, strict=True)
    return max((steps + a * (more - steps) // (a - b) for a, b in pairs if b < a < 0), default=0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time_dims(tensors: Sequence[Tensor], time: Time, what: str) -> list[int | None]:
    """The dim of each tensor's time, counted from the front."""
    each = [time] if isinstance(time, str) or not isinstance(time, Sequence) else time
    if not all(dim is None or _is_number(dim) for dim in each):
        raise TypeError(f"{what}: time is a dim's number, or a list of one or None for each tensor, but is {time!r}")
    times = [time] * len(tensors) if isinstance(time, int) or time is None else list(time)
    if len(times) != len(tensors):
        raise ValueError(f"{what}: the example has {len(tensors)} tensors, but time={time!r} is of {len(times)}")
    dims: list[int | None] = []
    for tensor, dim in zip(tensors, times, strict=True):
        if dim is not None and not -tensor.dim() <= dim < tensor.dim():
            raise ValueError(f"{what}: a tensor of the example is {trees.describe(tensor)}, which has no dim {dim}")
        dims.append(None if dim is None else dim % tensor.dim())
    if all(dim is None for dim in dims):
        raise ValueError(f"{what}: no tensor of the example has steps; time= says which dim they are in")
    return dims


def _steps(tensors: Sequence[Tensor], dims: Sequence[int | None], what: str) -> int:
    steps = {tensor.shape[dim] for tensor, dim in zip(tensors, dims, strict=True) if dim is not None}
    if len(steps) > 1:
        raise ValueError(
            f"{what}: the example's tensors have {sorted(steps)} steps along {list(dims)}; they must agree"
        )
    if 0 in steps:
        raise ValueError(f"{what}: the example has no steps: give it one at least")
    return steps.pop()
