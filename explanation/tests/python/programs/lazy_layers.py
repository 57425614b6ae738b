"""A stack of layers is trained on the device, and looks at the size of each layer's result. With an argument STEPS,
prints the median of a step's seconds."""

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn

import weft

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
layers = nn.ModuleList([nn.Linear(48, 48) for _ in range(8)]).to("weft")
optimizer = torch.optim.SGD(layers.parameters(), 0.05)
ends = []
for _ in range(steps):
    x, wanted = torch.randn(16, 48).to("weft"), torch.randn(16, 48).to("weft")
    for layer in layers:
        x = torch.tanh(layer(x))
        if x.abs().max() > 2:
            x = x * 0.5
    loss = nn.functional.mse_loss(x, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weft.sync()
    ends.append(time.perf_counter())
if len(sys.argv) > 1:
    print(statistics.median(b - a for a, b in pairwise(ends[20:])), file=sys.stderr)
