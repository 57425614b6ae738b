"""Steps that ask autograd for something: gradients inside a step, and hooks on gradients.

    python examples/gradients_in_a_step.py      trains each for a few steps, and prints the time beside the plain loop

Each program is a loss of its parameters; `how` is weft.scan, or the loop that it means.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad

import weft

How = Callable[..., Any]
Program = tuple[Callable[[How], Tensor], list[Tensor]]


def loop(step: Callable[..., Any], init: Any, xs: Any) -> tuple[Any, Any]:
    """The loop that weft.scan computes, for a y that is a tensor."""
    carry, ys = init, []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, torch.stack(ys)


def hamiltonian_net(batch: int = 8, units: int = 32, length: int = 30) -> Program:
    """A net that learns an energy H(q, p), whose gradient moves the system: dq = dH/dp dt, dp = -dH/dq dt."""
    net = torch.nn.Sequential(torch.nn.Linear(2, units), torch.nn.Tanh(), torch.nn.Linear(units, 1)).double()
    start = torch.randn(batch, 2, dtype=torch.float64)
    observed = torch.randn(length, batch, 2, dtype=torch.float64)

    def step(state: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        (slope,) = grad(net(state).sum(), state, create_graph=True)
        state = state + 0.1 * torch.stack([slope[:, 1], -slope[:, 0]], 1)
        return state, (state - seen).square().mean()

    return lambda how: how(step, start.clone().requires_grad_(), observed)[1].mean(), list(net.parameters())


def maml(tasks: int = 8, units: int = 16, inner: int = 10) -> Program:
    """Model-agnostic meta-learning: ten steps of gradient descent on a task, derived by where they start."""
    first = (0.5 * torch.randn(1, units, dtype=torch.float64)).requires_grad_()
    second = (0.5 * torch.randn(units, 1, dtype=torch.float64)).requires_grad_()
    x = torch.rand(tasks, 20, 1, dtype=torch.float64) * 6 - 3
    y = torch.sin(x + torch.arange(tasks, dtype=torch.float64)[:, None, None])

    def error(weights: tuple[Tensor, Tensor]) -> Tensor:
        return (torch.tanh(x @ weights[0]) @ weights[1] - y).square().mean(dim=(1, 2)).sum()

    def step(weights: tuple[Tensor, Tensor], rate: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        loss = error(weights)
        slopes = grad(loss, weights, create_graph=True)
        return (weights[0] - rate * slopes[0], weights[1] - rate * slopes[1]), loss

    def loss(how: How) -> Tensor:
        start = first.expand(tasks, 1, units).clone(), second.expand(tasks, units, 1).clone()
        weights, _ = how(step, start, torch.full((inner,), 0.1, dtype=torch.float64))
        return error(weights)

    return loss, [first, second]


def ttt_linear(batch: int = 4, width: int = 16, length: int = 40) -> Program:
    """TTT-Linear (Sun et al. 2024, arXiv:2407.04620): the state is a linear model, which each token trains by a step of
    gradient descent on its own reconstruction, through a layer norm."""
    shape = (width, width)
    keys, values, queries = ((torch.randn(shape, dtype=torch.float64) / width**0.5).requires_grad_() for _ in range(3))
    tokens = torch.randn(length, batch, width, dtype=torch.float64)

    def step(model: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        key, value, query = token @ keys, token @ values, token @ queries

        def reconstruction(model: Tensor) -> Tensor:
            found = torch.nn.functional.layer_norm((key[:, None] @ model)[:, 0], (width,))
            missed: Tensor = found - value
            return missed.square().mean(-1).sum()

        model = model - 0.1 * torch.func.grad(reconstruction)(model)
        return model, (query[:, None] @ model)[:, 0]

    def loss(how: How) -> Tensor:
        ys: Tensor = how(step, torch.zeros(batch, *shape, dtype=torch.float64), tokens)[1]
        return ys.square().mean()

    return loss, [keys, values, queries]


def kalman_filter(states: int = 3, length: int = 30) -> Program:
    """The likelihood of observations under a linear system, in which each step inverts a matrix."""
    turn = (torch.eye(states) + 0.1 * torch.randn(states, states)).double().requires_grad_()
    noise = torch.full((states,), 0.1, dtype=torch.float64, requires_grad=True)
    seen = torch.randn(length, states, dtype=torch.float64)
    unit = torch.eye(states, dtype=torch.float64)

    def step(belief: tuple[Tensor, Tensor], y: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        mean, spread = turn @ belief[0], turn @ belief[1] @ turn.T + torch.diag(noise.square())
        error, expected = y - mean, spread + unit
        gain = spread @ torch.linalg.inv(expected)
        surprise = error @ torch.linalg.solve(expected, error) + torch.linalg.slogdet(expected)[1]
        return (mean + gain @ error, (unit - gain) @ spread), surprise

    def loss(how: How) -> Tensor:
        surprises: Tensor = how(step, (torch.zeros(states, dtype=torch.float64), unit), seen)[1]
        return surprises.mean()

    return loss, [turn, noise]


def clipped_rnn(batch: int = 16, units: int = 64, length: int = 100) -> Program:
    """An RNN whose gradient is clipped at every step on its way back through time."""
    cell = torch.nn.Linear(2 * units, units).double()
    xs = torch.randn(length, batch, units, dtype=torch.float64)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z = cell(torch.cat([h, x], -1))
        z.register_hook(lambda gradient: gradient.clamp(-1e-4, 1e-4))
        h = torch.tanh(z)
        return h, h.square().mean()

    return lambda how: how(step, torch.zeros(batch, units, dtype=torch.float64), xs)[1].sum(), list(cell.parameters())


PROGRAMS: dict[str, Callable[..., Program]] = {
    "Hamiltonian net": hamiltonian_net,
    "MAML, ten inner steps": maml,
    "TTT-Linear with layer norm": ttt_linear,
    "Kalman filter": kalman_filter,
    "RNN clipped at each step": clipped_rnn,
}


def milliseconds(run: Callable[[], object], seconds: float = 1.0) -> float:
    """The median time of a call."""
    run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def gradients(loss: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Zeros for a parameter of which the loss is no function (the bias of an energy)."""
    found = grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]


def train(loss: Callable[[How], Tensor], parameters: list[Tensor], how: How) -> None:
    gradients(loss(how), parameters)


def main() -> int:
    print("| program | loss and gradients: plain loop, ms | weft.scan, ms | |\n|---|---|---|---|")
    for name, make in PROGRAMS.items():
        torch.manual_seed(0)
        loss, parameters = make()
        torch.testing.assert_close(gradients(loss(weft.scan), parameters), gradients(loss(loop), parameters))
        slow, fast = (milliseconds(partial(train, loss, parameters, how)) for how in (loop, weft.scan))
        print(f"| {name} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f}x |", flush=True)
    print({name: count for name, count in weft.stats()["fallbacks"].items()} or "nothing ran on PyTorch's own kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
