"""The program of a traced function, with everything needed to call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C


@dataclasses.dataclass(frozen=True)
class Noise:
    """Random numbers that the program takes as an input: `empty(shape).method_(*arguments)`."""

    method: str  #: bernoulli_, uniform_, normal_, exponential_, random_
    arguments: tuple[float, ...]
    dtype: torch.dtype
    sizes: list[tuple[int, list[tuple[int, int]]]]  #: a factor times the sizes of (input, dim)s

    def shape(self, shapes: Sequence[Sequence[Any]]) -> list[Any]:
        """The shape, given the shapes of the program's inputs."""
        shape = []
        for factor, dims in self.sizes:
            size: Any = factor
            for leaf, dim in dims:
                size = size * shapes[leaf][dim]
            shape.append(size)
        return shape

    def draw(self, tensor: Tensor) -> Tensor:
        """Fills the tensor."""
        return getattr(tensor, self.method)(*self.arguments)


@dataclasses.dataclass(frozen=True)
class Traced:
    """A program whose inputs are the arguments' tensor leaves, in order, then `noise`, then `captured`."""

    program: _C.Program
    noise: list[Noise]
    captured: list[Tensor]  #: outside tensors that the function reads; complex ones are no pairs yet
    extra: Any  #: what the function returned beside tensors; from `trace`, the structure of its result
    constants: int  #: how many of `captured`, at its end, are tensors of numbers that an operation itself made
    sizes: list[list[int | str]]  #: of each argument and captured tensor, by dim: a number, or an expression of symbols
