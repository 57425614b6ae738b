"""An LSTM in which each unit, with some probability, keeps its old value for a step.

Krueger et al.: Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations, arXiv 1606.01305. The masks are
drawn in the step, anew for each, from PyTorch's generator: the same torch.manual_seed gives the same result. In eval
mode the old and the new value are mixed as they are on average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft

State = tuple[Tensor, Tensor]


class ZoneoutLSTM(nn.Module):
    """x [T, B, inputs], (h, c) [B, hidden] each -> (y [T, B, hidden], (last h, last c))."""

    def __init__(self, inputs: int, hidden: int, zoneout_h: float = 0.05, zoneout_c: float = 0.5) -> None:
        super().__init__()
        self.hidden, self.zoneout_h, self.zoneout_c = hidden, zoneout_h, zoneout_c
        self.input = nn.Linear(inputs, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)

    def mixed(self, old: Tensor, new: Tensor, p: float) -> Tensor:
        if not self.training:
            return p * old + (1 - p) * new
        return torch.where(torch.rand_like(old) < p, old, new)

    def step(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        h, c = state
        i, f, g, o = (self.input(x) + self.recurrent(h)).chunk(4, dim=1)
        new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        new_h = torch.sigmoid(o) * torch.tanh(new_c)
        h, c = self.mixed(h, new_h, self.zoneout_h), self.mixed(c, new_c, self.zoneout_c)
        return (h, c), h

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        if state is None:
            zeros = x.new_zeros(x.shape[1], self.hidden)
            state = (zeros, zeros)
        last, y = weft.scan(self.step, state, x)
        return y, last
