"""`weft.stream`: a model over time, fed a few steps at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from weft._base import trees
from weft._capture.complex_numbers import as_pairs
from weft._streaming.capture import Port, StreamingModel, Time, streaming_model
from weft._streaming.check import check_against_whole
from weft._streaming.code import StepCode, step_code


class Stream:
    """A model with its memory of a sequence so far. Made by weft.stream.

    `chunk`: how many steps it takes at once. `outputs`: for each tensor of the result
    the dim of its time, how many elements a chunk gives, and how many elements they lag.
    `target`: the target of `weft.package` whose machine code its steps are, such as "x86-64-v4": a package of the model
    for it gives the same bits. None: the steps are programs of the engine, for the reason that `repr` gives.
    """

    def __init__(self, model: StreamingModel, code: StepCode | None = None) -> None:
        self.model, self._code = model, code or StepCode.engine("it was made without machine code")
        self._types = [example.dtype for example in model.examples]
        chunk, step = [], []  # the shapes of a chunk, and of a step without its dim
        for example, port in zip(model.examples, model.inputs, strict=True):
            sizes = list(example.shape)
            if port.time is not None:
                sizes[port.time] = model.chunk
            chunk.append(torch.Size(sizes))
            step.append(torch.Size(size for dim, size in enumerate(sizes) if dim != port.time))
        #: by whether the time's dim is left out
        self._shapes: dict[bool, list[torch.Size]] = {False: chunk, True: step if model.chunk == 1 else []}
        self._state = self._code.new_state(model)
        self._has_complex = model.has_complex()
        self._is_machine = self._code.machine is not None and not self._has_complex

    @property
    def target(self) -> str | None:
        return self._code.target

    def __repr__(self) -> str:
        example = ", ".join(trees.describe(leaf) for leaf in self.model.arguments if isinstance(leaf, Tensor))
        by = f"machine code for {self.target}" if self.target else f"the engine, since {self._code.reason}"
        return f"<weft stream of {example}, {self.chunk} steps at once, by {by}>"

    @property
    def chunk(self) -> int:
        return self.model.chunk

    @property
    def outputs(self) -> list[Port]:
        return self.model.outputs

    def reset(self) -> None:
        """Before the first step."""
        self._state.set(self.model.initial)

    @property
    def state(self) -> dict[str, Tensor]:
        """The model's memory, by name. It may be kept, saved, and set again."""
        return dict(zip(self.model.states, self._state.get(), strict=True))

    @state.setter
    def state(self, state: Mapping[str, Tensor]) -> None:
        if list(state) != self.model.states:
            raise ValueError(f"weft.stream: the state of this model has {self.model.states}, not {list(state)}")
        for name, tensor, initial in zip(self.model.states, state.values(), self.model.initial, strict=True):
            if trees.describe(tensor) != trees.describe(initial):
                raise ValueError(
                    f"weft.stream: {name} of this model's state is {trees.describe(initial)}, "
                    f"not {trees.describe(tensor)}"
                )
        self._state.set(list(state.values()))

    def __copy__(self) -> Stream:
        """A separate stream that continues from here."""
        copied = Stream(self.model, self._code)
        copied._state.set(self._state.get())
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Stream:
        return self.__copy__()

    def step(self, *inputs: Any) -> Any:
        """One chunk. Where that is one step, the time's dim may be left out, and then results have none either.

        Raises:
            ValueError: the inputs aren't like the example, but for the number of steps.
        """
        if self._is_machine and (found := self._state.step(inputs)) is not None:
            return found if self._state.is_structured else self.model.result(found)
        is_plain = len(inputs) == len(self.model.arguments) and not self._has_complex
        short = self._is_short(inputs) if is_plain else None
        if short is None:
            tensors = self._tensors(inputs)
            short = self._is_short(tuple(tensors))
            if short is None:
                steps = self._steps(tensors)
                raise ValueError(f"weft.stream: a chunk has {self.chunk} steps, not {steps}; run() takes more")
        else:
            tensors = list(inputs)
        shapes = self._shapes[False]
        given = [t.reshape(s) if short else t.contiguous() for t, s in zip(tensors, shapes, strict=True)]
        results = self._state.run_chunk(given)
        if short:
            ports = zip(results, self.model.outputs, strict=True)
            results = [t if p.time is None or p.per_chunk != 1 else t.squeeze(p.time) for t, p in ports]
        return self.model.result(results)

    def _is_short(self, inputs: tuple[Any, ...]) -> bool | None:
        """Whether the tensors are a chunk without the dim of time; None if they are no chunk at all."""
        types = self._types
        if len(inputs) != len(types) or not all(
            isinstance(x, Tensor) and x.dtype == dtype and x.layout == torch.strided
            for x, dtype in zip(inputs, types, strict=True)
        ):
            return None
        shapes = [x.shape for x in inputs]
        if shapes == self._shapes[False]:
            return False
        return True if shapes == self._shapes[True] else None

    def run(self, *inputs: Any) -> Any:
        """The next steps of the sequence, any number of chunks; results as the model gives them for these steps.

        Raises:
            ValueError: the inputs aren't like the example, but for the number of steps, or end within a chunk.
        """
        if self._is_machine and (found := self._state.run(inputs)) is not None:
            return found if self._state.is_structured else self.model.result(found)
        tensors = self._tensors(inputs)
        steps = self._steps(tensors)
        if steps % self.chunk != 0 or steps == 0:
            raise ValueError(
                f"weft.stream: takes {self.chunk} steps at once: the number of steps must be a positive multiple of "
                f"{self.chunk}, not {steps}"
            )
        results = [
            stack[-1] if port.time is None else stack.movedim(0, port.time).flatten(port.time, port.time + 1)
            for stack, port in zip(self._call(tensors, steps // self.chunk), self.model.outputs, strict=True)
        ]
        return self.model.result(results)

    def _tensors(self, inputs: tuple[Any, ...]) -> list[Tensor]:
        leaves, _ = trees.flatten((inputs, {}))
        if len(leaves) != len(self.model.arguments):
            raise ValueError(f"weft.stream: the example has {len(self.model.arguments)} leaves, not {len(leaves)}")
        tensors = []
        for leaf, example in zip(leaves, self.model.arguments, strict=True):
            if isinstance(example, Tensor):
                if not isinstance(leaf, Tensor) or leaf.dtype != example.dtype:
                    raise ValueError(f"weft.stream: takes {trees.describe(example)}, but got {trees.describe(leaf)}")
                if leaf.layout != torch.strided:
                    raise ValueError(f"weft.stream: takes strided tensors, not {leaf.layout}: call to_dense()")
                tensors.append(leaf)
            elif type(leaf) is not type(example) or leaf != example:
                raise ValueError(f"weft.stream: {example!r} is a part of the model, and can't be {leaf!r}")
        return as_pairs(tensors) if self._has_complex else tensors

    def _steps(self, tensors: list[Tensor]) -> int:
        steps = set()
        for tensor, port, example in zip(tensors, self.model.inputs, self.model.examples, strict=True):
            sizes = list(tensor.shape)
            if port.time is not None and len(sizes) == example.dim():
                steps.add(sizes[port.time])
                sizes[port.time] = example.shape[port.time]
            if sizes != list(example.shape):
                raise ValueError(
                    f"weft.stream: takes {trees.describe(example)} with any number of steps in dim {port.time}, "
                    f"but got {trees.describe(tensor)}"
                )
        if len(steps) != 1:
            raise ValueError(f"weft.stream: inputs have {sorted(steps)} steps; they must agree")
        return int(steps.pop())

    def _call(self, inputs: list[Tensor], chunks: int) -> list[Tensor]:
        """Runs the step so many times: for all sizes of chunks, the same code gives the same bits."""
        stacks = [
            (tensor.contiguous(), False) if port.time is None else (_stacked(tensor, port.time, chunks), True)
            for tensor, port in zip(inputs, self.model.inputs, strict=True)
        ]
        results: list[Tensor] = self._state.run_chunks(stacks, chunks)
        return results


def _stacked(tensor: Tensor, time: int, chunks: int) -> Tensor:
    """[.., steps, ..] as [chunks, .., steps of one, ..]."""
    stack: Tensor = tensor.unflatten(time, (chunks, -1)).movedim(time, 0).contiguous()
    return stack


def stream(
    model: nn.Module | Callable[..., Any],
    *example: Any,
    time: Time = 1,
    delay: int = 0,
    chunk: int | None = None,
    check: bool = True,
) -> Stream:
    """A model over a whole sequence as one over its steps, with a state. ::

        model = nn.Sequential(nn.Conv1d(...), ...).eval()
        stream = weft.stream(model, torch.randn(1, 100, 8))
        for x in source:  # [1, 8] a step
            y = stream.step(x)

    `example`: the model's arguments, with any number of steps. The stream is for the sizes of its other dims. `time`:
    the dim that the steps are in, of all tensors among the arguments, or a list with one for each, None for a tensor
    that has no steps: that is given again with each chunk.

    Loops over the steps (GRU, LSTM, weft.scan) go on from their carry; convolutions, pooling, padding and slices
    remember what they still need; running sums go on. Concatenated, what step() and run() give is what the model gives
    for the whole sequence, within rounding. The model is captured as it is now: its weights are constants.

    `delay`: how many steps a result may lag behind the inputs that it needs. Chunk c of an output holds its elements
    from c * per_chunk - lag on (`Stream.outputs`); those of a negative number hold nothing of meaning.

    `chunk`: how many steps to take at once. Without it as few as possible, 1 unless the model has strides; blocks of
    64 are several times as fast a step.

    `check`: the model and the stream are compared on random sequences of several lengths.

    Raises:
        ValueError: the example has no such dims, or no steps; `chunk` is no number of steps.
        RuntimeError: the model needs what a stream doesn't know (the sequence's end, steps to come, a sum over all
            steps): which operation, in which line, and what is possible instead; or it does something else for another
            number of steps, or draws random numbers; `chunk` is no multiple of the model's strides.
    """
    if not callable(model):
        raise TypeError(f"weft.stream: takes a module or a function, not {type(model).__name__}")
    made = streaming_model(model, example, time=time, delay=delay, chunk=chunk)
    code = step_code(made)
    if check:
        check_against_whole(model, made, lambda: Stream(made, code).run)
    return Stream(made, code)
