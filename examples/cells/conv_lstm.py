"""A convolutional LSTM: the state is an image, the products are convolutions.

Shi et al.: Convolutional LSTM Network: A Machine Learning Approach for Precipitation Nowcasting, arXiv 1506.04214,
equation (3), without the peepholes, as most use it. The convolution runs as PyTorch's own inside the loop.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft

State = tuple[Tensor, Tensor]


class ConvLSTM(nn.Module):
    """x [T, B, inputs, height, width], (h, c) [B, hidden, height, width] each -> (y [T, B, hidden, height, width], last
    (h, c))."""

    def __init__(self, inputs: int, hidden: int, kernel: int = 3) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(inputs + hidden, 4 * hidden, kernel, padding=kernel // 2)

    def step(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return (h, c), h

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        if state is None:
            zeros = x.new_zeros(x.shape[1], self.hidden, *x.shape[3:])
            state = (zeros, zeros)
        last, y = weft.scan(self.step, state, x)
        return y, last
