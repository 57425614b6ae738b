"""Packages of large models: blocks of columns go backwards in every second step, and memory is used again, unseen."""

from __future__ import annotations

import json
from typing import Any

import package_checks
import packaged
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("target", packaged.NATIVE)
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_the_order_of_blocks_changes_no_bit(
    quantize: str | None, target: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Steps from a state that was saved after an odd number of steps are the same as without a stop."""
    torch.manual_seed(1)
    module, x = nn.LSTM(3, 271), torch.randn(9, 3)  # 271: blocks that no number of vectors fills
    path = tmp_path_factory.mktemp("packages") / "model"
    model = packaged.loaded(weft.package(module, x, path, targets=target, quantize=quantize), tmp_path_factory)
    expected = module(x)[0] if quantize is None else weft.quantize(module)(x)[0]
    whole = model.run(x)
    package_checks.assert_close(whole, expected)
    for steps in (1, 2, 3):
        model.reset()
        first = model.run(x[:steps])
        model.restore(model.save())
        assert torch.equal(torch.cat([first, model.run(x[steps:])]), whole)


def test_layers_and_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(2)
    module, x = nn.GRU(160, 160, 2), torch.randn(5, 3, 160)
    folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
    package_checks.assert_close(packaged.loaded(folder, tmp_path_factory).run(x), module(x)[0])


def test_a_step_that_fails(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The step leaves the state, and the order of the next step's blocks, unchanged."""
    torch.manual_seed(3)
    w, table = torch.randn(320, 320) / 18, torch.randn(4, 320)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h @ w + table[x])
        return h, h

    xs = torch.tensor([0, 3, 1, 2])
    folder = weft.package(step, (torch.zeros(320), xs[0]), tmp_path_factory.mktemp("packages") / "model")
    model = packaged.loaded(folder, tmp_path_factory)
    (expected,) = package_checks.carry_and_outputs(step, torch.zeros(320), xs, 4)[1]
    for x, wanted in zip(xs, expected, strict=True):
        with pytest.raises(RuntimeError, match="an index is outside its table"):
            model.step(torch.tensor(4))
        package_checks.assert_close(model.step(x), wanted, 5e-6)


def deep_step(layers: list[Tensor]) -> package_checks.StepFunction:
    """Norms, reductions and products of all kinds one after the other, with a way around each."""

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x
        for i, w in enumerate(layers):
            y = functional.layer_norm(x @ w, (w.shape[1],))
            y = y * torch.softmax(x, -1) if i % 2 else torch.tanh(y) + carry
            x = torch.cat([y[: len(y) // 2], x[len(y) // 2 :]]) + x
        return carry * 0.5 + x, x + first

    return step


@pytest.mark.parametrize("target", [*packaged.NATIVE, "aarch64", "cortex-m4"])
@pytest.mark.parametrize("width", [1, 33])
def test_deep_steps(width: int, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(4)
    step = deep_step([torch.randn(width, width) / width**0.5 for _ in range(7)])
    package_checks.check_step(tmp_path_factory, step, torch.zeros(width), torch.randn(5, width), 5, [target], 1e-5)


def test_memory_does_not_grow_with_depth(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(5)
    sizes = []
    for depth in (4, 24):
        step = deep_step([torch.randn(40, 40) / 6 for _ in range(depth)])
        path = tmp_path_factory.mktemp("packages") / "model"
        folder = weft.package(step, (torch.zeros(40), torch.zeros(40)), path, targets="cortex-m4")
        sizes.append(json.loads((folder / "model.json").read_text())["targets"]["cortex-m4"]["state_bytes"])
    assert sizes[0] == sizes[1]


def test_layers_stack_no_states(tmp_path_factory: pytest.TempPathFactory) -> None:
    """PyTorch's modules take and give the states of all layers as one tensor, which is nowhere in a package."""
    torch.manual_seed(6)
    module, x = nn.GRU(16, 64, 3), torch.randn(4, 16)
    folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model", targets="cortex-m4")
    states = 3 * 64 * 4
    assert json.loads((folder / "model.json").read_text())["targets"]["cortex-m4"]["state_bytes"] < 2.5 * states
    (found,) = packaged.run(folder, "cortex-m4", [x], 4, {"y": (torch.float32, (64,))})
    package_checks.assert_close(found, module(x)[0])
