"""Steps in float64: functions within units in the last place of wider arithmetic's, and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
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


def wide(x: mpmath.mpf) -> np.longdouble:
    """A number of mpmath's with the bits of two f64."""
    high = float(x)
    return np.longdouble(high) + np.longdouble(float(x - high))


#: the function in PyTorch and in numpy, arguments from least to most, units in the last place
ONE: dict[str, tuple[Callable[[Tensor], Tensor], Any, float, float, float]] = {
    "sin": (torch.sin, np.sin, 1e-9, 1e6, 2),
    "cos": (torch.cos, np.cos, 1e-9, 1e6, 2),
    "log1p": (torch.log1p, np.log1p, 1e-20, 1e20, 3),
    "log2": (torch.log2, np.log2, 1e-300, 1e300, 2),
    "log10": (torch.log10, np.log10, 1e-300, 1e300, 2),
    "atan": (torch.atan, np.arctan, 1e-20, 1e20, 2),
    "erf": (torch.erf, np.vectorize(lambda x: wide(mpmath.erf(x)), otypes=[np.longdouble]), 1e-300, 6, 2),
    "erfc": (torch.erfc, np.vectorize(lambda x: wide(mpmath.erfc(x)), otypes=[np.longdouble]), 1e-3, 27.5, 4),
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
    a, b = (torch.cat([each, each.new_ones(-len(each) % 8)]).reshape(-1, 8) for each in (a, b))
    # PyTorch's fmod has NaN for quotients that are too large.
    expected = torch.from_numpy(np.fmod(a.numpy(), b.numpy())) if name == "fmod" else function(a, b)
    assert_edges(model.run(a, b), expected)


def powers() -> tuple[Tensor, Tensor]:
    """Bases of all sizes and beside 1, with exponents for which the result is finite for the most part."""
    torch.manual_seed(3)
    bits = torch.randint(0, 0x7FEFFFFFFFFFFFFF, (3000,)).view(torch.float64)
    ones = 1 + numbers(1e-16, 0.5, 3000)
    x = torch.cat([bits, ones])
    y = (torch.rand(len(x), dtype=torch.float64) * 2 - 1) * 745 / x.log().abs().clamp(min=1e-300)
    few = torch.rand(2000, dtype=torch.float64) * 4
    return torch.cat([x, few]), torch.cat([y, torch.randint(-40, 40, (1000,)) / 2, torch.randn(1000).double()])


@pytest.mark.parametrize("target", packaged.NATIVE)
def test_powers(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    x, y = (each.reshape(-1, 8) for each in powers())
    model = package(torch.pow, (x, y), target, tmp_path_factory)
    with mpmath.workprec(160):
        pairs = zip(x.flatten().tolist(), y.flatten().tolist(), strict=True)
        exact = np.array([wide(mpmath.power(*pair)) for pair in pairs]).reshape(x.shape)
    assert units(model.run(x, y), exact) <= 2
    whole = [2.0, 3.0, -3.0, 2.0**52 + 1, 2.0**53 - 1, -(2.0**53) - 2, 1e308, 1 + 2.0**-52, 1 - 2.0**-53]
    edges = torch.tensor([*EDGES, *whole, -745.2, 2.5, 5e-324], dtype=torch.float64)
    a, b = (each.flatten() for each in torch.meshgrid(edges, edges, indexing="ij"))
    a, b = (torch.cat([each, each.new_ones(-len(each) % 8)]).reshape(-1, 8) for each in (a, b))
    with np.errstate(all="ignore"):
        assert_edges(model.run(a, b), torch.from_numpy(np.power(a.numpy(), b.numpy())))


@pytest.mark.parametrize("target", ["aarch64", "riscv64", "wasm32", "cortex-m7-f64"])
def test_functions_elsewhere(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """pow, erf and erfc beside PyTorch's."""
    x, y = (each[: 4 * 8 * 50].reshape(-1, 8) for each in powers())
    z = numbers(1e-3, 27, x.numel()).reshape(x.shape)

    def step(carry: Tensor, x: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, list[Tensor]]:
        return carry, [torch.pow(x[0], x[1]), torch.erf(x[2]), torch.erfc(x[2]), torch.sin(x[2])]

    folder = weft.package(
        step, (torch.zeros(()), (x[0], y[0], z[0])), tmp_path_factory.mktemp("p") / "model", targets=target
    )
    shapes = {str(i): (torch.float64, (8,)) for i in range(4)}
    found = packaged.run(folder, target, [x, y, z], len(x), shapes)
    for each, expected in zip(found, (torch.pow(x, y), torch.erf(z), torch.erfc(z), torch.sin(z)), strict=True):
        torch.testing.assert_close(each, expected, rtol=2e-15, atol=1e-323, equal_nan=True)


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
