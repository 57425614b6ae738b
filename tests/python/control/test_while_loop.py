"""weft.while_loop against the plain Python loop."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft


def python_while(cond: Any, body: Any, carry: Any, max_steps: int = 1000) -> Any:
    """The loop that weft.while_loop stands for."""
    steps = 0
    while steps < max_steps and cond(carry):
        carry, steps = body(carry), steps + 1
    return carry


def newton(a: Tensor) -> tuple[Any, Any]:
    return lambda x: ((x * x - a).abs() > 1e-10).any(), lambda x: (x + a / x) / 2


def test_newtons_method() -> None:
    a = torch.tensor([2.0, 3.0, 50.0], dtype=torch.float64)
    weft.reset_stats()
    root = weft.while_loop(*newton(a), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(root, a.sqrt())
    assert weft.stats()["fallbacks"] == {}


@pytest.mark.parametrize("max_steps", [1, 3, 8, 40])
def test_gradients_with_max_steps(max_steps: int) -> None:
    a = torch.tensor([2.0, 3.0, 50.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.0, 2.0, 7.0], dtype=torch.float64, requires_grad=True)
    results = [run(*newton(a), x, max_steps=max_steps) for run in (weft.while_loop, python_while)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(r.square().sum(), (a, x)) for r in results))


def test_gradcheck() -> None:
    def run(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        carry = (x, torch.tensor(0))
        x, n = weft.while_loop(lambda c: c[1] < 3, lambda c: (torch.tanh(c[0] @ w), c[1] + 1), carry, max_steps=5)
        return x, n

    w, x = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda *a: run(*a)[0], (w, x))
    assert torch.autograd.gradgradcheck(lambda *a: run(*a)[0], (w, x))
    assert run(w, x)[1] == 3


def test_steps_that_are_not_taken_leave_no_nan_in_gradients() -> None:
    x = torch.tensor(4.0, requires_grad=True)
    # One step more would take the root of a negative number.
    y = weft.while_loop(lambda x: x >= 1, lambda x: torch.sqrt(x - 1), x, max_steps=10)
    expected = python_while(lambda x: x >= 1, lambda x: torch.sqrt(x - 1), x)
    torch.testing.assert_close(torch.autograd.grad(y, x), torch.autograd.grad(expected, x))


def test_carries_of_any_structure_and_modules() -> None:
    linear = nn.Linear(3, 3)

    def cond(carry: dict[str, Any]) -> Tensor:
        return carry["norm"] < 10

    def body(carry: dict[str, Any]) -> dict[str, Any]:
        h = carry["h"] + linear(carry["h"]).abs()
        return {"h": h, "norm": h.norm(), "steps": carry["steps"] + 1, "nothing": None}

    h = torch.randn(2, 3)
    init = {"h": h, "norm": h.norm(), "steps": 0, "nothing": None}
    with torch.no_grad():
        ours, theirs = weft.while_loop(cond, body, init), python_while(cond, body, init)
    assert ours["steps"] == theirs["steps"] and ours["nothing"] is None
    torch.testing.assert_close(ours["h"], theirs["h"])


def test_no_step_at_all() -> None:
    x = torch.ones(2)
    for options in ({}, {"max_steps": 5}, {"max_steps": 0}):
        y = weft.while_loop(lambda x: x.sum() > 100, lambda x: x * 2, x, **options)
        assert torch.equal(x, y) and x.data_ptr() != y.data_ptr()


def test_a_loop_in_a_scan() -> None:
    def make(run: Any) -> Any:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = run(lambda h: h.abs().sum() < 5, lambda h: h * 1.5 + x, h + 0.1, max_steps=20)
            return torch.tanh(h), h

        return step

    h, x = torch.randn(3, requires_grad=True), torch.rand(4, 3, requires_grad=True)
    results = [weft.scan(make(run), h, x) for run in (weft.while_loop,)]
    carry, ys = h, []
    for t in range(4):
        carry, y = make(python_while)(carry, x[t])
        ys.append(y)
    torch.testing.assert_close(results[0], (carry, torch.stack(ys)))
    torch.testing.assert_close(
        torch.autograd.grad(results[0][1].sum(), (h, x)), torch.autograd.grad(torch.stack(ys).sum(), (h, x))
    )


class TestErrors:
    def test_a_gradient_without_max_steps(self) -> None:
        x = torch.ones(2, requires_grad=True)
        y = weft.while_loop(lambda x: x.sum() < 10, lambda x: x * 2, x)
        assert torch.equal(y, torch.full((2,), 8.0))
        with pytest.raises(
            RuntimeError, match=r"no gradients in reverse mode; give it the most steps that it can take \(max_steps\)"
        ):
            y.sum().backward()

    @pytest.mark.parametrize(
        ("cond", "body", "error", "message"),
        [
            (lambda x: x > 0, lambda x: x, TypeError, "cond must return one bool, but returned bool[2]"),
            (lambda x: x.sum(), lambda x: x, TypeError, "cond must return one bool, but returned float32[]"),
            (lambda x: x.sum() > 0, lambda x: x[:1], ValueError, "carry: float32[2] in, float32[1] out"),
            (lambda x: x.sum() > 0, lambda x: (x, x), ValueError, "* in, (*, *) out"),
            (lambda x: x.sum() > 0, lambda x: x if x.sum() > 0 else -x, RuntimeError, "needs the value of a tensor"),
            (3, lambda x: x, TypeError, "cond must be callable, but is int"),
        ],
    )
    def test_by_message(self, cond: Any, body: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=re.escape(message)):
            weft.while_loop(cond, body, torch.ones(2))

    def test_max_steps(self) -> None:
        with pytest.raises(ValueError, match="max_steps must be an integer that is not negative, but is -1"):
            weft.while_loop(lambda x: x.sum() > 0, lambda x: x, torch.ones(2), max_steps=-1)


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("max_steps", [None, 5, 0])
def test_a_body_that_changes_its_carry_leaves_the_callers(disabled: bool, max_steps: int | None) -> None:
    given = torch.zeros(3)
    with weft.disabled() if disabled else torch.no_grad():
        last = weft.while_loop(lambda c: (c < 3).all(), lambda c: c.add_(1), given, max_steps=max_steps)
    torch.testing.assert_close(last, torch.full((3,), 0.0 if max_steps == 0 else 3.0))
    torch.testing.assert_close(given, torch.zeros(3))


def test_a_body_that_changes_its_carry_leaves_the_callers_where_it_falls_back() -> None:
    def body(c: Tensor) -> Tensor:
        return c.add_(torch.rand(3) * 0 + 1)  # random numbers in an unbounded loop have no program

    given = torch.zeros(3)
    with pytest.warns(weft.FallbackWarning):
        last = weft.while_loop(lambda c: (c < 3).all(), body, given)
    torch.testing.assert_close(last, torch.full((3,), 3.0))
    torch.testing.assert_close(given, torch.zeros(3))


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("max_steps", [None, 5])
def test_a_condition_that_changes_its_carry_is_refused(disabled: bool, max_steps: int | None) -> None:
    with weft.disabled() if disabled else torch.no_grad(), pytest.raises(RuntimeError, match="the condition changes"):
        weft.while_loop(lambda c: (c.add_(1) < 3).all(), lambda c: c + 0, torch.zeros(3), max_steps=max_steps)
