"""The cost of a Python loop: unchanged, under torch.compile(backend="weft"), where it becomes a scan, and as weft.scan.

Usage: cost.py [STEPS...]     prints a table, for the given numbers of steps (32 and 256); nothing here is asserted
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import weft
from weft import backend

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure import median_ms

BATCH, INPUT, HIDDEN = 16, 64, 128
ROUNDS = 15


class Loop(nn.Module):
    """A cell with a normalised candidate, over all steps of x[T, B, I]."""

    def __init__(self, scans: bool) -> None:
        super().__init__()
        self.scans = scans
        self.inp, self.rec = nn.Linear(INPUT, 2 * HIDDEN), nn.Linear(HIDDEN, 2 * HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z, n = (self.inp(x) + self.rec(h)).chunk(2, -1)
        z = torch.sigmoid(z)
        h = z * h + (1 - z) * torch.tanh(self.norm(n))
        return h, h

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], HIDDEN)
        if self.scans:
            return weft.scan(self.step, h, x)[1]
        outputs = []
        for t in range(x.shape[0]):
            h, y = self.step(h, x[t])
            outputs.append(y)
        return torch.stack(outputs)


def measure(name: str, model: nn.Module, x: Tensor) -> None:
    def forward() -> None:
        with torch.no_grad():
            model(x)

    def training() -> None:
        model(x).sum().backward()

    before = backend.stats.seconds
    start = time.perf_counter()
    forward()
    training()
    first = time.perf_counter() - start
    own = backend.stats.seconds - before
    times = f"{median_ms(forward, ROUNDS, warm_up=2):10.2f} {median_ms(training, ROUNDS, warm_up=2):10.2f}"
    print(f"{x.shape[0]:6} {name:28} {times} {first:10.2f} {own:10.2f}")


def main() -> None:
    print(f"{'steps':>6} {'':28} {'forward ms':>10} {'train ms':>10} {'first s':>10} {'Weft s':>10}")
    for steps in [int(argument) for argument in sys.argv[1:]] or [32, 256]:
        torch.manual_seed(0)
        loop, scan = Loop(scans=False), Loop(scans=True)
        scan.load_state_dict(loop.state_dict())
        x = torch.randn(steps, BATCH, INPUT)
        torch._dynamo.reset()
        measure("loop", loop, x)
        measure('loop, backend="weft"', torch.compile(loop, backend="weft"), x)
        measure("weft.scan", scan, x)


if __name__ == "__main__":
    main()
