"""A differential equation whose right side is a network is solved on the device, and each of its 16 steps asks for its
error. STEPS: prints the seconds of one solution, the median."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn

import weft

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
field = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)).to("weft")
total = 0.0
ends = []
with torch.no_grad():
    for _ in range(steps):
        y = torch.randn(32, 16).to("weft")
        for _ in range(16):
            slope = field(y)
            better = field(y + 0.05 * slope)
            total += (better - slope).abs().max().item()
            y = y + 0.025 * (slope + better)
        weft.sync()
        ends.append(time.perf_counter())
print(total)
if len(sys.argv) > 1:
    print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)
