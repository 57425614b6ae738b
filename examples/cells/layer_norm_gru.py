"""A GRU with layer normalisation and block-diagonal recurrent weights, the sequence model of DreamerV3.

Hafner, Pasukonis, Ba, Lillicrap: Mastering Diverse Domains through World Models, arXiv 2301.04104. As in the authors'
code, one normalisation covers all three gates, the reset gate multiplies the candidate after its product, and the
update gate starts out nearly shut:

    r, c, u = norm(U h + W x)         U: `blocks` blocks of [hidden / blocks, 3 hidden / blocks]
    u = sigmoid(u - 1)
    h = u tanh(sigmoid(r) c) + (1 - u) h
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


class LayerNormGRU(nn.Module):
    """x [T, B, inputs], h [B, hidden] -> (y [T, B, hidden], last h). `hidden` is a multiple of `blocks`."""

    def __init__(self, inputs: int, hidden: int, blocks: int = 8) -> None:
        super().__init__()
        self.hidden, self.blocks = hidden, blocks
        width = hidden // blocks
        self.input = nn.Linear(inputs, 3 * hidden, bias=False)
        self.recurrent = nn.Parameter(torch.randn(blocks, width, 3 * width) * width**-0.5)
        self.norm = nn.LayerNorm(3 * hidden)

    def product(self, h: Tensor) -> Tensor:
        return torch.cat([part @ block for part, block in zip(h.chunk(self.blocks, 1), self.recurrent, strict=True)], 1)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        gates = self.norm(self.product(h) + self.input(x)).unflatten(1, (self.blocks, -1))
        reset, candidate, update = (gate.flatten(1) for gate in gates.chunk(3, dim=2))
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        update = torch.sigmoid(update - 1)
        h = update * candidate + (1 - update) * h
        return h, h

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if h is None:
            h = x.new_zeros(x.shape[1], self.hidden)
        last, y = weft.scan(self.step, h, x)
        return y, last
