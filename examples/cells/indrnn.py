"""The independently recurrent network: each unit sees only itself of the last step.

Li, Li, Cook, Zhu, Gao: Independently Recurrent Neural Network (IndRNN), arXiv 1803.04831:

    h = relu(W x + u * h + b)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


class IndRNN(nn.Module):
    """x [T, B, inputs], h [B, hidden] -> (y [T, B, hidden], last h)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, hidden)
        self.recurrent = nn.Parameter(torch.rand(hidden))

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.input(x) + self.recurrent * h)
        return h, h

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if h is None:
            h = x.new_zeros(x.shape[1], self.hidden)
        last, y = weft.scan(self.step, h, x)
        return y, last
