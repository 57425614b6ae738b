"""Models over time as steps to be packaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from weft._base import trees
from weft._packages.steps import WHAT, Step
from weft._streaming.capture import StreamingModel, Time, streaming_model
from weft._streaming.check import check_against_whole
from weft._streaming.stream import Stream


def step_of_model(model: Callable[..., Any], example: Any, time: Time, delay: int) -> Step:
    """A model over time as weft.stream's step: each call computes a chunk of steps. `example`: the model's argument, or
    a tuple of arguments.

    Raises the errors of weft.stream.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    made = streaming_model(model, arguments, time=time, delay=delay, what=WHAT)
    check_against_whole(model, made, lambda: Stream(made).run)
    outputs = trees.paths("y", made.structured([0] * len(made.outputs)))
    is_tensor = [constant is None for constant in made.results]
    return Step(
        made.step,
        _named(made.states, made.initial),
        _named(_argument_names(arguments), _of_a_chunk(made)),
        made.constants,
        [name for name, kept in zip(outputs, is_tensor, strict=True) if kept],
        chunk=made.chunk,
        lags=[port.lag for port in made.outputs],
    )


def _argument_names(arguments: tuple[Any, ...]) -> list[str]:
    """Names for the tensors among the arguments; those of a single argument are "x" with their path in it."""
    named = [
        (path, leaf)
        for i, each in enumerate(arguments)
        for path, leaf in zip(
            trees.paths("x" if len(arguments) == 1 else f"x{i}", each), trees.flatten(each)[0], strict=True
        )
    ]
    return [path for path, leaf in named if isinstance(leaf, Tensor)]


def _of_a_chunk(made: StreamingModel) -> list[Tensor]:
    """The example of each input, with as many steps as a call takes."""
    return [
        example
        if port.time is None
        else example.new_zeros([port.per_chunk if i == port.time else n for i, n in enumerate(example.shape)])
        for example, port in zip(made.examples, made.inputs, strict=True)
    ]


def _named(names: list[str], tensors: list[Tensor]) -> dict[str, Tensor]:
    """The values by name; a name that occurs again gets a number."""
    named: dict[str, Tensor] = {}
    for name, tensor in zip(names, tensors, strict=True):
        number = 2
        unique = name
        while unique in named:
            unique, number = f"{name}_{number}", number + 1
        named[unique] = tensor
    return named
