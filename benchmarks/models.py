"""The whole models to measure, with data of the sizes on which they are trained."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Data = Callable[[], tuple[Tensor, Tensor]]


class LanguageModel(nn.Module):
    def __init__(self, cell: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 128)
        self.recurrent = getattr(nn, cell)(128, 256, num_layers=2)
        self.out = nn.Linear(256, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.recurrent(self.embedding(tokens))[0])


class LoopedCell(nn.Module):
    """A loop in Python over a cell that is no module of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec = nn.Linear(64, 256), nn.Linear(128, 256)
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], 128)
        for step in x:
            z, n = (self.inp(step) + self.rec(h)).chunk(2, -1)
            z = torch.sigmoid(z)
            h = z * h + (1 - z) * torch.tanh(self.norm(n))
        return self.out(h)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.embedding = nn.Embedding(256, 128)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.out = nn.Linear(128, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers(self.embedding(tokens)))


class Speech(nn.Module):
    """Frames [batch, time, 80 bands] to labels at half the rate: two convolutions, two bidirectional LSTMs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, 128, 5, stride=2, padding=2), nn.Conv1d(128, 128, 5, padding=2)
        self.recurrent = nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(256, 40)

    def forward(self, frames: Tensor) -> Tensor:
        features = torch.relu(self.second(torch.relu(self.first(frames.transpose(1, 2)))))
        return self.out(self.recurrent(features.transpose(1, 2))[0])


class Policy(nn.Module):
    """Observations [time, batch, 24], the last of which says where an episode starts, to action logits: a GRU cell in a
    loop whose state is cleared there."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 64), nn.Tanh())
        self.cell, self.out = nn.GRUCell(64, 128), nn.Linear(128, 8)

    def forward(self, observations: Tensor) -> Tensor:
        h = observations.new_zeros(observations.shape[1], 128)
        starts, states = observations[:, :, -1:] > 1.5, []
        for features, start in zip(self.encoder(observations), starts, strict=True):
            h = self.cell(features, torch.where(start, 0.0, h))
            states.append(h)
        return self.out(torch.stack(states))


def mlp() -> tuple[nn.Module, Data]:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(256, 10)), lambda: (torch.randn(64, 256), torch.randint(10, (64,)))


def convolutions() -> tuple[nn.Module, Data]:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    model = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 32), nn.Flatten(), nn.Linear(512, 10))
    return model, lambda: (torch.randn(16, 3, 32, 32), torch.randint(10, (16,)))


def tokens(*sizes: int) -> Data:
    return lambda: (torch.randint(256, sizes), torch.randint(256, sizes))


MODELS: dict[str, Callable[[], tuple[nn.Module, Data]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "encoder": lambda: (Encoder(), tokens(8, 64)),
    "gru": lambda: (LanguageModel("GRU"), tokens(64, 16)),
    "lstm": lambda: (LanguageModel("LSTM"), tokens(64, 16)),
    "looped_cell": lambda: (LoopedCell(), lambda: (torch.randn(32, 16, 64), torch.randint(16, (16,)))),
    "speech": lambda: (Speech(), lambda: (torch.randn(8, 200, 80), torch.randint(40, (8, 100)))),
    "policy": lambda: (Policy(), lambda: (torch.randn(32, 16, 24), torch.randint(8, (32, 16)))),
}
