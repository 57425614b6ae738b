"""weft.stream of loops in Python that write each step's result into a tensor made before."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stream_models import MODELS
from test_streaming import compare
from torch import Tensor, nn

import weft

H = 4
W = torch.randn(H, H, generator=torch.Generator().manual_seed(0)) * 0.4


def advance(h: Tensor, xt: Tensor) -> Tensor:
    return torch.tanh(h @ W.to(h.dtype) + xt)


def start(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape[0], H)


def empty(x: Tensor) -> Tensor:
    h, y = start(x), torch.empty(x.shape[0], x.shape[1], H, dtype=x.dtype)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t] = h
    return y


def before_the_update(x: Tensor) -> Tensor:
    h, y = start(x), torch.zeros_like(x)
    for t, xt in enumerate(x.unbind(1)):
        y[:, t, :] = h * xt
        h = advance(h, xt)
    return y


def copied(x: Tensor) -> Tensor:
    h, y = start(x), x.clone()
    for t in range(x.shape[1]):
        h = advance(h, y[:, t])
        y[:, t] = h
    return y


def changed(x: Tensor) -> Tensor:
    """Each row is changed twice, in whole and in part."""
    h, y = start(x), x.clone()
    for t in range(x.shape[1]):
        h = advance(h, y[:, t])
        y[:, t].mul_(h)
        y[:, t, :2] += 1
    return y


def scattered(x: Tensor) -> Tensor:
    h, y = start(x), x.new_zeros(x.shape)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y = y.select_scatter(h, 1, t)
    return y


def slices(x: Tensor) -> Tensor:
    h, y = start(x), x.new_empty(x.shape[0], x.shape[1], H + 1)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t : t + 1] = torch.cat([h, h[:, :1]], 1).unsqueeze(1)
    return y


def halves(x: Tensor) -> Tensor:
    """Parts of a row, one after the other."""
    h, y = start(x), x.new_zeros(x.shape)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t, :2] = h[:, 2:]
        y[:, t, 2:] = h[:, :2] * 2
    return y


def several(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    h, y, z = start(x), x.new_empty(x.shape), x.new_empty(x.shape[0], x.shape[1])
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t], z[:, t] = h, h.sum(1)
    return y, z, y * z[..., None]


def read_again(x: Tensor) -> Tensor:
    """A second loop, over what the first has written."""
    h, y, z = start(x), x.new_empty(x.shape), x.new_empty(x.shape)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t] = h
    for t in range(x.shape[1]):
        h = advance(h, y[:, t]) if t > 0 else y[:, t]
        z[:, t] = h
    return z


def last_dim(x: Tensor) -> Tensor:
    h, y = start(x), x.new_empty(x.shape[0], H, x.shape[1])
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[..., t] = h
    return y.transpose(1, 2)


def shifted(x: Tensor) -> Tensor:
    """A row longer than the sequence, whose first row stays as it was."""
    y = torch.ones(x.shape[0], x.shape[1] + 1, H, dtype=x.dtype)
    h = start(x)
    for t in range(x.shape[1]):
        h = advance(h, x[:, t])
        y[:, t + 1] = h
    return y[:, :-1]


def recursive(x: Tensor) -> Tensor:
    """A step reads what the step before has written."""
    y = torch.zeros(x.shape[0], x.shape[1] + 1, H, dtype=x.dtype)
    for t in range(x.shape[1]):
        y[:, t + 1] = advance(y[:, t], x[:, t])
    return y[:, 1:]


def far_back(x: Tensor) -> Tensor:
    """Three rows of what was written before, one of them by itself."""
    y = torch.zeros(x.shape[0], x.shape[1] + 3, H, dtype=x.dtype)
    for t in range(x.shape[1]):
        y[:, t + 3] = torch.sin(y[:, t : t + 3].sum(1) @ W.to(x.dtype)) + x[:, t] - y[:, t + 1]
    return y[:, 3:]


def no_columns(x: Tensor) -> Tensor:
    y = x.new_empty(x.shape[0], x.shape[1])
    total = x.new_zeros(x.shape[0])
    for t in range(x.shape[1]):
        total = torch.sin(total * 0.9 + x[:, t].sum(-1))
        y[:, t] = total
    return y


FUNCTIONS = [
    empty,
    before_the_update,
    copied,
    changed,
    scattered,
    slices,
    halves,
    several,
    read_again,
    last_dim,
    shifted,
    recursive,
    far_back,
    no_columns,
]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("model", FUNCTIONS)
def test_functions(model: Callable[[Tensor], Any], rows: int) -> None:
    torch.manual_seed(0)
    stream = compare(model, torch.randn(rows, 17, H, dtype=torch.float64), 1)
    assert all(output.lag == 0 for output in stream.outputs)
    compare(model, torch.randn(rows, 12, H), 1)


@pytest.mark.parametrize("steps", [1, 2, 8])
@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("model", [empty, copied])
def test_lengths_of_the_example(model: Callable[[Tensor], Tensor], rows: int, steps: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, 21, H)
    stream = weft.stream(model, x[:, :steps])
    found = torch.cat([stream.run(x[:, :1]), stream.run(x[:, 1:14]), stream.run(x[:, 14:])], 1)
    torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell])
def test_time_first_with_cells(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    cell, out = kind(H, H), nn.Linear(H, 2)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        zeros = x.new_zeros(x.shape[1], H)
        state: Any = (zeros, zeros) if kind is nn.LSTMCell else zeros
        y, hs = torch.empty(x.shape[0], x.shape[1], 2), torch.zeros(x.shape[0], x.shape[1], H)
        for t, xt in enumerate(x):
            y[t] = out(state[0] if kind is nn.LSTMCell else state)
            state = cell(xt, state)
            hs[t] = state[0] if kind is nn.LSTMCell else state
        return y, hs

    x = torch.randn(15, 2, H)
    compare(model, x, 0)
    folder = weft.package(model, x, tmp_path / "model", time=0, targets="x86-64-v3")
    package = weft.load(folder / "libmodel.so")
    found = [torch.cat(each) for each in zip(*(package.step(x[t : t + 1]) for t in range(15)), strict=True)]
    with torch.no_grad():
        torch.testing.assert_close(tuple(found), model(x), rtol=1e-5, atol=1e-5)


def test_a_state_that_is_changed_in_place() -> None:
    """A tensor that each step reads as a whole is a state, not a result."""

    def model(x: Tensor) -> Tensor:
        state, ys = x.new_zeros(x.shape[0], 3), []
        for t in range(x.shape[1]):
            state[:, 0] = x[:, t, 0] + 0.5 * state.sum(1)
            state[:, 1:] = torch.tanh(state[:, :2] + x[:, t, 1:3])
            ys.append(state.prod(1))
        return torch.stack(ys, 1)

    torch.manual_seed(0)
    compare(model, torch.randn(2, 16, H), 1)


@pytest.mark.parametrize("seed", range(MODELS // 4))
def test_random_writes(seed: int) -> None:
    """Several tensors, written in whole rows or parts, before or behind the update, read again or not."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    writes = [
        (rng.choice(["row", "parts", "add", "mul"]), rng.random() < 0.5, rng.random() < 0.5, rng.choice([0, 1, 2]))
        for _ in range(rng.randint(1, 3))
    ]

    def write(y: Tensor, way: str, value: Tensor, t: int) -> None:
        if way == "row":
            y[:, t] = value
        elif way == "parts":
            y[:, t, 1:] = value[:, 1:]
            y[:, t, 0] = value.sum(1)
        elif way == "add":
            y[:, t] += value
        else:
            y[:, t].mul_(value)

    def model(x: Tensor) -> list[Tensor]:
        h, steps = start(x), x.shape[1]
        made = [
            torch.cat([x.clone(), x.new_ones(x.shape[0], back, H)], 1)
            if is_copy
            else x.new_zeros(x.shape[0], steps + back, H)
            for _, _, is_copy, back in writes
        ]
        for t in range(steps):
            values = [h * y[:, t] for y in made]
            for is_before in (True, False):
                for (way, before, _, back), y, value in zip(writes, made, values, strict=True):
                    if before == is_before:
                        write(y, way, torch.sin(h + value), t + back)
                if is_before:
                    h = advance(h, x[:, t])
        return [
            y[:, back:] for (_, _, is_copy, back), y in zip(writes, made, strict=True) if back == 0 or not is_copy
        ] + [h]

    compare(model, torch.randn(2, 18, H), 1, seed=seed)
