"""The forward algorithm of a hidden Markov model, in logarithms.

Rabiner: A Tutorial on Hidden Markov Models and Selected Applications in Speech Recognition, 1989, section III.A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


def log_forward(initial: Tensor, transition: Tensor, emissions: Tensor) -> Tensor:
    """log p(x_1 .. x_t, z_t) of each state z_t: [T, B, S].

    All are log-probabilities: `initial` [S], `transition` [S, S] from row to column, `emissions` [T, B, S] of what was
    seen in each state.
    """

    def step(alpha: Tensor, emission: Tensor) -> tuple[Tensor, Tensor]:
        alpha = torch.logsumexp(alpha[:, :, None] + transition, dim=1) + emission
        return alpha, alpha

    first = initial + emissions[0]
    if len(emissions) == 1:
        return first[None]
    _, alphas = weft.scan(step, first, emissions[1:])
    return torch.cat([first[None], alphas])


class HMM(nn.Module):
    """observations int64 [T, B], each below `symbols` -> log-likelihood [B]."""

    def __init__(self, states: int, symbols: int) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.randn(states))
        self.transition = nn.Parameter(torch.randn(states, states))
        self.emission = nn.Parameter(torch.randn(symbols, states))

    def forward(self, observations: Tensor) -> Tensor:
        emissions = self.emission.log_softmax(0)[observations]
        alphas = log_forward(self.initial.log_softmax(0), self.transition.log_softmax(1), emissions)
        return torch.logsumexp(alphas[-1], dim=1)
