"""The minimal gated unit: a GRU whose one gate resets and updates.

Zhou, Wu, Zhang, Zhou: Minimal Gated Unit for Recurrent Neural Networks, arXiv 1603.09420, equations (7) to (9):

    f = sigmoid(W_f [h, x] + b_f)
    n = tanh(W_h [f * h, x] + b_h)
    h' = (1 - f) * h + f * n
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


class MGU(nn.Module):
    """x [T, B, inputs], h [B, hidden] -> (y [T, B, hidden], last h)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, 2 * hidden)
        self.forget = nn.Linear(hidden, hidden, bias=False)
        self.candidate = nn.Linear(hidden, hidden, bias=False)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        f_x, n_x = self.input(x).chunk(2, dim=1)
        f = torch.sigmoid(f_x + self.forget(h))
        n = torch.tanh(n_x + self.candidate(f * h))
        h = (1 - f) * h + f * n
        return h, h

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if h is None:
            h = x.new_zeros(x.shape[1], self.hidden)
        last, y = weft.scan(self.step, h, x)
        return y, last
