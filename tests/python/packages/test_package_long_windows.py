"""Convolutions and pooling over long windows, and other long sums and maxima: loops over what is alike, whose code
doesn't grow with the count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from package_checks import check_model_in_chunks, check_step
from torch import Tensor, nn

import weft

NATIVE = sorted({packaged.NATIVE[0], packaged.NATIVE[-1]})


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Causal(nn.Module):
    def __init__(self, *sizes: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(*sizes, dilation=dilation, groups=groups)  # type: ignore[arg-type]
        self.past = (sizes[2] - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(nn.functional.pad(x, (self.past, 0))))


class Pool(nn.Module):
    def __init__(self, kind: type[nn.Module], window: int) -> None:
        super().__init__()
        self.pool, self.past = kind(window, 1), window - 1  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(nn.functional.pad(x.abs(), (self.past, 0)))


MODELS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {  # with batch and channels
    "filter": (lambda: Causal(1, 1, 200), 1, 1),
    "filter of 51": (lambda: Causal(1, 1, 51), 1, 1),
    "filters": (lambda: Causal(1, 1, 50), 3, 1),
    "dilated filter": (lambda: Causal(1, 1, 61, dilation=3), 1, 1),
    "depthwise": (lambda: Causal(5, 5, 67, groups=5), 2, 5),
    "depthwise, wide": (lambda: Causal(33, 33, 49, dilation=2, groups=33), 1, 33),
    "convolution": (lambda: Causal(3, 5, 101), 1, 3),
    "dilated convolution": (lambda: Causal(16, 16, 40, dilation=2), 1, 16),
    "wide convolution": (lambda: Causal(70, 33, 20), 2, 70),
    "grouped": (lambda: Causal(16, 16, 70, groups=2), 1, 16),
    "to channels": (lambda: Causal(1, 16, 300), 1, 1),
    "float64": (lambda: nn.Sequential(Causal(4, 4, 99, groups=4), Causal(4, 7, 80)).double(), 1, 4),
    "means": (lambda: Pool(nn.AvgPool1d, 53), 1, 3),
    "maxima": (lambda: Pool(nn.MaxPool1d, 130), 1, 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    make, batch, channels = MODELS[name]
    model = make().eval()
    dtype = next((each.dtype for each in model.parameters()), torch.float32)
    x = torch.randn(batch, channels, 250, dtype=dtype)
    check_model_in_chunks(tmp_path_factory, model, x, NATIVE, None, 1e-5)


@pytest.mark.parametrize(("quantize", "tolerance"), [("int8", 0.03), ("int8-dynamic", 0.05), ("bfloat16", 0.02)])
def test_stored_weights(quantize: str, tolerance: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = nn.Sequential(Causal(3, 16, 101), Causal(16, 33, 40)).eval()
    check_model_in_chunks(tmp_path_factory, model, torch.randn(1, 3, 200), NATIVE, quantize, tolerance)


@pytest.mark.parametrize("width", [1, 3, 16, 21])
def test_steps(width: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Long sums and maxima of terms that are alike, and of some that nearly are."""
    n = 60
    w, numbers = torch.randn(n, width), torch.randn(n).tolist()

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        weighted = sum(window[i] * w[i] for i in range(n))
        by_numbers = sum(window[i + 2] * numbers[i] for i in range(n))
        backwards = sum(window[2 * n - 1 - 2 * i] * w[i] for i in range(n))
        squares = sum(window[i] * window[i] for i in range(n))
        apart = sum(window[i] * window[2 * i] for i in range(n))
        uneven = sum(window[i * i % 100] * w[i] for i in range(n))
        same = sum(torch.tanh(x * w[i]) for i in range(n))
        shared, parts = window[0], []
        for i in range(1, n):
            shared = shared + window[i]
            parts.append(shared)
        largest = window[0] - w[0]
        for i in range(1, n):
            largest = torch.maximum(largest, window[i] - w[i])
        mixed = x + 2 * weighted + sum(torch.sigmoid(window[i]) for i in range(n)) + x @ w.T @ w
        outputs = [weighted, by_numbers, backwards, squares, apart, uneven, same, parts[50], parts[-1], largest, mixed]
        return torch.cat([window[1:], x[None]]), outputs

    xs = torch.randn(40, width)
    xs[30] = float("nan")
    check_step(tmp_path_factory, step, torch.randn(2 * n, width), xs, 40, [*NATIVE, "aarch64"], 1e-5)


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (9, 9), (8, 1)])
def test_code_does_not_grow(channels: int, groups: int, tmp_path: Path) -> None:
    def code(taps: int) -> int:
        model, x = Causal(channels, channels, taps, groups=groups).eval(), torch.zeros(1, channels, 40)
        folder = weft.package(model, x, tmp_path / "model", time=2, targets="x86-64-v3", assembly=True)
        return (folder / "model.x86-64-v3.s").read_text().count("\tvmovups")

    assert code(900) < 1.3 * code(300)
