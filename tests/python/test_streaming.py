"""weft.stream: a model over time in chunks gives what it gives for the whole sequence."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft

B, C = 2, 6


def chunked(stream: weft._streaming.stream.Stream, xs: Tensor, time: int, rng: random.Random) -> list[Tensor]:
    """All results of the sequence, fed in random chunks."""
    stream.reset()
    parts: list[list[Tensor]] = []
    at = 0
    while at < xs.shape[time]:
        most = (xs.shape[time] - at) // stream.chunk
        steps = stream.chunk * rng.randint(1, min(most, 5))
        piece = xs.narrow(time, at, steps)
        result = stream.step(piece) if steps == stream.chunk and rng.random() < 0.5 else stream.run(piece)
        parts.append([leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)])
        at += steps
    return [
        pieces[-1] if port.time is None else torch.cat(pieces, port.time)
        for pieces, port in zip(zip(*parts, strict=True), stream.outputs, strict=True)
    ]


def compare(model: Callable[..., Any], xs: Tensor, time: int, *, delay: int = 0, seed: int = 0) -> Any:
    """Chunks give what the model gives, and any chunks the same bits."""
    rng = random.Random(seed)
    stream = weft.stream(model, xs, time=time, delay=delay, check=False)
    with torch.no_grad():
        whole = [leaf for leaf in torch.utils._pytree.tree_leaves(model(xs)) if isinstance(leaf, Tensor)]
    xs = xs.narrow(time, 0, xs.shape[time] // stream.chunk * stream.chunk)
    ways = [chunked(stream, xs, time, rng) for _ in range(3)]
    for expected, found, port in zip(whole, ways[0], stream.outputs, strict=True):
        if port.time is not None:
            last = min(found.shape[port.time], expected.shape[port.time] + port.lag)
            assert last > port.lag, "nothing was compared"
            found = found[(slice(None),) * port.time + (slice(max(port.lag, 0), last),)]
            first = max(-port.lag, 0)
            expected = expected[(slice(None),) * port.time + (slice(first, first + found.shape[port.time]),)]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for way in ways[1:]:
        for one, other in zip(ways[0], way, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
    return stream


# ---- random models


class Conv(nn.Module):
    """A causal convolution over [B, T, C], padded in one of the ways people pad."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        kernel, dilation = rng.randint(1, 4), rng.randint(1, 3)
        self.reach, self.how = (kernel - 1) * dilation, rng.choice(["pad", "both", "cat"])
        padding = self.reach if self.how == "both" else 0
        self.conv = nn.Conv1d(
            C, C, kernel, dilation=dilation, groups=rng.choice([1, 2, C]), padding=padding, bias=rng.random() < 0.7
        )
        self.register_buffer("before", torch.randn(B, C, self.reach))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        if self.how == "pad":
            x = F.pad(x, (self.reach, 0))
        elif self.how == "cat":
            x = torch.cat([self.before, x], 2)
        y = self.conv(x)
        if self.how == "both" and self.reach > 0:
            y = y[:, :, : -self.reach]
        return y.transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        kind = rng.choice([nn.GRU, nn.LSTM, nn.RNN])
        self.rnn = kind(C, C, num_layers=rng.randint(1, 2), batch_first=True, bias=rng.random() < 0.8)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class Function(nn.Module):
    def __init__(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def extra_repr(self) -> str:
        return self.name

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cumsum": lambda x: x.cumsum(1) * 0.1,
    "cummax": lambda x: x.cummax(1)[0],
    "difference": lambda x: x - F.pad(x, (0, 0, 1, 0))[:, :-1],
    "moving mean": lambda x: F.avg_pool1d(F.pad(x.transpose(1, 2), (2, 0)), 3, 1).transpose(1, 2),
    "moving max": lambda x: F.max_pool1d(F.pad(x.transpose(1, 2), (2, 0)), 3, 1).transpose(1, 2),
    "valid": lambda x: x[:, 2:] - x[:, :-2],
    "positions": lambda x: x + 0.01 * torch.arange(x.shape[1]).remainder(7).view(1, -1, 1),
    "rows": lambda x: x.reshape(-1, C).softmax(-1).reshape(x.shape),
    "biased": lambda x: F.pad(x, (0, 0, 3, 0)).add(1).tanh()[:, 1:-2],
    "every other": lambda x: x[:, ::2],
    "twice": lambda x: x.repeat_interleave(2, 1),
    "select": lambda x: torch.where(x > 0, x, 0.1 * x),
}


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Branches(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.out = first, second, nn.Linear(2 * C, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.first(x), self.second(x)], -1))


#: Functions that change how many steps there are.
OTHER_LENGTH = {"valid", "every other", "twice"}


def layer(rng: random.Random, depth: int = 0) -> nn.Module:
    kind = rng.randrange(9 if depth < 2 else 7)
    if kind == 0:
        return nn.Linear(C, C)
    if kind == 1:
        return nn.LayerNorm(C)
    if kind == 2:
        return rng.choice([nn.ReLU(), nn.GELU(), nn.Tanh(), nn.SiLU()])
    if kind == 3:
        return Recurrent(rng)
    if kind in (4, 5):
        return Conv(rng)
    if kind == 6:
        names = [name for name in FUNCTIONS if depth == 0 or name not in OTHER_LENGTH]
        name = rng.choice(names)
        return Function(name, FUNCTIONS[name])
    if kind == 7:
        return Residual(layer(rng, depth + 1))
    return Branches(layer(rng, depth + 1), layer(rng, depth + 1))


MODELS = int(os.environ.get("WEFT_RANDOM_STREAMS", "40"))


@pytest.mark.parametrize("seed", range(MODELS))
def test_random_models(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 6)))).eval()
    compare(model, torch.randn(B, 24, C), 1, seed=seed)
