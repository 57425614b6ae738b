"""Nets that enhance, separate and code sound, as their authors write them, in small sizes: from samples to samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_streaming import compare
from torch import Tensor, nn

import weft


class TwoStages(nn.Module):
    """A mask on magnitudes, then one on learned features (N. L. Westhausen, B. T. Meyer: DTLN, 2020)."""

    def __init__(self, size: int = 32, hop: int = 8, units: int = 12, features: int = 16) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.first, self.first_mask = (
            nn.LSTM(size // 2 + 1, units, 2, batch_first=True),
            nn.Linear(units, size // 2 + 1),
        )
        self.encode, self.norm = nn.Conv1d(size, features, 1, bias=False), nn.LayerNorm(features)
        self.second, self.second_mask = nn.LSTM(features, units, batch_first=True), nn.Linear(units, features)
        self.decode = nn.Conv1d(features, size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.unfold(-1, self.size, self.hop)  # [B, T, size]
        spectrum = torch.fft.rfft(frames)
        magnitude, phase = torch.abs(spectrum), torch.angle(spectrum)
        mask = torch.sigmoid(self.first_mask(self.first(magnitude)[0]))
        frames = torch.fft.irfft(magnitude * mask * torch.exp(1j * phase), self.size)
        features = self.encode(frames.transpose(1, 2)).transpose(1, 2)
        mask = torch.sigmoid(self.second_mask(self.second(self.norm(features))[0]))
        frames = self.decode((features * mask).transpose(1, 2))  # [B, size, T]
        length = (frames.shape[-1] - 1) * self.hop + self.size
        return F.fold(frames, (1, length), (1, self.size), stride=(1, self.hop))[:, 0, 0]


class Dilated(nn.Module):
    """Causal dilated convolutions on a learned basis (Y. Luo, N. Mesgarani: Conv-TasNet, 2019)."""

    class Block(nn.Module):
        def __init__(self, channels: int, hidden: int, dilation: int) -> None:
            super().__init__()
            self.padding = 2 * dilation
            self.enter, self.leave = nn.Conv1d(channels, hidden, 1), nn.Conv1d(hidden, channels, 1)
            self.depthwise = nn.Conv1d(hidden, hidden, 3, dilation=dilation, groups=hidden)
            self.acts = nn.ModuleList([nn.PReLU(), nn.PReLU()])
            self.norm = nn.GroupNorm(1, hidden)

        def normed(self, y: Tensor) -> Tensor:  # over the channels of a step
            return F.layer_norm(y.transpose(1, 2), y.shape[1:2], self.norm.weight, self.norm.bias).transpose(1, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.normed(self.acts[0](self.enter(x)))
            y = self.normed(self.acts[1](self.depthwise(F.pad(y, (self.padding, 0)))))
            return x + self.leave(y)

    def __init__(self, basis: int = 16, channels: int = 12, length: int = 8, speakers: int = 2) -> None:
        super().__init__()
        self.speakers = speakers
        self.encode = nn.Conv1d(1, basis, length, stride=length // 2, bias=False)
        self.enter = nn.Conv1d(basis, channels, 1)
        self.blocks = nn.Sequential(*(self.Block(channels, 20, 2**i) for _ in range(2) for i in range(3)))
        self.masks = nn.Conv1d(channels, basis * speakers, 1)
        self.decode = nn.ConvTranspose1d(basis, 1, length, stride=length // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        basis = torch.relu(self.encode(x[:, None]))
        masks = torch.sigmoid(self.masks(self.blocks(self.enter(basis))))
        sources = masks.unflatten(1, (self.speakers, -1)) * basis[:, None]
        return torch.stack([self.decode(sources[:, i])[:, 0] for i in range(self.speakers)], 1)


class Bands(nn.Module):
    """Bands, convolutions over time and bands, a GRU over the bands of a frame, one over time (Rong et al.: GTCRN)."""

    def __init__(self, size: int = 32, hop: int = 16, bands: int = 8, channels: int = 4) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size).sqrt())
        self.register_buffer("filters", torch.rand(size // 2 + 1, bands))
        self.enter = nn.Sequential(nn.Conv2d(3, channels, (1, 3), (1, 2), (0, 1)), nn.BatchNorm2d(channels), nn.PReLU())
        self.depthwise = nn.Conv2d(channels, channels, (3, 3), padding=(0, 1), dilation=(2, 1), groups=channels)
        self.within = nn.GRU(channels, channels // 2, batch_first=True, bidirectional=True)
        self.over = nn.GRU(channels, channels, batch_first=True)
        self.norm = nn.LayerNorm((bands // 2, channels))
        self.leave = nn.ConvTranspose2d(channels, 2, (1, 4), (1, 2), (0, 1))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, self.size, self.hop, window=self.window, pad_mode="constant", return_complex=True)
        s = torch.view_as_real(spectrum).permute(0, 3, 2, 1)  # [B, 2, T, F]
        magnitude = torch.sqrt(s[:, 0] ** 2 + s[:, 1] ** 2 + 1e-12)
        y = self.enter(torch.stack([magnitude, s[:, 0], s[:, 1]], 1) @ self.filters)
        y = y + self.depthwise(F.pad(y, (0, 0, 4, 0)))
        batch, channels, steps, bands = y.shape
        frames = y.permute(0, 2, 3, 1).reshape(batch * steps, bands, channels)
        frames = self.within(frames)[0].reshape(batch, steps, bands, channels)
        y = frames.permute(0, 2, 1, 3).reshape(batch * bands, steps, channels)
        y = self.norm(self.over(y)[0].reshape(batch, bands, steps, channels).transpose(1, 2))
        mask = torch.tanh(self.leave(y.permute(0, 3, 1, 2))) @ self.filters.t()
        mask = torch.complex(mask[:, 0], mask[:, 1]).transpose(1, 2)
        return torch.istft(spectrum * mask, self.size, self.hop, window=self.window)


class ComplexNet(nn.Module):
    """Complex convolutions and a complex LSTM (Hu et al.: DCCRN, 2020), as pairs of real layers."""

    class Conv(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.real, self.imag = (nn.Conv2d(inputs, outputs, (3, 2), (2, 1), (1, 0)) for _ in range(2))

        def forward(self, z: Tensor) -> Tensor:
            z = F.pad(z.real, (1, 0)) + 1j * F.pad(z.imag, (1, 0))
            return torch.complex(self.real(z.real) - self.imag(z.imag), self.real(z.imag) + self.imag(z.real))

    def __init__(self, size: int = 30, hop: int = 10) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hamming_window(size))
        self.convs = nn.ModuleList([self.Conv(1, 3), self.Conv(3, 4)])
        self.real, self.imag = (nn.LSTM(16, 6, batch_first=True) for _ in range(2))
        self.mask = nn.Linear(6, 16).to(torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, self.size, self.hop, window=self.window, pad_mode="constant", return_complex=True)
        z = spectrum[:, None]
        for conv in self.convs:
            z = conv(z)
            z = torch.complex(F.leaky_relu(z.real), F.leaky_relu(z.imag))
        z = z.permute(0, 3, 1, 2).flatten(2)
        z = torch.complex(self.real(z.real)[0] - self.imag(z.imag)[0], self.real(z.imag)[0] + self.imag(z.real)[0])
        mask = self.mask(z).transpose(1, 2)
        polar = torch.tanh(mask.abs()) * torch.exp(1j * mask.angle())
        return torch.istft(spectrum * polar, self.size, self.hop, window=self.window)


class Diagonal(nn.Module):
    """Diagonal complex recurrences between linear layers (A. Gu et al.: S4D, 2022), step by step."""

    def __init__(self, width: int = 6, states: int = 4) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(1, width), nn.Linear(width, 1)
        self.log_step = nn.Parameter(torch.rand(width, 1) - 3)
        self.log_real = nn.Parameter(torch.zeros(width, states) - 0.7)
        self.imag = nn.Parameter(3.14 * torch.arange(states).expand(width, states).clone())
        self.c = nn.Parameter(torch.randn(width, states, 2))

    def forward(self, x: Tensor) -> Tensor:
        a = torch.complex(-torch.exp(self.log_real), self.imag)
        pole, c = torch.exp(a * self.log_step.exp()), torch.view_as_complex(self.c)
        c = c * (pole - 1) / a

        def step(h: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
            h = pole * h + u[..., None]
            return h, 2 * (h * c).sum(-1).real

        u = self.enter(x[..., None])
        y = weft.scan(step, torch.zeros(x.shape[0], *pole.shape, dtype=pole.dtype), u.transpose(0, 1))[1]
        return self.leave(F.gelu(y.transpose(0, 1)) + u)[..., 0]


class SubBands(nn.Module):
    """A net over all bands, then one for each band and its neighbours (X. Hao et al.: FullSubNet, 2021)."""

    def __init__(self, size: int = 16, hop: int = 8, neighbours: int = 2) -> None:
        super().__init__()
        self.size, self.hop, self.neighbours = size, hop, neighbours
        bands = size // 2 + 1
        self.full, self.full_out = nn.LSTM(bands, 10, batch_first=True), nn.Linear(10, bands)
        self.sub, self.sub_out = nn.LSTM(2 * neighbours + 2, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        window = torch.hann_window(self.size)
        spectrum = torch.stft(x, self.size, self.hop, window=window, pad_mode="constant", return_complex=True)
        magnitude = spectrum.abs()  # [B, F, T]
        batch, bands, steps = magnitude.shape
        full = F.relu(self.full_out(self.full(magnitude.transpose(1, 2))[0])).transpose(1, 2)
        padded = F.pad(magnitude[:, None], (0, 0, self.neighbours, self.neighbours), mode="reflect")
        around = F.unfold(padded, (2 * self.neighbours + 1, 1)).reshape(batch, -1, bands, steps).transpose(1, 2)
        y = torch.cat([around, full[:, :, None]], 2).reshape(batch * bands, -1, steps)
        mask = self.sub_out(self.sub(y.transpose(1, 2))[0]).reshape(batch, bands, steps, 2)
        return torch.istft(spectrum * torch.view_as_complex(mask), self.size, self.hop, window=window)


class Codec(nn.Module):
    """Strided convolutions, an LSTM, the nearest codes, and back (A. Défossez et al.: EnCodec, 2022)."""

    class Causal(nn.Module):
        def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
            super().__init__()
            self.left = kernel - stride
            self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(inputs, outputs, kernel, stride))

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(F.pad(x, (self.left, 0)))

    class Up(nn.Module):
        def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
            super().__init__()
            self.right, self.conv = kernel - stride, nn.ConvTranspose1d(inputs, outputs, kernel, stride)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return y[..., : y.shape[-1] - self.right]

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            self.Causal(1, 4, 7), nn.ELU(), self.Causal(4, 8, 4, 2), nn.ELU(), self.Causal(8, 12, 8, 4), nn.ELU()
        )
        self.lstm, self.codes = nn.LSTM(12, 12, 2), nn.Parameter(torch.randn(2, 19, 12))
        self.decode = nn.Sequential(self.Up(12, 8, 8, 4), nn.ELU(), self.Up(8, 4, 4, 2), nn.ELU(), self.Causal(4, 1, 7))

    def forward(self, x: Tensor) -> Tensor:
        y = self.encode(x[:, None]).permute(2, 0, 1)
        y = y + self.lstm(y)[0]
        rest, found = y, torch.zeros_like(y)
        for codes in self.codes:
            nearest = torch.cdist(rest.flatten(0, 1), codes).argmin(-1).reshape(rest.shape[:2])
            found, rest = found + F.embedding(nearest, codes), rest - F.embedding(nearest, codes)
        return self.decode(found.permute(1, 2, 0))[:, 0]


MODELS: list[tuple[Callable[[], nn.Module], int, int]] = [
    (TwoStages, 8, 32),
    (Dilated, 4, 8),
    (Bands, 16, 32),
    (ComplexNet, 10, 30),
    (Diagonal, 1, 0),
    (SubBands, 8, 16),
    (Codec, 8, 0),
]


@pytest.mark.parametrize(("model", "chunk", "delay"), MODELS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_speech_model(model: Callable[[], nn.Module], chunk: int, delay: int) -> None:
    torch.manual_seed(0)
    net, x = model().eval(), torch.randn(2, 40 * chunk)
    stream = compare(net, x, 1, delay=delay)
    assert stream.chunk == chunk and not weft.stats()["fallbacks"]


@pytest.mark.parametrize("model", [TwoStages, ComplexNet, Codec])
def test_its_package_has_the_streams_bits(model: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(1)
    chunk, delay = next((chunk, delay) for other, chunk, delay in MODELS if other is model)
    net, x = model().eval(), torch.randn(1, 40 * chunk)
    stream = weft.stream(net, x, delay=delay, check=False)
    assert stream.target is not None
    folder = weft.package(net, x, tmp_path / "model", time=1, delay=delay, targets=stream.target)
    ys = weft.load(folder / "libmodel.so").run(x.reshape(40, 1, chunk))
    assert torch.equal(ys.transpose(0, 1).flatten(1), stream.run(x))
