"""A keyword spotter: a filter bank, a GRU, and the most likely word so far."""

from __future__ import annotations

import math

import torch
from packages.training import Training
from torch import Tensor, nn
from torch.nn import functional

RATE = 8_000  #: samples a second
HOP = 80  #: samples of a call
FRAME = 2 * HOP  #: samples that the filters look at
WORDS = ("nothing", "up", "down", "hello", "stop")
BANDS = 16


def filters() -> Tensor:
    """[FRAME, 2 BANDS]: windowed cosines, then sines, of frequencies from 150 Hz to 3.6 kHz, equal steps of mel."""
    mel = torch.linspace(2595 * math.log10(1 + 150 / 700), 2595 * math.log10(1 + 3600 / 700), BANDS)
    frequency = 700 * (10 ** (mel / 2595) - 1)
    t = torch.arange(FRAME)
    window = torch.sin(math.pi * (t + 0.5) / FRAME) ** 2 * 2 / FRAME
    angle = 2 * math.pi * frequency[:, None] * t / RATE
    return (torch.cat([torch.cos(angle), torch.sin(angle)]) * window).t().contiguous()


class Spotter(nn.Module):
    """Maps the log energies of the bands of each 10 ms, through a GRU, to a score for each word."""

    bank: Tensor

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.register_buffer("bank", filters())
        self.gru = nn.GRU(BANDS, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(WORDS))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T] -> [B, T / HOP, words]; T is a multiple of HOP."""
        new = x.unflatten(1, (-1, HOP))
        frames = torch.cat([functional.pad(new[:, :-1], (0, 0, 1, 0)), new], 2)
        waves = frames @ self.bank
        energy = waves[:, :, :BANDS].square() + waves[:, :, BANDS:].square()
        features = torch.log(energy + 1e-6) * 0.25 + 2
        scores: Tensor = self.out(self.gru(features)[0])
        return scores


#: The syllables of each word: two formants in Hz at the beginning, and at the end.
SYLLABLES: dict[str, list[tuple[int, int, int, int]]] = {
    "up": [(500, 900, 800, 2200)],
    "down": [(800, 2200, 400, 900)],
    "hello": [(550, 1900, 550, 1900), (450, 800, 350, 700)],
    "stop": [(2600, 3300, 2600, 3300), (600, 1000, 600, 1000)],
}


def spoken(words: Tensor, generator: torch.Generator) -> Tensor:
    """[N] numbers of words -> [N, RATE]: each within a second, at a random moment, pitch, speed and loudness, in noise;
    of "nothing" the noise alone, or two syllables of no word."""
    sounds = torch.zeros(len(words), RATE)
    for row, word in enumerate(words.tolist()):
        draw = torch.rand(8, generator=generator).tolist()
        if word:
            syllables = SYLLABLES[WORDS[word]]
        elif draw[0] < 0.5:
            syllables = []
        else:
            syllables = [(300, 2400, 300, 2400), (900, 1400, 700, 1600)]
        long = int(RATE * (0.16 + 0.08 * draw[1]))
        at = int(draw[2] * (RATE - 2 * long - 800))
        for first, second, first_end, second_end in syllables:
            t = torch.arange(long) / long
            phase = 2 * math.pi * torch.cumsum((100 + 120 * draw[3]) * (1 + 0.1 * t), 0) / RATE
            sound = torch.zeros(long)
            for harmonic in range(1, 20):
                frequency = harmonic * (100 + 120 * draw[3])
                shift = 0.94 + 0.12 * draw[4]
                for formant, width in (
                    (first + (first_end - first) * t, 120),
                    (second + (second_end - second) * t, 180),
                ):
                    loud = torch.exp(-(((frequency - formant * shift) / width) ** 2))
                    sound += loud * torch.sin(harmonic * phase)
            sounds[row, at : at + long] += sound * torch.sin(math.pi * t) * (0.1 + 0.2 * draw[5])
            at += int(long * 0.9)
        sounds[row] += torch.randn(RATE, generator=generator) * 0.02 * draw[6]
    return sounds


def train(model: Spotter, seconds: float, most: int | None = None) -> list[float]:
    """Trains on 32 words at once, for so many seconds or `most` times; the losses. What counts is the last frame, and
    half as much those of the last quarter."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(len(WORDS), (400 if most is None else 160,), generator=generator)
    pool = spoken(labels, generator)
    training = Training(model, 8e-3, seconds, most)
    for part in training.parts():
        chosen = torch.randint(len(pool), (32,), generator=generator)
        louder = 10 ** (torch.rand(32, 1, generator=generator) - 0.7)
        scores = model(pool[chosen] * louder + 0.005 * torch.randn(32, RATE, generator=generator))
        late = scores[:, -25:].flatten(0, 1)
        loss = functional.cross_entropy(scores[:, -1], labels[chosen])
        loss = loss + 0.5 * functional.cross_entropy(late, labels[chosen].repeat_interleave(25))
        training.step(loss, part)
    return training.losses
