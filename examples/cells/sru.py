"""The simple recurrent unit: its products are over the input alone, and leave the loop.

Lei, Zhang, Wang, Dai, Artzi: Simple Recurrent Units for Highly Parallelizable Recurrence, arXiv 1709.02755, equations
(1) to (4), with the scaled highway connection of section 3.2:

    f = sigmoid(W_f x + v_f * c + b_f)
    r = sigmoid(W_r x + v_r * c + b_r)
    c' = f * c + (1 - f) * W x
    h = r * c' + (1 - r) * alpha x
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


class SRU(nn.Module):
    """x [T, B, size], c [B, size] -> (h [T, B, size], last c)."""

    def __init__(self, size: int, highway_bias: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.input = nn.Linear(size, 3 * size, bias=False)
        self.v = nn.Parameter(torch.empty(2, size).uniform_(-(3**0.5), 3**0.5))
        self.bias = nn.Parameter(torch.tensor([0.0, highway_bias])[:, None].repeat(1, size))
        self.alpha = (1 + 2 * torch.tensor(highway_bias).exp().item()) ** 0.5

    def step(self, c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new, f, r = self.input(x).chunk(3, dim=1)
        f = torch.sigmoid(f + self.v[0] * c + self.bias[0])
        r = torch.sigmoid(r + self.v[1] * c + self.bias[1])
        c = f * c + (1 - f) * new
        return c, r * c + (1 - r) * self.alpha * x

    def forward(self, x: Tensor, c: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if c is None:
            c = x.new_zeros(x.shape[1:])
        last, h = weft.scan(self.step, c, x)
        return h, last
