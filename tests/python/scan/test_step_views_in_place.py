"""Steps that change views of their values in place and read them again: programs, with the loop's gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles import loop
from torch import Tensor
from torch.nn import functional

import weft

#: By Python text: what a step does to `v`, which depends on the state, and to `x`, both [2, 3] and above 0.1. `t` and
#: `u` are views of v that may be kept.
CHANGES = [
    "v[:, 0] += x[:, 0]",
    "v[0] += x[0]",
    "v[:, :2] *= x[:, :2]",
    "v[..., 0] -= x[..., 1]; v[..., 1] *= 2",
    "v[:] += x",
    "v[torch.tensor([0, 1])] += x",
    "v.t()[0] += 1",
    "v[:, 0:1][:, 0] += x[:, 0]",
    "u = v.view(-1); u[2:] += x.reshape(-1)[2:]",
    "t = v[:, 0]; t.mul_(2); v[:, 1] = t * 3",
    "t = v[0]; u = t[1:]; u.mul_(x[0, 1:]); t.add_(u.sum()); v[1] = t",
    "t = v.unsqueeze(0); t[0, 1] *= 2; u = t.transpose(1, 2); u[0, 0] += 1; v[0, 0] = u.sum()",
    "a, b, c = v.unbind(1); s = a * 1; v[:, 2] *= x[:, 0]; v[:, 0] = s + v[:, 2]",
    "t = v.diagonal(); t += x.diagonal(); v[0, 2] = t.clone().prod()",
    "t = v.expand(2, 2, 3)[1]; v[0] *= 2; v[1] = t[0]",
    "z = torch.zeros(2, 3); z[:, 0] += v[:, 0]; z[:, 1:] = x[:, 1:]; z[0] *= v[0]; v = z",
    "t = v[0]; t.tanh_(); v = torch.stack([t * x[1], v[1]])",
    "t = v[:, 1]; t.clamp_(max=0.3).add_(x[:, 2]); v[:, 0] = t",
    "t = v.t()[0]; t.pow_(2).fmod_(0.3); v[:, 1] = t",
    "t = v[1]; t.lerp_(x[0], 0.3); t.addcmul_(x[0], x[1]); v[0] = t",
    "t = v[0]; functional.elu_(t); v = torch.stack([t * t, v[1]])",
    "t = v[0]; t.masked_fill_(x[0] > 0.3, 0.1); t.index_fill_(0, torch.tensor([1]), 0.2); v[1] = t + x[1]",
    "t = v[0]; t.copy_(x[0]); v[1] *= t.clone(); t.zero_(); v[1] += t",
    "t = v[0]; t.sigmoid_(); v = v * torch.dot(t, x[1])",
]


def _step(change: str) -> Any:
    code = compile(change, "step", "exec")

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        names = {"torch": torch, "functional": functional, "v": c * 0.5 + 0.2, "x": x * 1}
        exec(code, names)
        return torch.sigmoid(names["v"]), names["v"] * x

    return step


def _gradients(run: Any, step: Any) -> list[Tensor]:
    torch.manual_seed(0)
    start, xs = torch.rand(2, 3) * 0.5 + 0.1, torch.rand(4, 2, 3) * 0.5 + 0.1
    inputs = [start.requires_grad_(), xs.requires_grad_()]
    last, ys = run(step, *inputs)
    loss = (last * torch.arange(6.0).reshape(2, 3)).sum() + ys.sin().sum()
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [last, ys, *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True))]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_part_of_the_program(change: str) -> None:
    step = _step(change)
    before = sum(weft.stats()["fallbacks"].values())
    found = _gradients(weft.scan, step)
    assert sum(weft.stats()["fallbacks"].values()) == before, weft.stats()["fallbacks"]
    torch.testing.assert_close(found, _gradients(loop, step))


@pytest.mark.parametrize("place", ["v", "v[0]", "v.t()[0]"])
@pytest.mark.parametrize("name", ["logical_not_", "logical_and_", "logical_or_", "logical_xor_"])
def test_changes_without_a_derivative_have_the_loops_gradient(name: str, place: str) -> None:
    """Autograd doesn't see these changes: a gradient goes on as if they hadn't been. A program's would be zero."""
    other = "" if name == "logical_not_" else place.replace("v", "x")
    step = _step(f"{place}.{name}({other})")
    torch.testing.assert_close(_gradients(weft.scan, step), _gradients(loop, step))


def test_a_node_that_saves_a_view_of_its_own_base_is_no_leak() -> None:
    """PyTorch never frees this circle of references. Its backward is an error there, its forward isn't."""

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = c * 0.5
        t = v[0]
        t.mul_(2)
        v[1] = t * x[1]
        return v, v * x

    start, xs = torch.rand(2, 3, requires_grad=True), torch.rand(4, 2, 3, requires_grad=True)
    torch.testing.assert_close(weft.scan(step, start, xs), loop(step, start, xs))
