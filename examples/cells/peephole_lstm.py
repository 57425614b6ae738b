"""An LSTM whose gates look at the cell.

Gers, Schraudolph, Schmidhuber: Learning Precise Timing with LSTM Recurrent Networks, JMLR 3, 2002; in the notation of
Greff et al.: LSTM: A Search Space Odyssey, arXiv 1503.04069, section 2:

    i = sigmoid(W_i x + R_i h + p_i * c + b_i)
    f = sigmoid(W_f x + R_f h + p_f * c + b_f)
    c' = f * c + i * tanh(W_g x + R_g h + b_g)
    o = sigmoid(W_o x + R_o h + p_o * c' + b_o)
    h' = o * tanh(c')
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft

State = tuple[Tensor, Tensor]


class PeepholeLSTM(nn.Module):
    """x [T, B, inputs], (h, c) [B, hidden] each -> (y [T, B, hidden], (last h, last c))."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        self.peephole = nn.Parameter(torch.randn(3, hidden) * 0.1)

    def step(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        h, c = state
        i, f, g, o = (self.input(x) + self.recurrent(h)).chunk(4, dim=1)
        p_i, p_f, p_o = self.peephole
        i, f = torch.sigmoid(i + p_i * c), torch.sigmoid(f + p_f * c)
        c = f * c + i * torch.tanh(g)
        h = torch.sigmoid(o + p_o * c) * torch.tanh(c)
        return (h, c), h

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        if state is None:
            zeros = x.new_zeros(x.shape[1], self.hidden)
            state = (zeros, zeros)
        last, y = weft.scan(self.step, state, x)
        return y, last
