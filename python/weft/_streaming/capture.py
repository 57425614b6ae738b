"""A model over time as a step program with its constants and its initial state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import trees
from weft._base.errors import FailedError, UnsupportedError
from weft._base.torch_private import pytree
from weft._capture import record, trace
from weft._capture.runs import Function
from weft._capture.traced import Traced

Time = int | None | Sequence[int | None]


#: Operations that the pass knows, and whose decomposition it would not know again.
WHOLE = frozenset({"aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default"})


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
    spec: pytree.TreeSpec  #: of the result

    @property
    def examples(self) -> list[Tensor]:
        """The tensors among the example's arguments."""
        return [leaf for leaf in self.arguments if isinstance(leaf, Tensor)]

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """What the model returns, its tensors being these."""
        left = iter(tensors)
        return trees.unflatten([next(left) if c is None else c[0] for c in self.results], self.spec)


def streaming_model(
    model: Callable[..., Any], example: tuple[Any, ...], *, time: Time = 1, delay: int = 0, what: str = "weft.stream"
) -> StreamingModel:
    """The model as a step. `what` begins messages.

    Raises what weft.stream does.
    """
    leaves, spec = trees.flatten((example, {}))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    dims = _time_dims(tensors, time, what)
    steps = _steps(tensors, dims, what)

    def flat(args: Any, kwargs: Any) -> tuple[list[Tensor], Any]:
        results, results_spec = trees.flatten(model(*args, **kwargs))
        constants = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in results]
        return [leaf for leaf in results if isinstance(leaf, Tensor)], (results_spec, constants)

    def dynamic(i: int, _: Tensor) -> tuple[int, ...]:
        dim = dims[i]
        return () if dim is None else (dim,)

    given = _resized(leaves, dims, max(steps, 2))
    function = Function(flat, given, spec, f"{what}: the model", (model,), dynamic, dynamic, whole=WHOLE)
    with torch.no_grad():
        try:
            traced = _traced(function, dims, max(steps, 2))
            if traced.noise:
                raise UnsupportedError("it draws random numbers: call its eval() before")
            streamed = _C.stream(_with_symbol(traced, dims), dims, delay)
        except FailedError as failure:
            raise RuntimeError(f"{what}: the model failed: {failure.__cause__}") from failure.__cause__
        except UnsupportedError as error:
            place = record.place_of(function, error.operation) if error.operation is not None else ""
            raise RuntimeError(f"{what}: {error} {place}".rstrip()) from error
        derived = torch.ops.weft.call(streamed.start.text, traced.captured)
    results_spec, results = traced.extra
    count = len(streamed.states)
    return StreamingModel(
        streamed.step,
        [(traced.captured if is_weight else derived)[i].detach() for is_weight, i in streamed.constants],
        derived[:count],
        streamed.states,
        streamed.chunk,
        [Port(*port) for port in streamed.inputs],
        [Port(*port) for port in streamed.outputs],
        leaves,
        spec,
        results,
        results_spec,
    )


def _time_dims(tensors: Sequence[Tensor], time: Time, what: str) -> list[int | None]:
    """The dim of each tensor's time, counted from the front."""
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
    return steps.pop()


def _resized(leaves: Sequence[Any], dims: Sequence[int | None], steps: int) -> list[Any]:
    """The leaves with so many steps: of tensors without values, at which a capture doesn't look."""
    each = iter(dims)
    resized = []
    for leaf in leaves:
        dim = next(each) if isinstance(leaf, Tensor) else None
        if dim is not None and leaf.shape[dim] != steps:
            leaf = leaf.new_empty([steps if i == dim else size for i, size in enumerate(leaf.shape)])
        resized.append(leaf)
    return resized


def _traced(function: Function, dims: Sequence[int | None], steps: int) -> Traced:
    run = record.record(function)
    # A tensor from outside with as many rows as there are steps would be taken for one that has one a step.
    factor = 1
    while any(t.dim() > 0 and t.shape[0] == steps * factor for t in run.recording.outside):
        factor += 1
    if factor > 1:
        function.leaves = _resized(function.leaves, dims, steps * factor)
        run = record.record(function)
    return trace.of_run(function, run)[0]


def _with_symbol(traced: Traced, dims: Sequence[int | None]) -> _C.Program:
    """The program for any number of steps. One of a loop over them in Python has to be rolled up first."""
    is_for_any = all(isinstance(traced.sizes[i][dim], str) for i, dim in enumerate(dims) if dim is not None)
    return traced.program if is_for_any else _C.run_passes(traced.program, ["roll", "symbolic_lengths"])
