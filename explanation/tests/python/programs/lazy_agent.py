"""A recurrent policy that is trained on the device against a target that moves: it keeps its errors on the CPU, counts
in Python, and clips by a number that it asks for. STEPS: prints the seconds of one, the median."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import Tensor, nn

import weft


class Policy(nn.Module):
    """Observations [B, 8] and a state [B, 32] -> actions [B, 4] and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = self.cell(x, h)
        return self.head(h).tanh(), h


torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
policy = Policy().to("weft")
optimizer = torch.optim.SGD(policy.parameters(), 0.05)
observed = torch.randn(16, 8, device="weft")
wanted = torch.randn(16, 4, device="weft")
worst = 0.0
errors = []
ends = []
for _ in range(steps):
    h = torch.zeros(16, 32, device="weft")
    x = observed
    lost = torch.zeros((), device="weft")
    for _ in range(4):
        action, h = policy(x, h)
        lost = lost + (action - wanted).square().mean()
        x = x + torch.cat([action, -action], 1) * 0.1
    errors = [*errors[-3:], lost.cpu()]
    optimizer.zero_grad()
    lost.backward()
    norm = policy.head.weight.grad.norm()
    if norm > 1:
        norm = norm * 1.5
    optimizer.step()
    worst += norm.item()
    weft.sync()
    ends.append(time.perf_counter())
print(worst, errors[-1])
if len(sys.argv) > 1:
    print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)
