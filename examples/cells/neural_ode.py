"""A neural ordinary differential equation, solved by the classical Runge-Kutta method at given times.

Chen, Rubanova, Bettencourt, Duvenaud: Neural Ordinary Differential Equations, arXiv 1806.07366. Gradients are those of
the discrete solution.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import weft

Field = Callable[[Tensor, Tensor], Tensor]


def odeint(field: Field, y: Tensor, times: Tensor) -> Tensor:
    """The solution of dy/dt = field(t, y) from y [B, n] at times[0], at all `times` [T]: [T, B, n]."""

    def step(y: Tensor, interval: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        t, dt = interval
        k1 = field(t, y)
        k2 = field(t + dt / 2, y + dt / 2 * k1)
        k3 = field(t + dt / 2, y + dt / 2 * k2)
        k4 = field(t + dt, y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    _, ys = weft.scan(step, y, (times[:-1], times.diff()))
    return torch.cat([y[None], ys])


class NeuralODE(nn.Module):
    """y [B, size], times [T] -> [T, B, size]; the field is an MLP of y and the time."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(size, hidden)
        self.time = nn.Parameter(torch.randn(hidden) * 0.1)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, size)

    def field(self, t: Tensor, y: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(y) + t * self.time)
        change: Tensor = self.last(torch.tanh(self.second(hidden)))
        return change

    def forward(self, y: Tensor, times: Tensor) -> Tensor:
        return odeint(self.field, y, times)
