"""A policy with memory over a rollout whose episodes end anywhere: where one has ended the state starts anew.

A recurrent actor-critic, as in Espeholt et al.: IMPALA, arXiv 1802.01561: `starts[t, b]` says that at t environment b
was reset, and the state before that step is then the learned initial one. Gradients don't cross a reset.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import weft


class Decision(NamedTuple):
    logits: Tensor
    value: Tensor


class Policy(nn.Module):
    """seen [T, B, inputs], starts bool [T, B], h [B, hidden] -> (logits [T, B, actions] and value [T, B], last h)."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs, hidden)
        self.initial = nn.Parameter(torch.randn(hidden) * 0.1)
        self.action = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def step(self, h: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Decision]:
        seen, starts = inputs
        h = self.cell(seen, torch.where(starts[:, None], self.initial, h))
        return h, Decision(self.action(h), self.value(h)[:, 0])

    def forward(self, seen: Tensor, starts: Tensor, h: Tensor | None = None) -> tuple[Decision, Tensor]:
        if h is None:
            h = self.initial.expand(seen.shape[1], -1)
        last, decisions = weft.scan(self.step, h, (seen, starts))
        return decisions, last
