"""Inference on the device with a number that differs in each step, and a shape that depends on values."""

import torch
from torch import nn

import weft

torch.manual_seed(0)
model = nn.Linear(16, 8).to("weft")
with torch.no_grad():
    for step in range(24):
        x = torch.randn(12, 16).to("weft")
        y = torch.roll(model(x), step, 0)
        kept = y[y > 0]
        mean = kept.mean()
        weft.sync()
