"""Packages of PyTorch's recurrent modules, weft.nn's variants and quantized ones beside the modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import packaged
import pytest
import torch
from package_checks import assert_close
from torch import Tensor, nn

import weft
import weft.nn


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "gru": lambda: nn.GRU(5, 32),
    "gru of 3 layers": lambda: nn.GRU(3, 7, 3),
    "gru without bias": lambda: nn.GRU(1, 8, bias=False),
    "lstm": lambda: nn.LSTM(4, 40),
    "lstm with projection": lambda: nn.LSTM(5, 20, 2, proj_size=3),
    "lstm of 128": lambda: nn.LSTM(2, 128),
    "tanh": lambda: nn.RNN(3, 17, 2),
    "relu": lambda: nn.RNN(3, 5, nonlinearity="relu"),
    "batch first": lambda: nn.GRU(3, 9, batch_first=True),
}


@pytest.mark.parametrize("rows", [None, 1, 3])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, rows: int | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)
    module, steps = MODULES[name](), 9
    x = torch.randn(*((steps,) if rows is None else (steps, rows)), module.input_size)
    given = x.transpose(0, 1) if module.batch_first and rows is not None else x
    expected = module(given)[0]
    if module.batch_first and rows is not None:
        expected = expected.transpose(0, 1)
    for target in packaged.NATIVE:
        folder = weft.package(module, given, tmp_path_factory.mktemp("packages") / "model", targets=target)
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), expected)


@pytest.mark.parametrize("target", packaged.MACHINES)
def test_modules_under_emulators(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(4)
    for module in (nn.GRU(3, 20, 2), nn.LSTM(5, 33)):
        x = torch.randn(6, 2, module.input_size)
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model", targets=target)
        width = module.hidden_size
        (found,) = packaged.run(folder, target, [x], 6, {"y": (torch.float32, (2, width))})
        assert_close(found, module(x)[0])


VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "reset before": lambda: weft.nn.GRU(3, 5, 2, reset_after=False),
    "peepholes": lambda: weft.nn.LSTM(3, 9, peepholes=True),
    "layer norm": lambda: weft.nn.LSTM(3, 6, layer_norm=True, cell_clip=0.5),
    "softsign": lambda: weft.nn.RNN(3, 5, activation="softsign"),
    "all at their defaults": lambda: weft.nn.GRU(3, 4),
    "int8": lambda: weft.quantize(nn.LSTM(3, 20)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(13)
    module = VARIANTS[name]().eval()
    for rows in ((), (2,)):
        x = torch.randn(7, *rows, 3)
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), module(x)[0], 5e-6)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_cells_of_pytorch(kind: type[nn.RNNCellBase], tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(14)
    cell, x = kind(3, 7), torch.randn(5, 2, 3)
    folder = weft.package(cell, x[0], tmp_path_factory.mktemp("packages") / "model")
    model, state = packaged.loaded(folder, tmp_path_factory), None
    for t in range(5):
        state = cell(x[t], state)
        assert_close(model.step(x[t]), state[0] if isinstance(state, tuple) else state)


class Doubled(nn.GRU):
    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, h = super().forward(x, h)
        return 2 * y, h


def test_a_modules_own_forward_counts(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(15)
    doubled, hooked, x = Doubled(3, 4), nn.GRU(3, 4), torch.randn(5, 3)
    hooked.register_forward_hook(lambda module, args, result: (result[0] + 1, result[1]))
    for module in (doubled, hooked, nn.utils.parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0")):
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), module(x)[0])
