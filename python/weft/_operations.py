"""What a trace writes down: operations, and the tensors that they take and give by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Ref:
    """A recorded tensor, by its number."""

    number: int


def references(argument: Any) -> Iterator[int]:
    """The numbers of the recorded tensors in an operation's argument."""
    if isinstance(argument, Ref):
        yield argument.number
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from references(item)


@dataclasses.dataclass(frozen=True)
class Draw:
    """A tensor of random numbers: `empty(shape).method_(*arguments)`."""

    method: str  #: bernoulli_, uniform_, normal_, exponential_, random_
    arguments: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class OwnDerivative:
    """Values as they are, but for their derivative."""

    vjp: str  #: the text of a program
    inputs: int  #: how many of the arguments come before the values


@dataclasses.dataclass(frozen=True)
class Meta:
    """What a tensor was when it was recorded; later it may be changed in place, its shape too."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Meta:
        return cls(tuple(tensor.shape), tensor.dtype)


@dataclasses.dataclass
class Operation:
    """What one ATen operation took and gave."""

    target: Any  #: an OpOverload, the text of a program, an OwnDerivative or a Draw
    arguments: list[Any]  #: all, in the schema's order, tensors as Ref
    results: list[Tensor]
    metas: list[Meta]  #: of the results
    numbers: list[int]
    stops_gradient: bool
