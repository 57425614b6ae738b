"""Random numbers in a scan within another function: for the same seed they are those of the loop, and the generator
ends in the state in which the loop leaves it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from oracles import loop
from torch import Tensor
from torch.nn.functional import dropout

import weft

DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": torch.randn_like,
    "normal, in place": lambda h: torch.empty_like(h).normal_(1, 2),
    "uniform": lambda h: torch.rand(h.shape),
    "bernoulli": lambda h: torch.bernoulli(torch.sigmoid(h)),
    "dropout": lambda h: dropout(h, 0.5, training=True),
    "exponential": lambda h: torch.empty_like(h).exponential_(),
    "integers": lambda h: torch.randint(0, 5, h.shape).to(h.dtype),
    "two": lambda h: torch.rand(h.shape) + torch.rand(h.shape) * h,
}


#: Every way in which PyTorch draws for a tensor x of numbers between 0 and 1.
ALL_DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "log_normal_": lambda x: x.clone().log_normal_(0.5, 0.25),
    "cauchy_": lambda x: x.clone().cauchy_(0.1, 2.0),
    "geometric_": lambda x: x.clone().geometric_(0.3),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "uniform_": lambda x: x.clone().uniform_(-1, 2),
    "random_": lambda x: x.clone().random_(10),
    "bernoulli": torch.bernoulli,
    "bernoulli_ of a number": lambda x: x.clone().bernoulli_(0.4),
    "bernoulli_ of a tensor": lambda x: x.clone().bernoulli_(x),
    "normal of tensors": lambda x: torch.normal(x, x),
    "normal of a mean": lambda x: torch.normal(x, 0.5),
    "multinomial": lambda x: torch.multinomial(x.reshape(-1), 2),
    "poisson": lambda x: torch.poisson(x * 3),
    "binomial": lambda x: torch.binomial(torch.full_like(x, 7.0), x),
    "randperm": lambda x: torch.randperm(9),
    "rrelu": lambda x: torch.nn.functional.rrelu(x - 0.5, training=True),
    "alpha_dropout": lambda x: torch.nn.functional.alpha_dropout(x, 0.3, True),
    "dropout1d": lambda x: torch.nn.functional.dropout1d(x.reshape(1, 1, -1), 0.4, True),
    "gumbel_softmax": lambda x: torch.nn.functional.gumbel_softmax(x, hard=True),
    "gamma": lambda x: torch._standard_gamma(x + 1),
    "dirichlet": lambda x: torch.distributions.Dirichlet(x + 1).rsample(),
    "von Mises": lambda x: torch.distributions.VonMises(x, x + 1).sample(),
    "two kinds": lambda x: torch.randn(x.shape) + torch.rand(x.shape),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("draw", ALL_DRAWS)
def test_each_draw_is_the_loops(draw: str, dtype: torch.dtype) -> None:
    """From 16 elements on PyTorch draws by vectors, which gives other numbers than one by one."""
    for shape in [(1, 2), (5, 9)]:
        h0, xs = torch.rand(shape, dtype=dtype), torch.rand(3, *shape, dtype=dtype)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            drawn = ALL_DRAWS[draw](x).to(h.dtype)
            return h * 0.5 + drawn.sum(), drawn

        found = []
        for run in (loop, weft.scan):
            torch.manual_seed(3)
            found.append((run(step, h0, xs), torch.rand(2)))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_scan_within_jit_draws_as_the_loop(draw: str, reverse: bool) -> None:
    h0, xs = torch.randn(3, 7), torch.randn(5, 3, 7)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h * x) + DRAWS[draw](h)
        return h, h.sum()

    def loop(w: Tensor) -> Tensor:
        h = h0 * w
        for x in xs.flip(0) if reverse else xs:
            h, _ = step(h, x)
        return h

    compiled = weft.jit(lambda w: weft.scan(step, h0 * w, xs, reverse=reverse)[0])
    for _ in range(2):
        torch.manual_seed(3)
        expected = loop(torch.ones(7)), torch.rand(2)
        torch.manual_seed(3)
        torch.testing.assert_close((compiled(torch.ones(7)), torch.rand(2)), expected)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("draw", ["normal", "uniform", "two"])
def test_a_scan_within_a_scan_draws_as_the_loops(draw: str) -> None:
    h0, xs = torch.randn(3, 7), torch.randn(4, 5, 3, 7)

    def inner(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h * x) + DRAWS[draw](h)
        return h, h.sum()

    def plainly(step: Callable[..., tuple[Tensor, Tensor]], h: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
        ys = []
        for x in xs:
            h, y = step(h, x)
            ys.append(y)
        return h, torch.stack(ys)

    torch.manual_seed(3)
    expected = plainly(lambda h, x: plainly(inner, h, x), h0, xs)
    torch.manual_seed(3)
    torch.testing.assert_close(weft.scan(lambda h, x: weft.scan(inner, h, x), h0, xs), expected)


def test_a_probe_of_sizes_counts_nothing() -> None:
    """A fallback of a scan within another function is a part of that function's program."""
    h0, xs = torch.randn(2, 3), torch.randn(5, 2, 3)
    f = weft.jit(lambda w: weft.scan(lambda h, x: (h * x + w + torch.randn(2, 3), None), h0, xs)[0])
    for w in (torch.randn(2, 3), torch.randn(3), torch.randn(2, 3).requires_grad_()):
        f(w)
    assert not weft.stats()["fallbacks"] and weft.stats()["calls"]
