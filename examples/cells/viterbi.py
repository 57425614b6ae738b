"""The Viterbi algorithm: the best path forward with backpointers, then the pointers followed backward.

Viterbi: Error Bounds for Convolutional Codes, 1967; Rabiner: A Tutorial on Hidden Markov Models, 1989,
section III.B.
"""

from __future__ import annotations

import torch
from torch import Tensor

import weft


def viterbi(initial: Tensor, transition: Tensor, emissions: Tensor) -> tuple[Tensor, Tensor]:
    """(score of the best path [B], its states int64 [T, B]).

    `initial` [S], `transition` [S, S] from row to column and `emissions` [T, B, S] are scores that add up, such as
    log-probabilities or a CRF's potentials. The score is differentiable: its gradient marks the path.
    """

    def forward(best: Tensor, emission: Tensor) -> tuple[Tensor, Tensor]:
        best, pointer = (best[:, :, None] + transition).max(dim=1)
        return best + emission, pointer

    def backward(state: Tensor, pointer: Tensor) -> tuple[Tensor, Tensor]:
        state = pointer.gather(1, state[:, None])[:, 0]
        return state, state

    first = initial + emissions[0]
    if len(emissions) == 1:
        score, last = first.max(dim=1)
        return score, last[None]
    best, pointers = weft.scan(forward, first, emissions[1:])
    score, last = best.max(dim=1)
    _, states = weft.scan(backward, last, pointers, reverse=True)
    return score, torch.cat([states, last[None]])
