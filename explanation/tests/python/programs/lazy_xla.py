"""A program by PyTorch/XLA's names, whose model looks at its values. STEPS: prints the seconds of one, the median."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import Tensor, nn

import weft.compat.torch_xla.core.xla_model as xm


class Net(nn.Module):
    """A recurrent classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layer(x)
        if y.abs().max() > 5:
            y = y * 0.5
        print("mean", y.mean().item())
        return self.head(y[:, -1])


def main(steps: int) -> None:
    torch.manual_seed(0)
    device = xm.xla_device()
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ends = []
    for _ in range(steps):
        x, wanted = torch.randn(8, 12, 16).to(device), torch.randint(0, 8, (8,)).to(device)
        loss = nn.functional.cross_entropy(model(x), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()
        ends.append(time.perf_counter())
    if len(sys.argv) > 1:
        print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)


main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
