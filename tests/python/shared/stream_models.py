"""Random models over time [B, T, C] that can be streamed, whole or in chunks."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

B, C = 2, 6
MODELS = int(os.environ.get("WEFT_RANDOM_STREAMS", "40"))


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
    """A layer, or a few with branches around them."""
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


class Reflected(nn.Module):
    """A convolution over [B, T, C], padded on both sides by the sequence's own elements."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        half, dilation = rng.randint(0, 3), rng.randint(1, 2)
        self.conv = nn.Conv1d(
            *(C, C, 2 * half + 1),
            padding=half * dilation,
            dilation=dilation,
            padding_mode=rng.choice(["reflect", "replicate"]),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class FromTheFirst(nn.Module):
    """What follows from a few of the first steps: the initial state of a recurrent layer, a factor, steps in front."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.first, self.count = rng.randint(0, 4), rng.randint(1, 3)
        self.how = rng.choice(["state", "factor", "difference", "front", "loop"])
        self.make, self.gru = nn.Linear(C, C), nn.GRU(C, C, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        head = x[:, self.first : self.first + self.count]
        if self.how == "front":
            return torch.cat([head.flip(1), x], 1)[:, : -self.count]
        made = torch.tanh(self.make(head).mean(1))
        if self.how == "state":
            return self.gru(x, made.unsqueeze(0))[0]
        if self.how == "loop":
            return torch.cat([made.unsqueeze(1), self.gru(x[:, 1:], made.unsqueeze(0))[0]], 1)
        return x * made.unsqueeze(1) if self.how == "factor" else x - made.unsqueeze(1)


def head(rng: random.Random) -> nn.Module:
    """A layer whose beginning depends on the first elements, perhaps with a branch around it."""
    inner = rng.choice([Reflected, FromTheFirst])(rng)
    return rng.choice([inner, Residual(inner)])
