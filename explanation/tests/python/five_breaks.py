"""A program with five breaks; the costs of two of them are known."""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn

#: Seconds that go with the first two breaks.
SLEEP, SLOW_PRINT = 0.012, 0.004


class Slow:
    """Takes its time to be printed."""

    def __str__(self) -> str:
        time.sleep(SLOW_PRINT)
        return "slow"


SLOW = Slow()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        time.sleep(SLEEP)
        x = x * 2 + 1
        scale = x.mean().item()
        x = x / (1 + abs(scale))
        print(SLOW)
        x = torch.tanh(self.second(x))
        if x.sum() > 0:  # noqa: SIM108
            x = x * 2
        else:
            x = x - 1
        for _ in range(2):
            x = x + torch.nonzero(x[0] > 0).shape[0]
            x = torch.sin(x)
            x = x + torch.nonzero(x[1] > 0).shape[0]
            x = torch.cos(x)
            x = x + torch.nonzero(x[2] > 0).shape[0]
        return x


def main() -> None:
    """BACKEND [STEPS]: with a number of steps, prints the seconds of one, the median, to standard error."""
    torch.manual_seed(0)
    model = torch.compile(Model(), backend=sys.argv[1])
    x = torch.ones(4, 16)
    seconds = []
    with torch.no_grad():
        for _ in range(3 + int((sys.argv[2:] or [0])[0])):
            begin = time.perf_counter()
            model(x)
            seconds.append(time.perf_counter() - begin)
    if sys.argv[2:]:
        print(statistics.median(seconds[3:]), file=sys.stderr)


if __name__ == "__main__":
    main()
