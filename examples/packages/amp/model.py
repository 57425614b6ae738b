"""A guitar amplifier to be learned, the network that learns it, and its training."""

from __future__ import annotations

import math

import torch
from packages.training import Training
from torch import Tensor, nn

import weft

RATE = 48_000  #: samples a second


def guitar(seconds: float, rows: int, generator: torch.Generator) -> Tensor:
    """[T, rows]: plucked notes between -1 and 1, four a second, with pauses: harmonics that die the sooner the higher
    they are, of changing strength."""
    total, note = int(seconds * RATE), RATE // 4
    at = torch.arange(note) / RATE
    notes = []
    for _ in range(-(-total // note)):
        pitch = 82.4 * 2 ** (torch.randint(0, 37, (rows,), generator=generator) / 12)
        strength = torch.rand(rows, generator=generator) * (torch.rand(rows, generator=generator) > 0.1)
        sound = torch.zeros(note, rows)
        for harmonic in range(1, 13):
            phase = 2 * math.pi * torch.rand(rows, generator=generator)
            decay = torch.exp(-at[:, None] * (2.0 + harmonic))
            frequency = 2 * math.pi * harmonic * pitch
            sound += decay / harmonic * torch.sin(frequency * at[:, None] + phase)
        notes.append(sound * strength * (1 - torch.exp(-at[:, None] * 400)))
    return 0.5 * torch.cat(notes)[:total]


def circuit(x: Tensor) -> Tensor:
    """[T, rows] through a synthesised amplifier: a coupling capacitor, a supply that sags under load, a stage that
    clips its two sides differently, and a treble cut. A one-pole filter of corner frequency f keeps
    exp(-2 pi f / RATE) of its state."""
    coupling, sag, tone = (1 - math.exp(-2 * math.pi * corner / RATE) for corner in (90.0, 8.0, 5200.0))

    def step(carry: tuple[Tensor, Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        low, load, smooth = carry
        low = low + coupling * (x - low)
        driven = 8 * (x - low)
        load = load + sag * (driven.abs() - load)
        driven = driven / (1 + 0.3 * load) + 0.2
        clipped = torch.where(driven > 0, torch.tanh(driven), 0.6 * torch.tanh(driven / 0.6)) - math.tanh(0.2)
        smooth = smooth + tone * (clipped - smooth)
        return (low, load, smooth), smooth

    zeros = x.new_zeros(x.shape[1])
    with torch.no_grad():
        y: Tensor = weft.scan(step, (zeros, zeros, zeros), x)[1]
    return 0.7 * y


class Amp(nn.Module):
    """An LSTM and the input itself."""

    def __init__(self, hidden: int = 40) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def piece(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The piece [B, T, 1] that follows the one which ended with `state`."""
        y, after = self.lstm(x, state)
        return x + self.out(y), after

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, 1] -> [B, T, 1]."""
        return self.piece(x, None)[0]


def error_to_signal(found: Tensor, wanted: Tensor) -> Tensor:
    """The energy of the error as a part of the signal's, over all elements."""
    return (found - wanted).square().sum() / wanted.square().sum().clamp(min=1e-9)


def train(model: Amp, seconds: float, most: int | None = None) -> list[float]:
    """Trains on pieces of 1,024 samples, 24 sounds at once, for so many seconds or `most` pieces; the losses.

    The state goes on from piece to piece of a sound, without gradient. The loss is that of the literature: the error's
    part of the signal behind a filter that raises the treble (y[t] - 0.85 y[t - 1]), and that of its mean.
    """
    generator = torch.Generator().manual_seed(1)
    training = Training(model, 4e-3, seconds, most)
    while training.part() < 1:
        x = guitar(1.0, 24, generator)
        y = circuit(x)
        state = None
        for given, wanted in zip(x.split(1024), y.split(1024), strict=True):
            if (part := training.part()) >= 1:
                break
            found, state = model.piece(given.t().unsqueeze(-1), state)
            found = found.squeeze(-1).t()
            bright = error_to_signal(found[1:] - 0.85 * found[:-1], wanted[1:] - 0.85 * wanted[:-1])
            loss = bright + (found.mean() - wanted.mean()).square() / wanted.square().mean().clamp(min=1e-9)
            training.step(loss, part)
            state = (state[0].detach(), state[1].detach())
    return training.losses
