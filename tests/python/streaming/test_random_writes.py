"""Random loops that write into a tensor made before and read it: under weft.jit with gradients, and as streams."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import weft

SEEDS = int(os.environ.get("WEFT_RANDOM_STREAMS", "12"))
#: Seeds that aren't refused as streams: what is refused is never wrong, so that a refusal of all would go unnoticed.
STREAMS = {2, 6, 10}
F = 3

#: By name: what a step does to the state h and the tensor y at step t; gives the state.
ACTIONS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {}


def action(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    ACTIONS[function.__name__] = function


@action
def sets(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t] = h
    return h


@action
def sets_twice(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t] = h
    y[:, t] = y[:, t] * 1.5
    return h


@action
def sets_a_part(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t, 0] = h[:, 1]
    return h


@action
def sets_the_next(h: Tensor, y: Tensor, t: int) -> Tensor:
    if t + 1 < y.shape[1]:
        y[:, t + 1] = h * 2
    return h


@action
def adds(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t] += h
    return h


@action
def adds_to_two(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t : t + 2] += h[:, None]
    return h


@action
def scales(h: Tensor, y: Tensor, t: int) -> Tensor:
    y[:, t].mul_(0.5)
    return h


@action
def reads_the_last(h: Tensor, y: Tensor, t: int) -> Tensor:
    return h + 0.1 * y[:, t - 1] if t > 0 else h


@action
def reads_a_window(h: Tensor, y: Tensor, t: int) -> Tensor:
    return h + 0.1 * y[:, t - 2 : t].sum(1) if t > 1 else h


@action
def reads_all(h: Tensor, y: Tensor, t: int) -> Tensor:
    return h + 0.01 * y.sum(1)


def program(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    rng = random.Random(seed)
    made = rng.choice(["zeros", "ones", "clone", "longer"])
    names = rng.choices(list(ACTIONS), k=rng.randint(1, 3))
    yields_before, updates_first, lacks_last = rng.random() < 0.4, rng.random() < 0.5, rng.random() < 0.15

    def function(x: Tensor, w: Tensor) -> Tensor:
        rows, steps, _ = x.shape
        y = {
            "zeros": lambda: x.new_zeros(rows, steps, F),
            "ones": lambda: torch.ones_like(x),
            "clone": x.clone,
            "longer": lambda: x.new_zeros(rows, steps + 2, F),
        }[made]()
        h, before = x.new_zeros(rows, F), []
        for t in range(steps):
            before.append(h * 0.5)
            if updates_first:
                h = torch.tanh(x[:, t] @ w + h)
            for name in names:
                h = ACTIONS[name](h, y, t)
            if not updates_first and not (lacks_last and t == steps - 1):
                h = torch.tanh(x[:, t] @ w + h)
        y = y[:, :steps] + 0 * x  # a gradient, whatever was written
        return torch.stack(before, 1) + y if yields_before else y

    function.__doc__ = f"{made}: {names}, {yields_before=}, {updates_first=}, {lacks_last=}"
    return function


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_the_loop_says(seed: int) -> None:
    torch.manual_seed(seed)
    function = program(seed)
    w = (0.5 * torch.randn(F, F, dtype=torch.float64)).requires_grad_()
    compiled = weft.jit(function)
    for steps in (6, 9, 13, 4, 1):
        x = torch.randn(2, steps, F, dtype=torch.float64, requires_grad=True)
        expected = function(x, w)
        cotangent = torch.randn_like(expected)
        try:
            gradients = torch.autograd.grad(expected, [x, w], cotangent, allow_unused=True, materialize_grads=True)
        except RuntimeError:  # PyTorch's: what it needs was changed in place
            continue
        found = compiled(x, w)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, msg=function.__doc__)
        again = torch.autograd.grad(found, [x, w], cotangent, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(again, gradients, rtol=1e-9, atol=1e-10, msg=function.__doc__)

    try:
        stream = weft.stream(lambda x: function(x, w.detach()), torch.randn(2, 14, F, dtype=torch.float64))
    except RuntimeError as error:
        assert str(error).startswith("weft.stream: ") and seed not in STREAMS, error
        return
    for steps in (5, 20, 33):
        x = torch.randn(2, steps, F, dtype=torch.float64)
        stream.reset()
        parts = [stream.run(x[:, : steps // 2]), stream.run(x[:, steps // 2 :])]
        found = torch.cat(parts, 1)[:, stream.outputs[0].lag :]
        torch.testing.assert_close(found, function(x, w.detach()), rtol=1e-9, atol=1e-10, msg=function.__doc__)
