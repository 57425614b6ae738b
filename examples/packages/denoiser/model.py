"""Noise suppression as RNNoise does it: gains of frequency bands, found by a small recurrent network."""

from __future__ import annotations

import math

import torch
from packages.training import Training
from torch import Tensor, nn
from torch.nn import functional

RATE = 16_000  #: samples a second
FRAME, HOP = 256, 128  #: samples of a spectrum, and between two of them
LATENCY = FRAME - HOP  #: samples by which the result is late
BINS, BANDS = FRAME // 2 + 1, 20


def spectrum_of_a_frame() -> tuple[Tensor, Tensor]:
    """[FRAME, 2 BINS], which makes a windowed frame's spectrum, real parts first, and [2 BINS, FRAME], which makes a
    windowed frame of that. Frames HOP apart add up to the signal: the window's square and its shifted copy make 1.
    """
    t, f = torch.arange(FRAME, dtype=torch.float64), torch.arange(BINS, dtype=torch.float64)
    window = torch.sin(math.pi * (t + 0.5) / FRAME)
    angle = 2 * math.pi * f[:, None] * t / FRAME
    forward = torch.cat([torch.cos(angle), -torch.sin(angle)]) * window
    share = torch.full((BINS, 1), 2.0 / FRAME, dtype=torch.float64)
    share[0] = share[-1] = 1.0 / FRAME
    back = torch.cat([torch.cos(angle) * share, -torch.sin(angle) * share]) * window
    return forward.float().t().contiguous(), back.float()


def triangles() -> Tensor:
    """[BINS, BANDS]: bands that overlap, equally wide on the mel scale; each bin's parts add up to 1."""
    mel = 2595 * torch.log10(1 + torch.arange(BINS) * (RATE / FRAME) / 700)
    place = mel / mel[-1] * (BANDS - 1)
    return (1 - (place[:, None] - torch.arange(BANDS)).abs()).clamp(min=0)


def delayed(y: Tensor) -> Tensor:
    """[B, frames, N] a frame later; zeros come first."""
    return functional.pad(y[:, :-1], (0, 0, 1, 0))


class Denoiser(nn.Module):
    """Spectrum, logarithms of the bands' energies, a causal convolution, two GRUs, a gain for each band, and sound
    again."""

    analysis: Tensor
    synthesis: Tensor
    bands: Tensor

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        analysis, synthesis = spectrum_of_a_frame()
        self.register_buffer("analysis", analysis)
        self.register_buffer("synthesis", synthesis)
        self.register_buffer("bands", triangles())
        self.front = nn.Conv1d(BANDS, width, 3)
        self.gru = nn.GRU(width, width, 2, batch_first=True)
        self.gains = nn.Linear(width, BANDS)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T] -> [B, T], LATENCY samples late; T is a multiple of HOP."""
        half = x.unflatten(1, (-1, HOP))
        spectrum = torch.cat([delayed(half), half], 2) @ self.analysis
        power = spectrum[:, :, :BINS].square() + spectrum[:, :, BINS:].square()
        energy = torch.log(power @ self.bands + 1e-4)
        y = functional.pad(energy.transpose(1, 2) * 0.3, (2, 0))
        y = torch.relu(self.front(y)).transpose(1, 2)
        gains = torch.sigmoid(self.gains(self.gru(y)[0])) @ self.bands.t()
        frames = (spectrum * torch.cat([gains, gains], 2)) @ self.synthesis
        # The first half of a frame lies over the second half of the frame before.
        return (frames[:, :, :HOP] + delayed(frames[:, :, HOP:])).flatten(1)


def speech(seconds: float, rows: int, generator: torch.Generator) -> Tensor:
    """[rows, T]: syllables of gliding pitch, whose harmonics are louder near two formants, with hisses and pauses."""
    syllable = RATE // 5
    at = torch.arange(syllable) / RATE
    envelope = torch.sin(math.pi * torch.arange(syllable) / syllable) ** 0.7

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(rows, 1, generator=generator)

    sounds = []
    for _ in range(-(-int(seconds * RATE) // syllable)):
        pitch, glide = draw(90, 250), draw(-200, 200)
        phase = 2 * math.pi * (pitch * at + 0.5 * glide * at * at)
        first, second = draw(300, 900), draw(1000, 2800)
        sound = torch.zeros(rows, syllable)
        for harmonic in range(1, 25):
            frequency = harmonic * pitch
            loud = torch.exp(-(((frequency - first) / 150) ** 2)) + 0.5 * torch.exp(
                -(((frequency - second) / 250) ** 2)
            )
            sound += (loud + 0.05 / harmonic) * torch.sin(harmonic * phase)
        hiss = torch.randn(rows, syllable, generator=generator)
        hiss = hiss - torch.roll(hiss, 1, 1)
        kind = torch.rand(rows, 1, generator=generator)
        sounds.append(torch.where(kind < 0.15, 0.15 * hiss, sound) * envelope * (kind < 0.75) * draw(0.2, 1.0))
    return 0.3 * torch.cat(sounds, 1)[:, : int(seconds * RATE)]


def noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """[rows, T] as `like`: noise of random colour that changes slowly in strength, and a hum; its energy is 1."""
    rows, steps = like.shape
    spectrum = torch.fft.rfft(torch.randn(rows, steps, generator=generator))
    frequency = torch.linspace(0.02, 1, spectrum.shape[1])
    colour = frequency ** (-1.2 * torch.rand(rows, 1, generator=generator))
    coloured = torch.fft.irfft(spectrum * colour, n=steps)
    coloured = coloured / coloured.std(1, keepdim=True)
    time_of = torch.arange(steps) / RATE
    slow = 1 + 0.4 * torch.sin(2 * math.pi * (time_of * 0.7 + torch.rand(rows, 1, generator=generator)))
    hum = torch.sin(2 * math.pi * time_of * (50 + 100 * torch.rand(rows, 1, generator=generator)))
    found: Tensor = coloured * slow + hum * torch.rand(rows, 1, generator=generator)
    return found.div(found.std(1, keepdim=True))


def noisy(clean: Tensor, decibels: Tensor, generator: torch.Generator) -> Tensor:
    """`clean`, [rows, T], with noise that is quieter by `decibels`, [rows]."""
    strength = clean.std(1) * 10 ** (-decibels / 20)
    return clean + noise(clean, generator) * strength.unsqueeze(1)


def signal_to_noise(found: Tensor, clean: Tensor) -> Tensor:
    """The signal-to-noise ratio of `found` in decibels, [rows]. `found` is delayed as the denoiser delays it."""
    wanted = clean[:, : clean.shape[1] - LATENCY]
    error = found[:, LATENCY:] - wanted
    return 10 * torch.log10(wanted.square().sum(1) / error.square().sum(1).clamp(min=1e-9))


def train(model: Denoiser, seconds: float, most: int | None = None) -> list[float]:
    """Trains on two seconds of 16 sounds at once, for so many seconds or `most` times; negative decibels."""
    generator = torch.Generator().manual_seed(1)
    pool = speech(2.048, 128, generator)
    training = Training(model, 3e-3, seconds, most)
    for part in training.parts():
        clean = pool[torch.randint(len(pool), (16,), generator=generator)]
        found = model(noisy(clean, 20 * torch.rand(16, generator=generator) - 5, generator))
        loss = -signal_to_noise(found, clean).mean()
        training.step(loss, part)
    return training.losses
