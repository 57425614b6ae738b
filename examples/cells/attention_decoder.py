"""An LSTM decoder that attends to what an encoder read, the attention fed back into the next step.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation, arXiv 1508.04025: the
"general" score of section 3.1, the attentional state of equation (5), input feeding as in section 3.3. The step closes
over the encoder's outputs, [B, S, H], and over a module, nn.LSTMCell.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import weft


class State(NamedTuple):
    """Each [B, hidden]."""

    h: Tensor
    c: Tensor
    attended: Tensor


class AttentionDecoder(nn.Module):
    """x [T, B, inputs] (the words so far), memory [B, S, hidden], present [B, S] (false where the memory is padding) ->
    (attentional states [T, B, hidden], attention weights [T, B, S])."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs + hidden, hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x: Tensor, memory: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        def step(state: State, word: Tensor) -> tuple[State, tuple[Tensor, Tensor]]:
            h, c = self.cell(torch.cat([word, state.attended], dim=1), (state.h, state.c))
            scores = torch.einsum("bh,bsh->bs", self.query(h), memory).masked_fill(~present, float("-inf"))
            weights = torch.softmax(scores, dim=1)
            context = torch.einsum("bs,bsh->bh", weights, memory)
            attended = torch.tanh(self.output(torch.cat([context, h], dim=1)))
            return State(h, c, attended), (attended, weights)

        zeros = x.new_zeros(x.shape[1], memory.shape[2])
        _, (attended, weights) = weft.scan(step, State(zeros, zeros, zeros), x)
        return attended, weights
