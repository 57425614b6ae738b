"""Steps whose carry has other sizes from call to call, and which depend on these."""

from __future__ import annotations

import random

import pytest
import torch
from oracles import loop
from size_cases import FEATURES, PLACES, PROGRAMS, ROWS, SIZES
from torch import Tensor

import weft
from weft._capture import programs

STEPS = 3
LENGTHS = (17, 43, 9, 31, 60, 10, 25)


def _checked(step, length: int, seed: int, *, gradients: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(ROWS, length, FEATURES, generator=generator, requires_grad=gradients)
    xs = torch.randn(STEPS, ROWS, length, FEATURES, generator=generator, requires_grad=gradients)
    results = []
    for run in (weft.scan, loop):
        last, ys = run(step, h, xs)
        loss = last.tanh().sum() + (ys.tanh().sum() if ys.is_floating_point() else 0)
        results.append((last, ys, *(torch.autograd.grad(loss, [h, xs]) if gradients else ())))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def _step(of):
    """A step whose y is `of(h, its length)`."""

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h + x)
        return h, of(h, h.size(1))

    return step


@pytest.mark.parametrize("place", PLACES)
def test_a_size_is_never_taken_for_another(place):
    """The expressions of a size are ones that can't be distinguished from other expressions by a few sizes."""
    chosen = random.Random(place)
    for size in chosen.sample(list(SIZES), 2):
        step = _step(lambda h, n, size=size: PLACES[place](h, SIZES[size](n)))
        gradients = chosen.random() < 0.3
        for seed, length in enumerate(LENGTHS[:4]):
            _checked(step, length, seed, gradients=gradients)


#: Names in PROGRAMS with an operation that is decomposed in the same way for each size.
ALIKE = (
    "a table's first rows",
    "and columns",
    "last",
    "mean by hand",
    "scaled",
    "by rows",
    "repeat",
    "pad to a length",
    "mask",
    "half",
    "split",
    "roll by half",
)


@pytest.mark.parametrize("name", ALIKE)
def test_one_program_for_all_sizes(name):
    run, table = PROGRAMS[name]
    tables = [] if table is None else [table]
    step = _step(lambda h, n: run(h, n, *tables).sin())
    programs.table.clear()
    for seed, length in enumerate(LENGTHS):
        _checked(step, length, seed, gradients=False)
    assert programs.kept()["programs"] <= 3


def test_weights_keep_their_sizes():
    """Kernels for a constant number of features are faster. So each number of features has a program of its own, and no
    further programs are kept."""
    programs.table.clear()
    for features in (5, 7, 9):
        cell = torch.nn.GRUCell(3, features)

        def step(h, x, cell=cell):
            h = cell(x, h)
            return h, h

        h, xs = torch.randn(ROWS, features), torch.randn(STEPS, ROWS, 3)
        with torch.no_grad():
            torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))
    assert programs.kept()["programs"] == 3
