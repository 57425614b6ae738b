"""The loss of a linear-chain conditional random field over sequences of different lengths.

Lafferty, McCallum, Pereira: Conditional Random Fields, 2001; as a layer on a tagger: Lample et al., arXiv 1603.01360,
section 2.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import weft


class LinearChainCRF(nn.Module):
    """emissions [T, B, S], tags int64 [T, B], lengths int64 [B], each at least 1 -> -log p(tags | emissions) [B]."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.randn(tags) * 0.1)
        self.final = nn.Parameter(torch.randn(tags) * 0.1)
        self.transition = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def log_partition(self, emissions: Tensor, present: Tensor) -> Tensor:
        def step(alpha: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
            emission, here = inputs
            new = torch.logsumexp(alpha[:, :, None] + self.transition, dim=1) + emission
            return torch.where(here[:, None], new, alpha), None

        alpha = self.initial + emissions[0]
        if len(emissions) > 1:
            alpha, _ = weft.scan(step, alpha, (emissions[1:], present[1:]))
        return torch.logsumexp(alpha + self.final, dim=1)

    def score(self, emissions: Tensor, tags: Tensor, present: Tensor, lengths: Tensor) -> Tensor:
        each = emissions.gather(2, tags[:, :, None])[:, :, 0]
        moves = self.transition[tags[:-1], tags[1:]]
        last = tags.gather(0, lengths[None] - 1)[0]
        inside = (each * present).sum(0) + (moves * present[1:]).sum(0)
        return self.initial[tags[0]] + inside + self.final[last]

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        present = torch.arange(len(emissions), device=emissions.device)[:, None] < lengths
        return self.log_partition(emissions, present) - self.score(emissions, tags, present, lengths)
