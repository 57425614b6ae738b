"""Small models as users write them, each with a habit that ends graphs, or did so in earlier versions of PyTorch."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]  #: what is called, with what
Maker = Callable[[], Made]

_LOG = logging.getLogger(__name__)


class Decoder(nn.Module):
    """A small causal transformer: tokens [B, T] -> logits of the next one [B, vocabulary]."""

    def __init__(self, vocabulary: int = 40, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        size = tokens.shape[1]
        mask = torch.triu(torch.full((size, size), -math.inf, device=tokens.device), 1)
        return self.head(self.layers(self.embed(tokens), mask)[:, -1])  # type: ignore[no-any-return]


class Generate(nn.Module):
    """Greedy decoding that checks after each token whether it was the last."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.last = Decoder(), 39

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        score = tokens.new_zeros(1, dtype=torch.float)
        for _ in range(6):
            scores = self.decoder(tokens).log_softmax(-1)
            best, token = scores.max(-1)
            score = score + best
            tokens = torch.cat([tokens, token[:, None]], 1)
            if token.item() == self.last:
                break
        return tokens, score


class BeamSearch(nn.Module):
    """Hypotheses are lists of Python's, as in most tutorials."""

    def __init__(self, beams: int = 3) -> None:
        super().__init__()
        self.decoder, self.beams = Decoder(), beams

    def forward(self, first: Tensor) -> tuple[Tensor, Tensor]:
        beams = [(0.0, first.tolist())]
        for _ in range(4):
            tokens = torch.tensor([words for _, words in beams], device=first.device)
            values, indices = self.decoder(tokens).log_softmax(-1).topk(self.beams)
            found = [
                (score + value, [*words, index])
                for (score, words), row, places in zip(beams, values.tolist(), indices.tolist(), strict=True)
                for value, index in zip(row, places, strict=True)
            ]
            beams = sorted(found, reverse=True)[: self.beams]
        best = torch.tensor([beams[0][1]], device=first.device)
        return best, self.decoder(best)


class Logged(nn.Module):
    """Prints statistics of every layer, and logs what looks wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = x + torch.tanh(layer(x))
            print(f"layer {number}: mean {x.mean():.4f}, deviation {x.std():.4f}")
            if torch.isnan(x).any():
                _LOG.warning("layer %d: not a number", number)
        return x


class Experts(nn.Module):
    """A mixture of experts that gathers the rows of each expert by `nonzero`."""

    def __init__(self, experts: int = 4, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.nonzero(chosen == number, as_tuple=True)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


class EarlyExit(nn.Module):
    """A classifier after each layer; the first that is sure of all rows answers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(5))
        self.heads = nn.ModuleList(nn.Linear(48, 10) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer, head in zip(self.layers, self.heads, strict=True):
            x = torch.relu(layer(x)) + x
            answer: Tensor = head(x)
            if answer.softmax(-1).amax(-1).min() > 0.5:
                break
        return answer


class ThroughNumpy(nn.Module):
    """Frames are resampled by numpy between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        frames = y.detach().cpu().numpy()
        energy = np.sort(np.abs(frames).sum(-1))
        places = np.interp(np.linspace(0, energy.sum(), 12), np.cumsum(energy), np.arange(len(energy)))
        chosen = torch.from_numpy(places.astype(np.int64)).to(x.device)
        return self.second(y[chosen])  # type: ignore[no-any-return]


class Tagger(nn.Module):
    """Sentences of different lengths through a recurrent layer, packed and padded again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 24, padding_idx=0)
        self.layer = nn.LSTM(24, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(self.embed(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=tokens.shape[1])
        return self.head(states).log_softmax(-1)  # type: ignore[no-any-return]


class Annealed(nn.Module):
    """Codes are chosen at a temperature that falls from call to call: a number of Python's that is never the same."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes, self.calls = nn.Linear(32, 16), nn.Embedding(16, 32), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        temperature = max(0.5, 0.999**self.calls)
        return (self.encode(x) / temperature).softmax(-1) @ self.codes.weight


class _Clipped(torch.autograd.Function):
    """A Function whose backward clips gradients, and records how large they were."""

    norms: list[float] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        _Clipped.norms.append(float(x.abs().max()))
        del _Clipped.norms[:-16]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        _Clipped.norms.append(float(gradient.norm()))
        return gradient.clamp(-1, 1)


class Clipped(nn.Module):
    """A recurrent network whose state passes a function with a gradient of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 32)
        for part in x.unbind(1):
            state = _Clipped.apply(self.cell(part, state))  # type: ignore[no-untyped-call]
        return state


class FromText(nn.Module):
    """Takes sentences: words are found by a pattern and looked up in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        words = [
            "the",
            "a",
            "cat",
            "dog",
            "bird",
            "sat",
            "ran",
            "sang",
            "on",
            "under",
            "mat",
            "tree",
            "and",
            "then",
            "it",
            "was",
        ]
        self.numbers = {word: number for number, word in enumerate(words, 1)}
        self.embed, self.head = nn.EmbeddingBag(len(words) + 1, 32), nn.Linear(32, 4)

    def forward(self, sentences: list[str]) -> Tensor:
        bags = [[self.numbers.get(word, 0) for word in re.findall(r"\w+", text.lower())] for text in sentences]
        longest = max(map(len, bags))
        tokens = torch.tensor([bag + [0] * (longest - len(bag)) for bag in bags], device=self.head.weight.device)
        return self.head(torch.tanh(self.embed(tokens)))  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """Layers are computed again in the backward, by the variant that PyTorch calls reentrant."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3))
        self.first = nn.Linear(32, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=True)
        return x


def _sentences() -> list[str]:
    return ["The cat sat on the mat.", "A dog ran under a tree, and then it sang!", "Birds?", "It was the bird."]


def _padded() -> Tensor:
    tokens = torch.randint(1, 60, (6, 20))
    for row, length in enumerate((20, 17, 11, 9, 4, 2)):
        tokens[row, length:] = 0
    return tokens


HABITS: dict[str, Maker] = {
    "greedy decoding": lambda: (Generate(), (torch.tensor([[1, 2, 3]]),), {}),
    "beam search": lambda: (BeamSearch(), (torch.tensor([1, 2]),), {}),
    "prints and logs": lambda: (Logged(), (torch.randn(16, 64),), {}),
    "experts by nonzero": lambda: (Experts(), (torch.randn(32, 32),), {}),
    "early exit": lambda: (EarlyExit(), (torch.randn(8, 48),), {}),
    "through numpy": lambda: (ThroughNumpy(), (torch.randn(24, 32),), {}),
    "packed tagger": lambda: (Tagger(), (_padded(),), {}),
    "annealed temperature": lambda: (Annealed(), (torch.randn(16, 32),), {}),
    "gradient clipped inside": lambda: (Clipped(), (torch.randn(8, 6, 16),), {}),
    "from text": lambda: (FromText(), (_sentences(),), {}),
    "checkpointed": lambda: (Checkpointed(), (torch.randn(16, 32, requires_grad=True),), {}),
}
