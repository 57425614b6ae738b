"""The selective state space model: Mamba's scan, with its discretisation in the step.

Gu, Dao: Mamba: Linear-Time Sequence Modeling with Selective State Spaces, arXiv 2312.00752, algorithm 2,
discretised as in the authors' code, A by a zero-order hold and B by Euler's rule:

    h = exp(delta A) * h + delta B x
    y = C h + D x
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import weft


def selective_scan(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """x and delta [T, B, D], a [D, N], b and c [T, B, N], d [D] -> y [T, B, D]; [B, D, N] is there in the loop only."""

    def step(h: Tensor, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, delta, b, c = inputs
        h = torch.exp(delta[:, :, None] * a) * h + (delta * x)[:, :, None] * b[:, None, :]
        return h, (h * c[:, None, :]).sum(2) + d * x

    h = x.new_zeros(*x.shape[1:], a.shape[1])
    return weft.scan(step, h, (x, delta, b, c))[1]


class SelectiveSSM(nn.Module):
    """x [T, B, size] -> y [T, B, size]; `states` for each channel, delta through a bottleneck of `rank`."""

    def __init__(self, size: int, states: int = 16, rank: int = 8) -> None:
        super().__init__()
        self.states, self.rank = states, rank
        self.select = nn.Linear(size, rank + 2 * states, bias=False)
        self.delta = nn.Linear(rank, size)
        self.log_a = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(size, 1))
        self.d = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        low, b, c = self.select(x).split([self.rank, self.states, self.states], dim=2)
        return selective_scan(x, functional.softplus(self.delta(low)), -self.log_a.exp(), b, c, self.d)
