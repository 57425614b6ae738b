"""Inputs of a step that get no gradient, and results that no gradient comes from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from oracles import loop
from torch import Tensor

import weft

#: Steps of a carry h, an x and two vectors p and q, which don't all have a gradient.
UNREACHED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "p is detached": lambda h, x, p, q: (h * 0.5 + x * p.detach(), h * q),
    "x is chosen from": lambda h, x, p, q: (h * 0.5 + x.argmax(-1, keepdim=True).to(h.dtype) * p, h * q),
    "x and p are compared": lambda h, x, p, q: (torch.where(x > p, h, h * 0.5), h * q),
    "x is rounded": lambda h, x, p, q: (h * 0.5 + torch.round(x) * p, h * q),
    "x gives its sign": lambda h, x, p, q: (h.copysign(x) * p, h * q),
    "x gives its shape": lambda h, x, p, q: (h * 0.5 + torch.zeros_like(x) * p, h * q),
    "x is not read": lambda h, x, p, q: (h.detach() * 0.5 + p, h * q),
    "x is set to zero": lambda h, x, p, q: (h * 0.5 + (x * 2).zero_() * p, h * q),
}


@pytest.mark.parametrize("last_only", [False, True])
@pytest.mark.parametrize("case", UNREACHED)
def test_an_input_that_no_gradient_gets_to_has_none(case: str, last_only: bool) -> None:
    """None and zeros are different things to an optimiser, and to torch.autograd.grad."""
    if last_only and case == "x is not read":
        pytest.skip("the program may have no steps, and then returns h")
    found = []
    leaves = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 4), (5, 3, 4), (4,), (4,))]
    for run in (loop, weft.scan):
        h, xs, p, q = (leaf.clone().requires_grad_() for leaf in leaves)
        last, ys = run(lambda h, x, p=p, q=q: UNREACHED[case](h, x, p, q), h, xs)
        (last.sum() if last_only else last.sum() + ys.sum()).backward()
        found.append([leaf.grad for leaf in (h, xs, p, q)])
    for want, got in zip(*found, strict=True):
        if want is None:
            assert got is None
        else:
            torch.testing.assert_close(got, want)


def test_a_result_that_no_gradient_comes_from_requires_none() -> None:
    """As y.detach() for a log: y.numpy() is no error then."""
    w, h, xs = torch.randn(4, requires_grad=True), torch.randn(3, 4), torch.randn(5, 3, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = torch.tanh(h * w + x)
        return h, [h.detach() * 2, h * 2, x * 3, (h > 0).to(h.dtype)]

    for run in (loop, weft.scan):
        last, ys = run(step, h, xs)
        assert [t.requires_grad for t in (last, *ys)] == [True, False, True, False, False]
        with torch.no_grad():
            assert not any(t.requires_grad for t in run(step, h, xs)[1])
    (ours,) = torch.autograd.grad([t.sum() for t in (last, ys[1])], w)
    last, ys = loop(step, h, xs)
    torch.testing.assert_close(ours, torch.autograd.grad([t.sum() for t in (last, ys[1])], w)[0])
    jitted = weft.jit(lambda x: (x * 2, (x * 3).detach(), torch.zeros(3)))
    assert [t.requires_grad for t in jitted(torch.ones(3, requires_grad=True))] == [True, False, False]
