"""A model with parts that Dynamo can't look into: a function that is marked, a checksum as a feature, a loop that ends
when the values are large."""

from __future__ import annotations

import statistics
import sys
import time
import zlib

import torch
from torch import Tensor, nn


@torch.compiler.disable
def sharpened(x: Tensor) -> Tensor:
    for _ in range(20):
        x = torch.sin(x) * 1.01
    return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = sharpened(torch.relu(self.first(x)))
        sums = torch.tensor([zlib.crc32(row.numpy().tobytes()) % 7 for row in x.detach()], dtype=torch.float32)
        x = torch.tanh(self.second(x) + sums[:, None])
        return self.grown(x)

    def grown(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(x) * torch.exp(-x.abs()) + torch.cos(x).square()
        for i in range(3):
            if float(x.max()) > 1e6:
                break
            x = x + i
        return torch.log1p(x.abs()) * torch.sin(x) + x.softmax(-1)


def main() -> None:
    """BACKEND [STEPS]: with a number of steps, prints the seconds of one, the median, to standard error."""
    torch.manual_seed(0)
    model = torch.compile(Model(), backend=sys.argv[1])
    x = torch.randn(16, 64)
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
