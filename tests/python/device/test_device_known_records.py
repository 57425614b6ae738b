"""Batches that are found by their outline: the same operations with other numbers, sizes, operands and lives of tensors
must not be taken for one another."""

from __future__ import annotations

import random

import pytest
import torch

import weft

UNARY = (torch.sin, torch.cos, torch.neg, torch.abs, torch.tanh)
NUMBERS = (0.5, 1.5, -2.0, 3)


def random_call(rng: random.Random, values: list) -> torch.Tensor:
    """An operation on some of the values. The same seed gives the same on any device."""
    a, b, number = rng.choice(values), rng.choice(values), rng.choice(NUMBERS)
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(UNARY)(a)
    if kind == 1:
        return a * number
    if kind == 2:
        return a.add(b, alpha=number)
    if kind == 3:
        return a.t().contiguous().t() + b
    if kind == 4:
        return torch.where(a > b, a, number)
    if kind == 5:
        return a.clamp(min=float(number))
    if kind == 6:
        return a.flip(rng.randrange(2)) - b
    a.add_(number)
    return a


@pytest.mark.parametrize("seed", range(20))
def test_like_the_cpu(seed):
    """Few different steps, again and again in random order, so that records are found by each of the ways."""
    rng = random.Random(seed)
    steps = [rng.randrange(1 << 20) for _ in range(4)]
    for _ in range(24):
        step, rows, is_kept = rng.choice(steps), rng.choice((2, 2, 2, 5)), rng.random() < 0.5
        results = []
        for device in ("cpu", "weft"):
            generator = torch.Generator().manual_seed(step)
            values = [torch.randn(rows, 3, generator=generator).to(device) for _ in range(2)]
            calls = random.Random(step)
            for _ in range(12):
                values.append(random_call(calls, values))
                if not is_kept and len(values) > 4:
                    del values[calls.randrange(2, len(values) - 1)]
            if device == "weft":
                weft.sync()
            results.append([value.cpu() for value in values])
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_numbers_that_change():
    x = torch.randn(4, 4)
    on_device = x.to("weft")
    for step in range(12):
        for factor in (1 / (step + 1), 0.25):
            y = (on_device * factor).sin() + float(step)
            weft.sync()
            torch.testing.assert_close(y.cpu(), (x * factor).sin() + float(step))


def test_tensors_of_the_same_sizes_in_other_places():
    """The same operation on the same operands in another order, or on one operand twice."""
    a, b = torch.randn(3), torch.randn(3)
    p, q = a.to("weft"), b.to("weft")
    for _ in range(4):
        for left, right in ((a, b), (b, a), (a, a)):
            on_device = {id(a): p, id(b): q}
            y = on_device[id(left)] - on_device[id(right)].exp()
            weft.sync()
            torch.testing.assert_close(y.cpu(), left - right.exp())


def test_known_steps_are_found_without_a_record():
    x, w = torch.randn(4, 4).to("weft"), torch.randn(4, 4).to("weft")
    for step in range(6):
        before = weft.device.stats()
        y = (x @ w * (step + 0.5)).tanh()
        weft.sync()
        after = weft.device.stats()
        if step >= 3:
            assert after["compiled_batches"] == before["compiled_batches"] + 1
            assert after["records"] == before["records"] and after["programs"] == before["programs"]
    assert y.shape == (4, 4)
