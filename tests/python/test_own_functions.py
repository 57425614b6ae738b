"""torch.autograd.Function in a step: its own backward, in the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import weft


class Spike(torch.autograd.Function):
    """A step with a smooth gradient, as spiking networks use it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient / (ctx.slope * x.abs() + 1) ** 2, None


class Exp(torch.autograd.Function):
    """With setup_context, and a saved output."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0]


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        positions = (x * y).argmax(-1)
        ctx.mark_non_differentiable(positions)
        return torch.sin(x) * y, positions

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return gradient * torch.cos(x) * y * 3, gradient * torch.sin(x)


spike = Spike.apply  # as it is mostly used, by another name


def loop(step: Any, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    ys = []
    for t in range(x.shape[0]):
        h, y = step(h, x[t])
        ys.append(y)
    return h, torch.stack(ys)


def leaky(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    h = 0.9 * h + x
    s = spike(h - 1, 2.0)
    return h - s, s


def exponential(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tanh(Exp.apply(-h * h) + x), h


def two(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    y, positions = TwoResults.apply(h, x)
    return torch.tanh(y), y + positions.unsqueeze(-1)


@pytest.mark.parametrize("step", [leaky, exponential, two])
def test_gradients_are_its_own(step: Any) -> None:
    h = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
    weft.reset_stats()
    results = [run(step, h, x) for run in (weft.scan, loop)]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(r[0].sum() + (r[1] ** 2).sum(), (h, x)) for r in results]
    torch.testing.assert_close(*gradients)
    assert weft.stats()["fallbacks"] == {}


def test_second_derivatives() -> None:
    h = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda h, x: weft.scan(exponential, h, x), (h, x))


def test_it_is_the_same_outside_a_trace() -> None:
    x = torch.tensor([0.5, -0.5], requires_grad=True)
    y = spike(x, 1.0)
    assert y.grad_fn is not None and torch.equal(y, torch.tensor([1.0, 0.0]))
    y.sum().backward()
    torch.testing.assert_close(x.grad, 1 / (x.detach().abs() + 1) ** 2)


class Watched(torch.autograd.Function):
    """Dynamo leaves it to Python: it keeps a record of values."""

    seen: list[float] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Watched.seen.append(float(x.max()))
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def test_dynamo_leaves_one_to_python_as_it_did_before() -> None:
    """Calls of such functions pass Weft's code once a step was recorded, which is not for Dynamo to compile."""
    weft.scan(lambda carry, x: (carry + x, None), torch.zeros(2), torch.ones(3, 2))
    torch.compiler.reset()

    @torch.compile(backend="eager")
    def model(x: Tensor) -> Tensor:
        return Watched.apply(x + 1).sum()  # type: ignore[no-any-return, no-untyped-call]

    x = torch.ones(4, requires_grad=True)
    for _ in range(3):
        y = model(x)
    y.backward()
    assert y.item() == 16 and Watched.seen == [2.0] * 3
    assert x.grad is not None and x.grad.tolist() == [3.0] * 4
