"""A training loop on the device that looks at its loss in three ways."""

import torch
from torch import nn

import weft

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to("weft")
optimizer = torch.optim.Adam(model.parameters())
total = 0.0
for _ in range(60):
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
print(total)
