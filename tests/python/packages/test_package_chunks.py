"""Calls of several steps: convolutions over all of them at once, with the bits of as many calls of one step."""

from __future__ import annotations

import json
from typing import Any

import package_checks
import packaged
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


class Wave(nn.Module):
    """Dilated convolutions, gated, with ways around them and the input beside each."""

    def __init__(self, width: int, dilations: tuple[int, ...], kernel: int = 3) -> None:
        super().__init__()
        self.first, self.out = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, kernel, dilation=each) for each in dilations)
        self.mixins = nn.ModuleList(nn.Conv1d(1, 2 * width, 1) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for layer, mixin in zip(self.layers, self.mixins, strict=True):
            past = layer.dilation[0] * (layer.kernel_size[0] - 1)
            a, b = (layer(pad(y, (past, 0))) + mixin(x)).chunk(2, 1)
            y = y + torch.tanh(a) * torch.sigmoid(b)
        return self.out(y)


class Mixed(nn.Module):
    """Convolutions before and behind a recurrent layer, one of which is of each channel alone, and a sum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.gru = nn.Conv1d(1, 24, 5, dilation=3), nn.GRU(24, 8, batch_first=True)
        self.back, self.each, self.last = (
            nn.Conv1d(8, 33, 3, dilation=7),
            nn.Conv1d(33, 33, 9, groups=33),
            nn.Conv1d(33, 3, 2),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.front(pad(x, (12, 0))))
        y = self.gru(y.transpose(1, 2))[0].transpose(1, 2)
        z = torch.tanh(self.back(pad(y, (14, 0))))
        z = z + torch.sigmoid(self.each(pad(z, (8, 0))))
        return self.last(pad(z, (1, 0))), 0.01 * y.cumsum(2)


class Separable(nn.Module):
    """A temporal convolution network of products and convolutions of each channel alone, with a norm of each step."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, width, 1), nn.LayerNorm(width)
        self.each = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**i, groups=width) for i in range(4))
        self.over = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for each, over in zip(self.each, self.over, strict=True):
            z = self.norm(y.transpose(1, 2)).transpose(1, 2)
            y = y + over(torch.relu(each(pad(z, (2 * each.dilation[0], 0)))))
        return y


MODELS = {
    "wave": lambda: Wave(16, (1, 2, 4, 8, 64)),
    "narrow": lambda: Wave(4, (1, 2, 5, 9)),
    "two channels": lambda: Wave(2, (1, 3)),
    "odd": lambda: Wave(5, (1, 3, 7), kernel=2),
    "wide": lambda: Wave(70, (2, 11), kernel=4),
    "mixed": Mixed,
    "separable": Separable,
}


@pytest.mark.parametrize("quantize", [None, "int8", "bfloat16"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_chunks(name: str, batch: int, quantize: str | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(1)
    model, x = MODELS[name]().eval(), torch.randn(batch, 1, 400)
    package_checks.check_model_in_chunks(
        tmp_path_factory, model, x, packaged.NATIVE, quantize, 0.1 if quantize else 5e-6
    )


@pytest.mark.parametrize("target", packaged.MACHINES)
def test_chunks_on_other_machines(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Their driver compares chunks with steps."""
    torch.manual_seed(2)
    for make in (MODELS["narrow"], Mixed):
        model, x = make().eval(), torch.randn(1, 1, 150)
        folder = weft.package(model, x, tmp_path_factory.mktemp("packages") / "model", time=2, targets=target)
        expected = model(x)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        described = {str(i): (y.dtype, (1, y.shape[1], 1)) for i, y in enumerate(wanted)}
        found = packaged.run(folder, target, [x.movedim(2, 0).unsqueeze(-1)], 150, described)
        for y, whole in zip(found, wanted, strict=True):
            package_checks.assert_close(y.squeeze(-1).movedim(0, 2), whole, 5e-6)


def steps_beside_each_other(folder: Any) -> bool:
    return "model_steps" in (folder / "model.x86-64-v3.s").read_text()


@pytest.mark.parametrize(
    ("model", "beside"),
    [(Wave(8, (1, 4)), True), (Mixed(), True), (Separable(), True), (nn.GRU(1, 16, batch_first=True), False)],
)
def test_where_several_steps_are_computed_at_once(
    model: nn.Module, beside: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Several steps are computed at once where most products don't depend on results of the step before."""
    time = 1 if isinstance(model, nn.GRU) else 2
    x = torch.randn(1, 50, 1) if time == 1 else torch.randn(1, 1, 50)
    folder = tmp_path_factory.mktemp("packages") / "model"
    weft.package(model.eval(), x, folder, time=time, targets="x86-64-v3", assembly=True)
    assert steps_beside_each_other(folder) == beside


def test_large_states_are_not_kept_for_each_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    w = torch.randn(12, 8) / 4

    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        window = torch.cat([carry["window"][1:], x[None]])
        return {"window": window, "sum": 0.9 * carry["sum"] + x[0]}, window.flatten() @ w + carry["sum"][0]

    for size, beside in ((100, True), (100_000, False)):
        example = ({"window": torch.zeros(4, 3), "sum": torch.zeros(size)}, torch.randn(3))
        folder = tmp_path_factory.mktemp("packages") / "model"
        weft.package(step, example, folder, targets="x86-64-v3", assembly=True)
        assert steps_beside_each_other(folder) == beside
        size_of_state = json.loads((folder / "model.json").read_text())["targets"]["x86-64-v3"]["state_bytes"]
        assert size_of_state < 4 * size * (40 if beside else 3) + 10_000


def test_microcontrollers_take_no_memory_for_several_steps(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("packages") / "model"
    weft.package(Wave(8, (1, 4)).eval(), torch.randn(1, 1, 50), folder, time=2, targets=["aarch64", "cortex-m4"])
    sizes = {
        name: each["state_bytes"] for name, each in json.loads((folder / "model.json").read_text())["targets"].items()
    }
    assert sizes["cortex-m4"] < sizes["aarch64"] / 4


def test_windows_of_several_rows_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    """New rows come two at a time, from a product; one window is read at an earlier step than it is written."""
    torch.manual_seed(3)
    w, u, v = torch.randn(6, 6) / 3, torch.randn(60, 24) / 8, torch.randn(24, 6) / 5

    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        window = torch.cat([carry["window"][2:], torch.tanh(x @ w)])
        y = torch.relu(window.flatten() @ u) @ v
        back = torch.cat([carry["back"][1:], (0.5 * torch.tanh(carry["back"][0] + y))[None]])
        return {"window": window, "back": back, "count": carry["count"] + 1}, y + back[2] + carry["count"]

    carry = {"window": torch.randn(10, 6), "back": torch.zeros(4, 6), "count": torch.zeros(())}
    xs = torch.randn(200, 2, 6)
    package_checks.check_step(tmp_path_factory, step, carry, xs, 200, packaged.NATIVE, 5e-6)
    folder = weft.package(step, (carry, xs[0]), tmp_path_factory.mktemp("packages") / "model")
    package_checks.check_chunks(packaged.loaded(folder, tmp_path_factory), xs)
