"""Classifies sequences: a bidirectional GRU reads them, attention looks at what it read.

A sequence is noise with one marked place; its class is the sign of the value there. Plain PyTorch;
`weft run examples/attention.py` runs it on Weft.
"""

import argparse

import torch
from ending import evaluation, report
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.GRU(2, width, batch_first=True, bidirectional=True)
        self.query = nn.Parameter(torch.randn(2 * width) * 0.1)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(4 * width, 2)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states, last = self.encoder(sequence)
        states = self.norm(states)
        query = self.query.expand(len(sequence), 1, -1)
        seen, _ = self.attention(query, states, states, need_weights=False)
        scores: torch.Tensor = self.head(torch.cat([seen[:, 0], last[0], last[1]], dim=1))
        return scores


def batch(size: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[size, steps, 2]: a value and a mark a step; the class is 1 where the marked value is positive."""
    values, marks = torch.randn(size, steps), torch.zeros(size, steps)
    rows, place = torch.arange(size), torch.randint(steps, (size,))
    marks[rows, place] = 1
    return torch.stack([values, marks], dim=2), (values[rows, place] > 0).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier(options.width)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)

    def train_step(steps: int) -> float:
        sequence, target = batch(32, steps)
        loss = nn.functional.cross_entropy(model(sequence), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    for step in range(options.steps):
        print(f"step {step} loss {train_step(8 + step % 5):.8f}")
    with evaluation(model):
        sequence, target = batch(1000, 12)
        right = (model(sequence).argmax(1) == target).float().mean().item()
    report(right, "1000 new sequences of 12 steps", lambda: train_step(12))


if __name__ == "__main__":
    main()
