"""Steps in float64: functions within units in the last place of wider arithmetic's, filters, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import package_checks
import packaged
import pytest
import torch
from torch import Tensor

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def numbers(least: float, most: float, count: int = 20_000) -> Tensor:
    """Of both signs, by their logarithms."""
    torch.manual_seed(1)
    sizes = torch.exp(torch.empty(count, dtype=torch.float64).uniform_(np.log(least), np.log(most)))
    return sizes * torch.randint(0, 2, (count,)).mul(2).sub(1)


#: the function in PyTorch and in numpy, arguments from least to most, units in the last place
ONE: dict[str, tuple[Callable[[Tensor], Tensor], Any, float, float, float]] = {
    "sin": (torch.sin, np.sin, 1e-9, 1e6, 2),
    "cos": (torch.cos, np.cos, 1e-9, 1e6, 2),
    "log1p": (torch.log1p, np.log1p, 1e-20, 1e20, 3),
    "log2": (torch.log2, np.log2, 1e-300, 1e300, 2),
    "log10": (torch.log10, np.log10, 1e-300, 1e300, 2),
    "atan": (torch.atan, np.arctan, 1e-20, 1e20, 2),
}
TWO: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Any, float]] = {
    "atan2": (torch.atan2, np.arctan2, 2),
    "hypot": (torch.hypot, np.hypot, 4),
    "logaddexp": (torch.logaddexp, np.logaddexp, 4),
    "fmod": (torch.fmod, np.fmod, 0),
}
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-320, 1e300, float("inf"), -float("inf"), float("nan")]


def units(found: Tensor, exact: np.ndarray) -> float:
    """The largest distance in units in the last place."""
    unit = np.spacing(np.maximum(np.abs(exact.astype(np.float64)), 2.3e-308))
    error = np.abs(found.numpy().astype(np.longdouble) - exact) / unit
    return float(np.max(error[np.isfinite(exact)]))


def assert_edges(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.isnan(), expected.isnan())
    special = ~expected.isnan() & (expected.isinf() | (expected == 0))
    assert torch.equal(found[special], expected[special])
    assert torch.equal(found[special].signbit(), expected[special].signbit())


def package(
    function: Callable[..., Tensor], xs: tuple[Tensor, ...], target: str, factory: pytest.TempPathFactory
) -> Any:
    def step(carry: Tensor, x: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return carry + 1, function(*x)

    example = (torch.zeros(()), tuple(x[0] for x in xs))
    folder = weft.package(step, example, factory.mktemp("packages") / "model", targets=target)
    return packaged.loaded(folder, factory)


@pytest.mark.parametrize("target", packaged.NATIVE)
@pytest.mark.parametrize("name", ONE)
def test_functions(name: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    function, exact, least, most, limit = ONE[name]
    x = numbers(least, most)
    x = (x.abs() if name.startswith("log") and name != "log1p" else x[x > -1] if name == "log1p" else x)[:9600].reshape(
        -1, 8
    )
    model = package(function, (x,), target, tmp_path_factory)
    assert units(model.run(x), exact(x.numpy().astype(np.longdouble))) <= limit
    edges = torch.tensor(EDGES, dtype=torch.float64)
    if name in ("sin", "cos"):  # beyond 10^6 NaN
        edges = edges[edges.isnan() | edges.isinf() | (edges.abs() < 1e6)]
    padded = torch.cat([edges, edges.new_ones(-len(edges) % 8)]).reshape(-1, 8)
    assert_edges(model.run(padded), function(padded))


@pytest.mark.parametrize("target", packaged.NATIVE)
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(name: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    function, exact, limit = TWO[name]
    x = numbers(1e-6, 1e6, 9600).reshape(-1, 8)
    y = numbers(1e-6, 1e6, 9600).flip(0).reshape(-1, 8)
    model = package(function, (x, y), target, tmp_path_factory)
    wide = exact(x.numpy().astype(np.longdouble), y.numpy().astype(np.longdouble))
    found = model.run(x, y)
    if name == "logaddexp":  # where the sum is near 1 it has the error of its terms
        scale = torch.maximum(x.abs(), y.abs()).clamp(min=1).numpy()
        assert float(np.max(np.abs(found.numpy() - wide) / scale)) < 5e-16
    elif name == "fmod":
        assert torch.equal(found, torch.fmod(x, y))
    else:
        assert units(found, wide) <= limit
    edges = torch.tensor(EDGES, dtype=torch.float64)
    a, b = (each.flatten() for each in torch.meshgrid(edges, edges, indexing="ij"))
    keep = torch.ones(len(a), dtype=torch.bool)
    if name == "fmod":  # of quotients of 2^50 and more NaN
        keep = ~((a.abs() / b.abs() > 2.0**50) & a.isfinite() & (b != 0))
    pad = -int(keep.sum()) % 8
    a, b = (torch.cat([each[keep], each.new_ones(pad)]).reshape(-1, 8) for each in (a, b))
    assert_edges(model.run(a, b), function(a, b))


def kalman(carry: tuple[Tensor, Tensor], z: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A position and its rate, of which the position is measured."""
    x, p = carry
    f = torch.tensor([[1.0, 0.1], [0.0, 1.0]], dtype=torch.float64)
    h, q = torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.01 * torch.eye(2, dtype=torch.float64)
    x, p = f @ x, f @ p @ f.T + q
    gain = p @ h.T / (h @ p @ h.T + 0.1)
    return (x + gain @ (z - h @ x), (torch.eye(2, dtype=torch.float64) - gain @ h) @ p), x


def oscillator(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A filter of second order near its limit of stability, with an input that turns."""
    phase, past = carry
    y = x * torch.sin(phase) + 1.9999 * past[0] - 0.99995 * past[1]
    return (torch.remainder(phase + 0.1 + 0.01 * torch.log1p(x * x), 6.283185307179586), torch.stack([y, past[0]])), y


STEPS = {
    "kalman": (kalman, (torch.zeros(2, 1).double(), torch.eye(2).double()), (1, 1)),
    "oscillator": (oscillator, (torch.zeros(()).double(), torch.zeros(2).double()), ()),
}


@pytest.mark.parametrize("target", [*packaged.NATIVE, "aarch64", "riscv64", "wasm32"])
@pytest.mark.parametrize("name", STEPS)
def test_filters(name: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    step, init, shape = STEPS[name]
    torch.manual_seed(2)
    xs = torch.randn(400, *shape, dtype=torch.float64)
    package_checks.check_step(tmp_path_factory, step, init, xs, 400, [target], 1e-11)
