"""A training loop on the device that reads its loss in three ways. STEPS: prints the median seconds of a step."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn

import weft

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to("weft")
optimizer = torch.optim.Adam(model.parameters())
total = 0.0
ends = []
for _ in range(steps):
    x, y = torch.randn(16, 32).to("weft"), torch.randint(0, 8, (16,)).to("weft")
    loss = nn.functional.cross_entropy(model(x), y)
    if loss > 100:
        loss = loss * 0.5
    optimizer.zero_grad()
    loss.backward()
    total += loss.item()
    optimizer.step()
    print("loss", loss)
    weft.sync()
    ends.append(time.perf_counter())
print(total)
if len(sys.argv) > 1:
    print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)
