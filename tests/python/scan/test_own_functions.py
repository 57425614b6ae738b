"""torch.autograd.Function in a step: its own backward, in the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles import loop
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


spike = Spike.apply  # the usual way to use it, by another name


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
    """A Function that Dynamo leaves to Python, since it records values."""

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


KEPT = """
import torch
from oracles import loop

class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (1 + x.abs()) ** 2

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * tangent

spike = Spike.apply  # and Weft comes later
import weft

def step(v, x):
    v = 0.9 * v + x
    s = spike(v - 0.5)
    return v - s.detach(), s

def gradient(how, step):
    torch.manual_seed(0)
    v, xs = torch.randn(5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    v, ys = how(step, v, xs)
    return torch.autograd.grad((ys * torch.arange(5.0)).sum() + v.sum(), xs)[0]

def tangent(how, step):
    torch.manual_seed(0)
    v, xs = torch.randn(5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    with torch.autograd.forward_ad.dual_level(), torch.no_grad():
        dual = torch.autograd.forward_ad.make_dual(xs, torch.ones_like(xs))
        _, ys = how(step, v, dual)
        found = torch.autograd.forward_ad.unpack_dual(ys).tangent
        return torch.zeros_like(ys) if found is None else found
"""


def test_an_apply_that_was_kept_before_weft_was_imported(run_warm_python: Any) -> None:
    """Since PyTorch 2.14 such a call runs no Python but the Function's own: the result is right, or PyTorch's loop,
    counted under the Function's name."""
    script = """
torch.testing.assert_close(gradient(weft.scan, step), gradient(loop, step))
print(weft.stats()["fallbacks"])
compiled = torch.compile(lambda v, xs: weft.scan(step, v, xs), backend="weft")
torch.testing.assert_close(gradient(lambda step, v, xs: compiled(v, xs), step), gradient(loop, step))
"""
    said = run_warm_python(KEPT + script)
    assert said.strip() == "{}" or "Spike, whose apply was kept before weft was imported" in said


def test_an_apply_that_was_kept_has_its_own_tangent(run_warm_python: Any) -> None:
    script = """
want = tangent(loop, step)
try:
    got = tangent(weft.scan, step)
except (NotImplementedError, RuntimeError) as error:
    print("refused:", error)
else:
    torch.testing.assert_close(got, want)
"""
    run_warm_python(KEPT + script)


@pytest.mark.parametrize("said", ["ctx.set_output_grad_dtype(torch.float64)", "ctx.input_grad_buffers", "ctx.name()"])
def test_what_else_a_context_has_is_pytorchs(said: str, run_warm_python: Any) -> None:
    """New parts of a Function's context since 2.14 and 2.15 can't be left out: PyTorch's loop runs."""
    script = f"""
import torch, weft
from oracles import loop

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {said if "set_" in said else "pass"}
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        {said if "set_" not in said else "pass"}
        return 2 * gradient

def step(h, x):
    h = torch.tanh(Twice.apply(h) + x)
    return h, h

def gradient(how):
    torch.manual_seed(0)
    xs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(how(step, torch.zeros(3, dtype=torch.float64), xs)[0].sum(), xs)[0]

try:
    want = gradient(loop)
except (AttributeError, RuntimeError):
    print("skip")
else:
    torch.testing.assert_close(gradient(weft.scan), want)
    assert any({said.split("(")[0]!r} in reason for reason in weft.stats()["fallbacks"]), weft.stats()["fallbacks"]
"""
    if run_warm_python(script).strip() == "skip":
        pytest.skip("this release of PyTorch has no such thing")
