"""A speech model: convolutions over frames, a recurrent layer, and characters chosen greedily."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn


class Recognizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(16, 24, 5, 2, 2), nn.GELU(), nn.Conv1d(24, 24, 5, 2, 2), nn.GELU())
        self.layer = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 12)

    def forward(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        hidden, _ = self.layer(self.frames(audio).transpose(1, 2))
        scores = self.head(hidden).log_softmax(-1)
        best = scores.argmax(-1)[0]
        spoken = torch.unique_consecutive(best)
        return scores, spoken[spoken != 0]


def main() -> None:
    torch.manual_seed(0)
    model = torch.compile(Recognizer().eval(), backend=sys.argv[1])
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(1, 16, 64))


if __name__ == "__main__":
    main()
