"""Functions of x [rows, length, features] that depend on the length: as a size, as an argument, as a number, in what a
decomposition does."""

from __future__ import annotations

import torch
from torch.nn import functional

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

#: Places where a size may end up, (x, the number) -> a tensor. Numbers are within 0..length.
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

#: Functions of a length in a program; the last ones are no expressions of the length that a few lengths tell.
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
