"""Functions of float32 on processors that compute no float64: models with them, and what their objects need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from package_checks import MICROCONTROLLERS, check_step
from torch import Tensor, nn

import weft
from weft import _C

CORTEX = [name for name, _ in _C.package_targets() if name.startswith("cortex") and not name.endswith("f64")]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


class Featured(nn.Module):
    """An LSTM over functions of an angle and a level."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(12, 10), nn.Linear(10, 3)

    def forward(self, carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        angle, level = x.unbind(-1)
        phase = carry["phase"] + angle
        size = level.abs() + 0.1
        features = [phase.sin(), phase.cos(), torch.tan(angle / 9), size**1.7, size.log2(), size.log10()]
        features += [level.erfc(), torch.hypot(angle, level), torch.atan2(angle, level), torch.fmod(angle, size)]
        features += [torch.logaddexp(angle, level), torch.remainder(phase, 2 * torch.pi)]
        given = torch.stack(features, -1)
        h, c = self.cell(given, (carry["h"], carry["c"]))
        return {"h": h, "c": c, "phase": phase}, (self.out(h), given)


def example() -> tuple[Featured, dict[str, Tensor], Tensor]:
    torch.manual_seed(3)
    model, xs = Featured().eval(), torch.randn(30, 2, 2) * torch.tensor([4.0, 1.0])
    return model, {"h": torch.zeros(2, 10), "c": torch.zeros(2, 10), "phase": torch.zeros(2)}, xs


@pytest.mark.parametrize("target", MICROCONTROLLERS)
def test_an_lstm_over_functions(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model, carry, xs = example()
    check_step(tmp_path_factory, model, carry, xs, len(xs), [target], tolerance=2e-6)


@pytest.mark.parametrize("target", CORTEX)
def test_objects_need_nothing(target: str, tmp_path: Path) -> None:
    """Each function is in the object once, however often it is called."""
    model, carry, xs = example()
    folder = weft.package(model, (carry, xs[0]), tmp_path / "model", targets=target)
    symbols = packaged.symbols(folder / f"model.{target}.o")
    assert not [name for kind, name in symbols if kind in "Uu"]
    functions = [name for kind, name in symbols if kind == "t"]
    assert functions.count("f32_sine") == functions.count("f32_remainder") == functions.count("f32_log2") == 1


@pytest.mark.parametrize("target", CORTEX)
def test_float64_is_refused(target: str, tmp_path: Path) -> None:
    x = torch.ones(3, dtype=torch.float64)
    for function in (torch.sin, torch.tanh, torch.square):
        with pytest.raises(RuntimeError, match=rf"on {target} the step needs .*the processor has no instruction"):
            weft.package(lambda c, x, f=function: (c, f(x)), (x, x), tmp_path / "model", targets=target)
