"""Two speech-like tasks with synthetic sound for quantize.py: recognising a word, and recognising the phone of each
frame."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

BANDS = 40
FRAMES = 200  # of an utterance of phones, 10 ms each
# A phone: its three formants in Hz, how loud it is beside the loudest, and the width of the formants in bands.
VOWELS = (
    (270, 2290, 3010), (390, 1990, 2550), (530, 1840, 2480), (660, 1720, 2410), (730, 1090, 2440), (570, 840, 2410),
    (440, 1020, 2240), (300, 870, 2240), (640, 1190, 2390), (490, 1350, 1690),
)  # fmt: skip
OTHERS = (
    (250, 1100, 2200, 0.6, 1.2), (250, 1500, 2500, 0.6, 1.2), (250, 2000, 2900, 0.6, 1.2),  # nasals
    (360, 1300, 2700, 0.7, 1.5), (310, 1060, 1380, 0.7, 1.5), (290, 610, 2150, 0.7, 1.5),  # liquids, glides
    (4200, 5200, 6500, 0.5, 4.0), (2600, 3500, 4600, 0.55, 4.0), (1400, 3000, 6800, 0.25, 6.0),  # fricatives
    (400, 1100, 2150, 0.1, 5.0), (400, 1750, 2600, 0.1, 5.0), (300, 2100, 2400, 0.1, 5.0),  # stops
    (500, 1500, 2500, 0.02, 8.0),  # silence
)  # fmt: skip


def bands_of(hertz: Tensor) -> Tensor:
    """The place of a frequency on the mel scale, in bands: 8 kHz is the last."""
    return torch.log1p(hertz / 700) / torch.log1p(torch.tensor(8000.0 / 700)) * BANDS


@dataclass
class Phones:
    """A language of phones: the probabilities with which one follows another."""

    formants: Tensor  # [phones, 3], Hz
    loudness: Tensor  # [phones]
    width: Tensor  # [phones], bands
    follows: Tensor  # [phones, phones]: chances of the next phone

    @staticmethod
    def make(generator: torch.Generator) -> Phones:
        table = torch.tensor([*((*vowel, 1.0, 1.5) for vowel in VOWELS), *OTHERS])
        chances = torch.randn(len(table), len(table), generator=generator).mul(1.5).softmax(1)
        return Phones(table[:, :3], table[:, 3], table[:, 4], chances)


def smoothed(tracks: Tensor) -> Tensor:
    """Means over seven frames of [count, frames, any]: a phone is spoken on the way between its neighbours."""
    return nn.functional.avg_pool1d(tracks.transpose(1, 2), 7, 1, 3, count_include_pad=False).transpose(1, 2)


def spoken_phones(count: int, phones: Phones, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Log spectra [frames, count, bands] and the phone of each frame [frames, count].

    Phones last 4 to 16 frames. A speaker has a length of vocal tract, which scales the formants, and a microphone with
    a gain for each band; noise is added to each frame.
    """
    labels = torch.empty(count, FRAMES, dtype=torch.long)
    for row in range(count):
        frame, phone = 0, int(torch.randint(len(phones.loudness), (), generator=generator))
        while frame < FRAMES:
            frames = int(torch.randint(4, 17, (), generator=generator))
            labels[row, frame : frame + frames] = phone
            frame += frames
            phone = int(torch.multinomial(phones.follows[phone], 1, generator=generator))
    tract = 0.85 + 0.35 * torch.rand(count, 1, 1, generator=generator)
    centres = bands_of(smoothed(phones.formants[labels] * tract))  # [count, frames, 3]
    loud, width = (smoothed(value[labels].unsqueeze(-1)) for value in (phones.loudness, phones.width))
    apart = (torch.arange(BANDS) - centres.unsqueeze(-1)) / width.unsqueeze(-1)
    peaks = torch.exp(-0.5 * apart.square()) * torch.tensor([1.0, 0.6, 0.35]).view(3, 1)
    spectra = torch.log(loud * peaks.sum(2) + 0.02)
    x = spectra + 0.4 * torch.randn(count, 1, BANDS, generator=generator)
    x = x + 0.9 * torch.randn(x.shape, generator=generator)
    return x.transpose(0, 1).contiguous(), labels.T.contiguous()


def spoken_words(count: int, classes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Filterbank-like sequences [60, count, 40] and words [count]: a word is a sequence of smooth spectra, spoken at a
    tempo of its own, by a speaker with a gain for each band, in noise."""
    steps, bands = 60, classes.shape[2]
    words = torch.randint(len(classes), (count,), generator=generator)
    tempo = 0.75 + 0.5 * torch.rand(count, 1, generator=generator)
    place = (torch.arange(steps) / steps * tempo * classes.shape[1]).clamp(0, classes.shape[1] - 1.001)
    low, part = place.long(), place.frac().unsqueeze(-1)
    spectra = classes[words]
    rows = torch.arange(count).unsqueeze(1)
    x = spectra[rows, low] * (1 - part) + spectra[rows, (low + 1).clamp(max=classes.shape[1] - 1)] * part
    x = x + 0.5 * torch.randn(count, 1, bands, generator=generator) + 2.0 * torch.randn(x.shape, generator=generator)
    return x.transpose(0, 1).contiguous(), words


def word_classes(generator: torch.Generator) -> Tensor:
    """Sixty words of six spectra each: [60, 6, 40]."""
    return nn.functional.avg_pool1d(torch.randn(60, 6, BANDS, generator=generator), 5, 1, 2)


class Classifier(nn.Module):
    """x [T, B, 40] -> scores of words [B, classes], by two bidirectional layers of 96 units."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(BANDS, 96, 2, bidirectional=True)
        self.out = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(x)
        return self.out(y.float().mean(0))


class Labeller(nn.Module):
    """x [T, B, 40] -> scores of phones [T, B, phones], by two layers of 160 units that see no frame ahead."""

    def __init__(self, phones: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(BANDS, 160, 2)
        self.out = nn.Linear(160, phones)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(x)
        return self.out(y.float())
