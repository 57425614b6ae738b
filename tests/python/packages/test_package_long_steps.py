"""Steps with so much code that it is divided into several functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from package_checks import assert_close, check_model_in_chunks, check_step
from torch import Tensor, nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Bands(nn.Module):
    """A GRU over the bands of each frame, between convolutions over time."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.front = nn.Conv1d(40, 40, 3, dilation=4)
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.back = nn.Conv1d(40, 5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.front(nn.functional.pad(x, (8, 0)))).transpose(1, 2)
        y = self.gru(y.reshape(-1, 40, 1))[0].sum(-1).reshape(*y.shape)
        return self.back(nn.functional.pad(y.transpose(1, 2), (1, 0)))


@pytest.mark.parametrize("quantize", [None, "int8-dynamic"])
def test_loops_over_bands(quantize: str | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    model, tolerance = Bands(9).eval(), 1e-5 if quantize is None else 0.05
    check_model_in_chunks(tmp_path_factory, model, torch.randn(1, 40, 250), packaged.NATIVE[-1:], quantize, tolerance)


def test_streams() -> None:
    """A stream begins with the function of one step alone; what the other one calls is left out with it."""
    model, x = Bands(9).eval(), torch.randn(1, 40, 90)
    stream = weft.stream(model, x, time=2, check=False)
    found = torch.cat([stream.run(x[..., :3]), stream.run(x[..., 3:])], 2)
    assert stream.target is not None
    assert_close(found, model(x), 1e-5)


@pytest.mark.parametrize("hidden", [1, 5, 16])
def test_loops_in_a_step(hidden: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a step that may fail, a window that is a ring, and a state that the last function writes."""
    w, table = torch.randn(hidden, hidden) / 4, torch.randn(7, hidden)

    def step(carry: tuple[Tensor, Tensor], x: tuple[Tensor, Tensor]) -> Any:
        (window, h), (index, xs) = carry, x
        h, ys = weft.scan(lambda a, b: (torch.tanh(a @ w + b), a.sum()), h + table[index], xs)
        return (torch.cat([window[1:], h[None]]), h), (ys, window.mean(0))

    carry, xs = (torch.zeros(20, hidden), torch.zeros(hidden)), (torch.randint(7, (30,)), torch.randn(30, 90, hidden))
    check_step(tmp_path_factory, step, carry, xs, 30, [*packaged.NATIVE[-1:], "aarch64"], 1e-5)


def test_wide_weights(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Weights that every second step reads backwards, in many layers."""
    model = nn.GRU(3, 300, 2)
    w = torch.randn(8, 8) / 3

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y, h = model(x[None], h)
        z = y[0, :8]
        for _ in range(150):
            z = torch.tanh(z @ w + y[0, 8:16])
        return h, torch.cat([z, y[0]])

    check_step(tmp_path_factory, step, torch.zeros(2, 300), torch.randn(20, 3), 20, packaged.NATIVE[-1:], 1e-5)


def test_it_is_several_functions(tmp_path: Path) -> None:
    w = torch.randn(16, 16) / 4

    def functions(count: int) -> int:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return weft.scan(lambda a, b: (torch.tanh(a @ w + b), a.sum()), h, x)

        example = torch.zeros(16), torch.zeros(count, 16)
        folder = weft.package(step, example, tmp_path / "model", targets="x86-64-v3", assembly=True)
        return (folder / "model.x86-64-v3.s").read_text().count("_one_step_on")

    assert functions(2) == 0 < functions(100)
