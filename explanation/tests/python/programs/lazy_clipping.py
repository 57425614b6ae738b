"""A stack of layers is trained on the device, and the norm of each gradient is asked for. STEPS: prints the seconds of
one, the median."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn

import weft

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
model = nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.Tanh()) for _ in range(6)), nn.Linear(48, 4)).to("weft")
optimizer = torch.optim.SGD(model.parameters(), 0.05)
norms = 0.0
ends = []
for _ in range(steps):
    x, wanted = torch.randn(16, 48).to("weft"), torch.randn(16, 4).to("weft")
    loss = nn.functional.mse_loss(model(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        norms += parameter.grad.norm().item()
    optimizer.step()
    weft.sync()
    ends.append(time.perf_counter())
print(norms)
if len(sys.argv) > 1:
    print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)
