"""Loops in the Python of a function given to weft.jit: one program for all lengths, right for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import weft

F64 = torch.float64


class Model(nn.Module):
    """A loop of GRUCells in Python, its results taken from the states by `finish`."""

    def __init__(self, finish: Callable[[list[Tensor]], Tensor], inputs: int = 3, units: int = 6, dim: int = 0) -> None:
        super().__init__()
        self.cell, self.finish, self.dim = nn.GRUCell(inputs, units, dtype=F64), finish, dim

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1 - self.dim], self.cell.hidden_size)
        states = []
        for step in x.unbind(self.dim):
            h = self.cell(step, h)
            states.append(h)
        return self.finish(states)


FINISHES: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "all": torch.stack,
    "batch first": lambda states: torch.stack(states, 1),
    "last": lambda states: states[-1],
    "mean": lambda states: torch.stack(states).mean(0),
    "rows": lambda states: torch.stack(states).flatten(0, 1).tanh(),
    "last two": lambda states: torch.cat([states[-1], states[-2]], 1) if len(states) > 1 else states[-1],
    "by their number": lambda states: torch.stack(states).sum(0) / len(states),
    "every other": lambda states: torch.stack(states[::2]),
    "differences": lambda states: torch.stack(states)[1:] - torch.stack(states)[:-1],
}


def check_one_length(model: Model, compiled: Callable[[Tensor], Tensor], length: int, batch: int) -> None:
    """Results and gradients at this length are the model's."""
    torch.manual_seed(length)
    sizes = [length, batch] if model.dim == 0 else [batch, length]
    x = torch.randn(*sizes, model.cell.input_size, dtype=F64, requires_grad=True)
    got, expected = compiled(x), model(x)
    torch.testing.assert_close(got, expected)
    weights = torch.randn_like(expected)
    inputs = [x, *model.parameters()]
    gradients = torch.autograd.grad((got * weights).sum(), inputs)
    for ours, theirs in zip(gradients, torch.autograd.grad((expected * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("name", FINISHES)
@pytest.mark.parametrize("dim", [0, 1])
def test_any_length_is_right(name: str, dim: int) -> None:
    model = Model(FINISHES[name], dim=dim)
    compiled = weft.jit(model)
    # 6 is the number of units, 18 that of gates, 3 that of features; 8 and 10 are twice and more of others.
    for length, batch in [(7, 4), (5, 4), (6, 4), (3, 3), (18, 4), (1, 4), (2, 1), (8, 8), (10, 2), (9, 1), (7, 5)]:
        check_one_length(model, compiled, length, batch)


@pytest.mark.parametrize("name", ["all", "batch first", "last", "rows"])
def test_another_length_is_the_same_program(name: str) -> None:
    model = Model(FINISHES[name], inputs=2, units=41)
    compiled = weft.jit(model)
    check_one_length(model, compiled, 7, 5)
    before = weft.stats()["compiled"]
    for length in (5, 12, 9):
        check_one_length(model, compiled, length, 5)
    assert weft.stats()["compiled"] == before


def test_what_a_step_does_depends_on_the_length() -> None:
    def run(x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for t in range(len(x)):
            h = torch.tanh(h + x[t] * (0.5 if len(x) % 2 else 2.0))
        return h

    compiled = weft.jit(run)
    for length in (6, 8, 7, 9, 10, 5):
        x = torch.randn(length, 4, dtype=F64)
        torch.testing.assert_close(compiled(x), run(x))


def test_steps_that_a_size_of_the_argument_does_not_say() -> None:
    def run(x: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            x = torch.tanh(x @ x.new_ones(x.shape[1], x.shape[1]) * 0.1 + 1)
        return x

    compiled = weft.jit(run)
    for steps in (5, 4, 6):
        for rows in (4, 5, 6):
            x = torch.randn(rows, 7, dtype=F64)
            torch.testing.assert_close(compiled(x, steps), run(x, steps))
