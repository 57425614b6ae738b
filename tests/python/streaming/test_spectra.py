"""Models over spectra as streams: torch.stft, torch.istft, torch.fft, complex arguments and results."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_streaming import compare
from torch import Tensor, nn

import weft


class Masked(nn.Module):
    """A mask on a spectrum, by a recurrent layer."""

    def __init__(self, size: int, hop: int, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(size)
        self.size, self.hop, self.options = size, hop, options
        self.gru, self.out = nn.GRU(size // 2 + 1, 8, batch_first=True), nn.Linear(8, size // 2 + 1)
        self.register_buffer("window", torch.hann_window(size).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        window = self.window.to(x.dtype)
        spectrum = torch.stft(x, self.size, self.hop, window=window, pad_mode="constant", return_complex=True)
        mask = torch.sigmoid(self.out(self.gru(spectrum.abs().transpose(1, 2))[0])).transpose(1, 2)
        return torch.istft(spectrum * mask, self.size, self.hop, window=window, **self.options)


@pytest.mark.parametrize(("size", "hop", "batch"), [(16, 4, 1), (16, 8, 3), (32, 8, 2), (96, 24, 1), (20, 5, 1)])
def test_a_masked_spectrum(size: int, hop: int, batch: int) -> None:
    x = torch.randn(batch, 40 * hop)
    stream = compare(Masked(size, hop).eval(), x, 1, delay=size, seed=size)
    assert stream.chunk == hop and stream.outputs[0].lag == size - hop
    stream.reset()
    assert stream.run(x)[:, : size - hop].abs().max() == 0  # silence before the first sample


def test_a_masked_spectrum_has_the_bits_of_its_package(tmp_path: Path) -> None:
    model, x = Masked(32, 8).eval(), torch.randn(1, 320)
    stream = weft.stream(model, x, delay=32)
    assert stream.target is not None
    folder = weft.package(model, x, tmp_path / "model", time=1, delay=32, targets=stream.target)
    ys = weft.load(folder / "libmodel.so").run(x.reshape(40, 1, 8))
    assert torch.equal(ys.transpose(0, 1).flatten(1), stream.run(x))


@pytest.mark.parametrize("seed", range(12))
def test_random_frames(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    size = rng.choice([7, 8, 12, 16, 30, 66])
    hop = rng.randint(1, min(size + 3, 24))
    width = rng.choice([size, size, max(size - 3, 1)])
    center, normalized, onesided = rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.7
    window = rng.choice([None, torch.rand(width, dtype=torch.float64) + 0.1])
    as_pairs = rng.random() < 0.3

    def model(x: Tensor) -> Tensor:
        spectrum = torch.stft(
            x, size, hop, width, None if window is None else window.to(x.dtype), center, "constant", normalized,
            onesided, return_complex=True,
        )  # fmt: skip
        return torch.view_as_real(spectrum) if as_pairs else spectrum * 1j

    x = torch.randn(rng.choice([1, 2]), hop * rng.randint(30, 50), dtype=rng.choice([torch.float32, torch.float64]))
    compare(model, x, 1, delay=2 * size + hop, seed=seed)


def test_complex_sequences() -> None:
    torch.manual_seed(0)
    poles, out = torch.polar(torch.rand(6) * 0.3 + 0.6, torch.rand(6) * 6), torch.randn(6, 2, dtype=torch.complex64)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = poles * h + x
            return h, h @ out

        last, ys = weft.scan(step, x.new_zeros(x.shape[0], 6), x, dim=1)
        return ys, last

    compare(model, torch.randn(2, 30, 6, dtype=torch.complex64), 1)
    stream = weft.stream(model, torch.randn(1, 30, 6, dtype=torch.complex64))
    y, last = stream.step(torch.randn(1, 6, dtype=torch.complex64))
    assert y.dtype == last.dtype == torch.complex64 and y.shape == (1, 2)
    assert "complex64[1,30,6]" in repr(stream)
    kept = stream.state
    again = stream.step(torch.ones(1, 1, 6, dtype=torch.complex64))[0]
    stream.state = kept
    assert torch.equal(stream.step(torch.ones(1, 6, dtype=torch.complex64))[0], again.squeeze(1))
    with pytest.raises(ValueError, match="complex64"):
        stream.step(torch.ones(1, 6))


def test_frames_by_unfold_and_by_fold() -> None:
    def model(x: Tensor) -> Tensor:
        frames = torch.fft.irfft(torch.fft.rfft(x.unfold(1, 24, 6)) * 0.5, n=24)  # [B, F, 24]
        sums = F.fold(frames.transpose(1, 2), (1, (frames.shape[1] - 1) * 6 + 24), (1, 24), stride=(1, 6))
        return sums.flatten(1)

    compare(model, torch.randn(1, 240), 1, delay=24)
