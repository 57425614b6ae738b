"""sigmoid and tanh in nests of few vectors and of many, which compute them by other formulas: floats of all sizes."""

from __future__ import annotations

import packaged
import pytest
import torch
from torch import Tensor

import weft

STRIDE = 1021  # of the floats' bits


def all_floats(width: int) -> Tensor:
    """[steps, width], every 1021st float, infinities and NaN among them."""
    bits = torch.arange(-(1 << 31), 1 << 31, STRIDE, dtype=torch.int64).to(torch.int32)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 20.0, -105.0, 10.0, -87.4, 1e-40])
    values = torch.cat([special, bits.view(torch.float32)])
    return values[: len(values) // width * width].reshape(-1, width)


def ulps(found: Tensor, exact: Tensor) -> Tensor:
    """Distance in units in the last place of the rounded exact result, of the least normal's where that is smaller."""
    rounded = exact.float()
    unit = torch.ldexp(torch.ones(()).double(), torch.frexp(rounded).exponent.clamp(min=-125) - 24)
    return torch.where(found == rounded, 0.0, (found.double() - exact).abs() / unit)


@pytest.mark.parametrize("target", packaged.NATIVE)
@pytest.mark.parametrize("width", [1, 16, 31, 32, 33, 128])
def test_sigmoid_and_tanh(width: int, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return carry, (torch.sigmoid(x), torch.tanh(x))

    xs = all_floats(width)
    if width == 1:
        xs = xs[::16]
    path = tmp_path_factory.mktemp("packages") / "model"
    model = packaged.loaded(weft.package(step, (torch.zeros(1), xs[0]), path, targets=target), tmp_path_factory)
    for found, function in zip(model.run(xs), (torch.sigmoid, torch.tanh), strict=True):
        exact = function(xs.double())
        assert torch.equal(found.isnan(), xs.isnan())
        error = ulps(found, exact)[~xs.isnan()]
        assert error.max() <= 2.5, (function.__name__, error.max(), xs[~xs.isnan()][error.argmax()])
