"""Lengths that differ from step to step on the device, where a program depends on them: as sizes, as arguments, as
numbers, in what a decomposition does."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft

ROWS, FEATURES, LONGEST = 4, 6, 64
_GENERATOR = torch.Generator().manual_seed(0)
TABLE = torch.randn(LONGEST, FEATURES, generator=_GENERATOR)
SQUARE = torch.ones(LONGEST, LONGEST).tril()
NUMBERS = torch.arange(LONGEST)


def _gradient(of):
    def backward(x, length, *tables):
        x = x.detach().requires_grad_()
        y = of(x, length, *tables)
        return torch.autograd.grad(y.tanh().sum(), x)[0]

    return backward


def _filled(x, length):
    buffer = torch.zeros(ROWS, LONGEST, FEATURES, device=x.device)
    buffer[:, :length] = x
    return buffer.cumsum(1)


#: (x [rows, length, features], length, table) -> a tensor.
PROGRAMS = {
    "a table's first rows": (lambda x, n, table: x + table[:n], TABLE),
    "and columns": (lambda x, n, square: (x @ x.mT) * square[:n, :n], SQUARE),
    "rows looked up": (lambda x, n, table: x + table[torch.arange(n, device=x.device)], TABLE),
    "numbers": (lambda x, n, numbers: functional.one_hot(numbers[:n] % FEATURES, FEATURES) * x, NUMBERS),
    "last": (lambda x, n: x[:, -1].sin()[:, None], None),
    "last of unbind": (lambda x, n: x.unbind(1)[-1].sin()[:, None], None),
    "gradient of last": (_gradient(lambda x, n: x[:, -1]), None),
    "gradient of an inner part": (_gradient(lambda x, n: x[:, 1:-1]), None),
    "last by gather": (lambda x, n: x.gather(1, torch.full((ROWS, 1, FEATURES), n - 1, device=x.device)), None),
    "mean by hand": (lambda x, n: (x.sum(1) / n)[:, None], None),
    "scaled": (lambda x, n: x * n**-0.5 + 1 / n, None),
    "std": (lambda x, n: x.std(1)[:, None], None),
    "by rows": (lambda x, n: x.sum(1, keepdim=True) / x.size(0), None),
    "repeat": (lambda x, n, table: x + table[0].repeat(x.size(0), n, 1), TABLE),
    "pad to a length": (lambda x, n: functional.pad(x, (0, 0, 0, LONGEST - n)), None),
    "into a buffer": (_filled, None),
    "cumsum": (lambda x, n: x.cumsum(1), None),
    "linspace": (lambda x, n: x * torch.linspace(0, 1, n, device=x.device)[:, None], None),
    "arange down": (lambda x, n: x * torch.arange(n - 1, -1, -1, device=x.device)[:, None], None),
    "mask": (lambda x, n: x.masked_fill(torch.arange(n, device=x.device)[:, None] >= n - 3, 0.0), None),
    "half": (lambda x, n: x[:, : n // 2], None),
    "split": (lambda x, n: torch.cat(x.split([n - 2, 2], 1)[::-1], 1), None),
    "roll by half": (lambda x, n: x.roll(n // 2, 1), None),
    "triu by a size": (lambda x, n: (x @ x.mT).triu(n - 4), None),
    "interpolate": (lambda x, n: functional.interpolate(x.mT, size=20, mode="linear").mT, None),
    "interpolate by a factor": (lambda x, n: functional.interpolate(x.mT, scale_factor=2, mode="nearest").mT, None),
    "adaptive pooling": (lambda x, n: functional.adaptive_avg_pool1d(x.mT, 5).mT, None),
    "gradient of max_pool1d": (_gradient(lambda x, n: functional.max_pool1d(x.mT, 3)), None),
    "gradient of unfold": (_gradient(lambda x, n: x.unfold(1, 3, 2)), None),
    "gradient of cumsum": (_gradient(lambda x, n: x.cumsum(1) / n), None),
    "attention": (lambda x, n: functional.scaled_dot_product_attention(x, x, x, is_causal=True), None),
}


def _counts() -> tuple[int, int]:
    counts = weft.device.stats()
    return counts["records"], counts["programs"]


def _checked(run, length: int, table: Tensor | None, seed: int) -> None:
    x = torch.randn(ROWS, length, FEATURES, generator=torch.Generator().manual_seed(seed))
    tables = [] if table is None else [table]
    expected = run(x, length, *tables)
    actual = run(x.to("weft"), length, *[each.to("weft") for each in tables])
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_lengths(name):
    run, table = PROGRAMS[name]
    records, programs = _counts()
    for seed, length in enumerate([17, 43, 9, 31, 60, 10, 25, 44]):
        _checked(lambda x, n, *tables: run(x, n, *tables).sin(), length, table, seed)
    assert _counts()[0] - records <= 3
    assert _counts()[1] - programs <= 2


#: Where a size ends up, (x, the number) -> a tensor. Numbers are within 0..length.
PLACES = {
    "slice to": lambda x, k: x[:, :k],
    "slice from": lambda x, k: x[:, k:],
    "select": lambda x, k: x[:, min(k, x.size(1) - 1)],
    "roll": lambda x, k: x.roll(k, 1),
    "narrow": lambda x, k: x.narrow(1, 0, k),
    "add": lambda x, k: x + k,
    "alpha": lambda x, k: torch.add(x, x, alpha=k),
    "divide": lambda x, k: x / (k + 1),
    "multiply": lambda x, k: x * k,
    "compare": lambda x, k: (x * 20 > k).float(),
    "clamp": lambda x, k: (x * 20).clamp(max=k),
    "power": lambda x, k: x.abs() ** (k % 4),
    "fill": lambda x, k: torch.full_like(x, k),
    "zeros": lambda x, k: torch.zeros(k, 2, device=x.device).sum() + x,
    "repeat": lambda x, k: x[:, :1].repeat(1, k, 1),
    "expand": lambda x, k: x[:, :1].expand(ROWS, k, FEATURES),
    "pad": lambda x, k: functional.pad(x, (0, 0, k, 0)),
    "tril": lambda x, k: (x @ x.mT).tril(k),
    "arange": lambda x, k: torch.arange(k, device=x.device).float(),
    "arange from": lambda x, k: torch.arange(k, k + 5, device=x.device).float(),
    "index_select": lambda x, k: x.index_select(1, torch.arange(k, device=x.device)),
    "split": lambda x, k: torch.cat(x.split([k, x.size(1) - k], 1)[::-1], 1),
    "unflatten": lambda x, k: x[:, : k // 2 * 2].unflatten(1, (2, k // 2)),
    "cumsum": lambda x, k: x[:, :k].cumsum(1),
    "topk": lambda x, k: x.topk(k, 1).values,
    "linspace": lambda x, k: torch.linspace(0, k, k, device=x.device),
    "integers": lambda x, k: torch.arange(9, device=x.device) * k // 3,
    "write": lambda x, k: x.clone().index_fill_(1, torch.arange(k, device=x.device), 2.0),
    "write part": lambda x, k: x.slice_scatter(x[:, :k] * 2, 1, 0, k),
}

#: What a program makes of a length; the last ones are no expressions of it that a few lengths tell.
SIZES = {
    "n": lambda n: n,
    "n-1": lambda n: n - 1,
    "n//2": lambda n: n // 2,
    "(n+3)//4": lambda n: (n + 3) // 4,
    "n-n//3": lambda n: n - n // 3,
    "min(n,20)": lambda n: min(n, 20),
    "max(n-20,0)": lambda n: max(n - 20, 0),
    "n%5": lambda n: n % 5,
    "n*n//64": lambda n: n * n // 64,
    "bits": lambda n: n.bit_length(),
    "even": lambda n: n if n % 2 == 0 else n // 2,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", PLACES)
def test_a_size_as_an_argument_is_never_a_wrong_one(place, size):
    """Of two lengths an expression is guessed; a third, and others, at which the guess is wrong must not find it."""
    rng = random.Random(f"{place} {size}")
    for seed in range(7):
        length = rng.randint(2, LONGEST)
        _checked(lambda x, n: PLACES[place](x, SIZES[size](n)), length, None, seed)


def test_a_number_of_features_has_code_of_its_own():
    """Unless it turns out to be a length: sound is [batch, channels, time]."""
    torch.manual_seed(0)
    layer = nn.Conv1d(2, 3, 5, padding=2)
    on_device = nn.Conv1d(2, 3, 5, padding=2).to("weft")
    on_device.load_state_dict(layer.state_dict())
    records, _ = _counts()
    for length in [17, 43, 9, 31, 60, 10, 25, 44]:
        x = torch.randn(ROWS, 2, length)
        torch.testing.assert_close(on_device(x.to("weft")).tanh().cpu(), layer(x).tanh(), rtol=1e-4, atol=1e-5)
    assert _counts()[0] - records <= 4


def test_what_cannot_be_widened_is_not_tried_with_each_further_size():
    def run(x, n):
        return x[:, : n.bit_length()].sin().sum(1)

    tried = weft.device.stats()["widenings"]
    for seed, length in enumerate([17, 43, 9, 31, 60, 10, 25, 44, 19, 45, 11, 33, 61, 12, 27, 46]):
        _checked(run, length, None, seed)
    assert weft.device.stats()["widenings"] - tried <= 4
