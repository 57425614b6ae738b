"""Windows over the past in packages: rings in memory, which nobody may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import package_checks
import packaged
import pytest
import torch
from torch import Tensor, nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def newest(window: Tensor, x: Tensor, dim: int, at_front: bool) -> Tensor:
    """The window with x, rows of the same dim, at one end."""
    kept = window.shape[dim] - x.shape[dim]
    parts = [window.narrow(dim, 0, kept), x] if at_front else [window.narrow(dim, x.shape[dim], kept), x]
    return torch.cat(parts[::-1] if at_front else parts, dim)


def window_step(dim: int, at_front: bool, weights: Tensor) -> package_checks.StepFunction:
    """Reads the old window and the new one, in whole and in parts; the window is a result, too."""

    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
        old = carry["window"]
        window = newest(old, torch.sin(x), dim, at_front)
        scores = window * weights + old.flip(dim) / 2
        return {"window": window, "sum": carry["sum"] + scores}, [window, scores.sum(dim), old.narrow(dim, 1, 2) * 2]

    return step


SHAPES = [(4,), (5, 3), (2, 9), (33,), (2, 5, 3), (1, 64, 2)]


@pytest.mark.parametrize("at_front", [False, True])
@pytest.mark.parametrize(
    ("shape", "dim"), [(shape, dim) for shape in SHAPES for dim, rows in enumerate(shape) if rows > 2]
)
def test_windows(shape: tuple[int, ...], dim: int, at_front: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(1)
    weights, rows = torch.randn(shape), [1] if len(shape) == 3 else [1, 2, shape[dim] // 4 or 1]
    for fresh in rows:
        size = [fresh if i == dim else n for i, n in enumerate(shape)]
        steps = 2 * shape[dim] + 5
        carry = {"window": torch.randn(shape), "sum": torch.zeros(shape)}
        step = window_step(dim, at_front, weights)
        package_checks.check_step(
            tmp_path_factory, step, carry, torch.randn(steps, *size), steps, packaged.NATIVE[-1:], 1e-5
        )


@pytest.mark.parametrize("target", [*packaged.NATIVE, *packaged.MACHINES])
def test_windows_on_all_targets(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The driver of emulated targets saves and restores in the middle."""
    torch.manual_seed(2)
    weights = torch.randn(9)

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        window = torch.cat([window[1:], x[None]])
        return window, [window.t() @ weights, window[0] + x]

    package_checks.check_step(tmp_path_factory, step, torch.randn(9, 5), torch.randn(31, 5), 31, [target], 5e-6)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype: torch.dtype, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([window[:, 1:], x[:, None]], 1), window

    window, xs = (torch.randn(3, 7) * 3).to(dtype), (torch.randn(20, 3) * 3).to(dtype)
    package_checks.check_step(tmp_path_factory, step, window, xs, 20, packaged.NATIVE, 0)


def test_several_windows_and_one_that_restarts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Windows of one length go on together; what replaces a window by another is no ring."""
    torch.manual_seed(4)

    def step(carry: list[Tensor], x: Tensor) -> tuple[list[Tensor], Tensor]:
        a, b, c, d = carry
        late = a[0]
        moved = [torch.cat([a[1:], x[None]]), torch.cat([b[1:], late[None] * 2]), torch.cat([b[1:], x[None]])]
        return [*moved, torch.cat([torch.zeros(1, 3), d[:-1]])], late + b[2] + c[0] + d[4]

    carry = [torch.randn(n, 3) for n in (8, 8, 8, 5)]
    package_checks.check_step(tmp_path_factory, step, carry, torch.randn(40, 3), 40, packaged.NATIVE, 1e-6)


def test_a_step_that_fails_leaves_its_window(tmp_path_factory: pytest.TempPathFactory) -> None:
    table = torch.arange(24.0).reshape(8, 3)

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat([window[1:], table[x][None]])
        return window, window.sum(0)

    folder = weft.package(step, (torch.zeros(6, 3), torch.tensor(0)), tmp_path_factory.mktemp("packages") / "model")
    model, window = packaged.loaded(folder, tmp_path_factory), torch.zeros(6, 3)
    for i in range(30):
        with pytest.raises(RuntimeError, match="an index is outside its table"):
            model.step(torch.tensor(8 + i))
        window, expected = step(window, torch.tensor(i % 8))
        assert torch.equal(model.step(torch.tensor(i % 8)), expected)
        assert torch.equal(model.state["carry"], window)


class Wave(nn.Module):
    """Dilated causal convolutions, gated, with ways around them."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**i) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            a, b = layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return x


def test_saved_states_fit_all_targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wherever the windows stand in their rings, the saved bytes are the same for each target, and every target
    continues from them."""
    torch.manual_seed(5)
    wave, xs = Wave(4, 5).eval(), torch.randn(1, 4, 90)
    models = []
    for target in packaged.NATIVE:
        folder = weft.package(wave, xs, tmp_path_factory.mktemp("packages") / "wave", time=2, targets=target)
        models.append(packaged.loaded(folder, tmp_path_factory))
    rows, expected = xs.movedim(2, 0).unsqueeze(-1).contiguous(), wave(xs)
    for start in (0, 1, 7, 45):
        models[0].reset()
        models[0].run(rows[:start])
        for model in models:
            model.restore(models[0].save())
            assert model.save() == models[0].save()
            found = model.run(rows[start:]).squeeze(-1).movedim(0, 2)
            package_checks.assert_close(found, expected[..., start:], 5e-6)
            models[0].reset()
            models[0].run(rows[:start])


def test_a_step_takes_as_long_for_any_window(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step_ns(window: int) -> float:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cat([carry[1:], x[None]]), carry[0] + x

        init, xs = torch.zeros(window, 16), torch.randn(2000, 16)
        folder = weft.package(step, (init, xs[0]), tmp_path_factory.mktemp("packages") / "model")
        return package_checks.least_step_ns(packaged.loaded(folder, tmp_path_factory), xs)

    assert step_ns(2048) < 10 * step_ns(16)  # copying 128 KB takes a hundred times as long


FEW: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all new": lambda w, x: torch.stack([x] * 6),
    "computed": lambda w, x: torch.cat([w[1:] * 0.5, x[None]]),
    "another part": lambda w, x: torch.cat([w[2:5], w[:2], x[None]]),
    "uneven": lambda w, x: torch.cat([w[4:], torch.stack([x] * 4)]),
}


@pytest.mark.parametrize("name", FEW)
def test_what_is_no_ring(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(6)

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        window = FEW[name](window, x)
        return window, window[0] + window[5]

    package_checks.check_step(tmp_path_factory, step, torch.randn(6, 3), torch.randn(20, 3), 20, packaged.NATIVE, 1e-6)
