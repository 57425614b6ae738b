"""Integers of more than 53 bits, which no constant of a program holds by itself: exact, or left to PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import weft

X = torch.tensor([88172645463325252, -5, (1 << 62) + 3])
NUMBERS = [(1 << 57) - 1, -(1 << 57) - 1, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1]
FUNCTIONS: list[Callable[[Tensor, int], Tensor]] = [
    lambda x, n: x + n,
    lambda x, n: n - x,
    lambda x, n: x * n,
    lambda x, n: x ^ n,
    lambda x, n: (x | n) & (x & n),
    lambda x, n: (x == n) | (x < n) | ~(x >= n),
    lambda x, n: x.clamp(min=n),
    lambda x, n: x.clamp(max=n),
    lambda x, n: torch.full_like(x, n) + x.new_full((3,), n),
    lambda x, n: x.masked_fill(x > 0, n),
    lambda x, n: torch.where(x > 0, n, x),
    lambda x, n: x % n + x // n + torch.fmod(x, n),
    lambda x, n: torch.arange(n - 5 if n > 0 else n, n - 2 if n > 0 else n + 3) + x,
    lambda x, n: x.index_fill(0, torch.tensor([1]), n),
    lambda x, n: torch.maximum(x, torch.tensor(n)),
    lambda x, n: torch.add(x, x, alpha=n),
    lambda x, n: torch.addcmul(x, x, x, value=n),
    lambda x, n: x.double() * n,
    lambda x, n: torch.nn.functional.pad(x, (1, 0), value=n)[:3],
    lambda x, n: x.scatter(0, torch.tensor([1]), n),
    lambda x, n: x.clone().fill_(n).add_(n),
    lambda x, n: (x << 13) ^ (x >> 7),
]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_large_integers(f: Callable[[Tensor, int], Tensor]) -> None:
    for number in NUMBERS:
        expected = f(X, number)
        assert torch.equal(weft.jit(lambda x, n=number: f(x, n))(X), expected)
        _, ys = weft.scan(lambda h, x, n=number: (h, f(x, n)), torch.zeros(1), X[None])
        assert torch.equal(ys[0], expected)
