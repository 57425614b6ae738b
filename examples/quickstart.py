"""Weft in two ways: nothing but an import, and a model compiled whole."""

import torch
from torch import nn

import weft  # from here on nn.GRU, nn.LSTM and nn.RNN run on Weft on the CPU

gru = nn.GRU(input_size=64, hidden_size=128)
y, h = gru(torch.randn(100, 8, 64))  # eager: forward and backward are compiled programs
y.sum().backward()


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.linear = nn.Embedding(1000, 64), nn.LSTM(64, 128), nn.Linear(128, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.linear(self.rnn(self.embedding(words))[0])
        return scores


tagger = torch.compile(Tagger(), backend="weft", fullgraph=True)  # one graph, whatever the length
for length in (20, 35, 50):
    tagger(torch.randint(1000, (length, 8))).sum().backward()
print(weft.stats())
