"""Classifies sequences: a bidirectional GRU reads them, and attention reads the GRU's outputs.

A sequence is noise with one marked place; its class is the sign of the value there. Plain PyTorch;
`weft run examples/attention.py` runs it on Weft.
"""

import argparse
import sys
import time

import torch
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


@torch.no_grad()
def accuracy(model: Classifier) -> float:
    """The fraction of sequences that are classified correctly."""
    sequence, target = batch(500, 10)
    share: float = (model.eval()(sequence).argmax(1) == target).float().mean().item()
    return share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier(options.width)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    begin = time.perf_counter()
    for step in range(options.steps):
        sequence, target = batch(32, 8 + step % 5)
        loss = nn.functional.cross_entropy(model(sequence), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step} loss {loss.item():.8f}")
        if step == 0:
            begin = time.perf_counter()  # what is done once is not counted
    seconds, how = time.perf_counter() - begin, "with" if "weft" in sys.modules else "without"
    print(f"accuracy {accuracy(model):.3f} on new sequences, {(options.steps - 1) / seconds:.1f} steps/s {how} Weft")


if __name__ == "__main__":
    main()
