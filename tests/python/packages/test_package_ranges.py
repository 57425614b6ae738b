"""sin, cos and remainders of numbers of all sizes, also beside multiples of what they are reduced by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import package_checks
import packaged
import pytest
import torch
from torch import Tensor, nn

import weft
from weft import _C

TARGETS = [*packaged.NATIVE, "aarch64", "riscv64", "wasm32"]
BOTH = [(dtype, target) for dtype in (torch.float32, torch.float64) for target in TARGETS]
BOTH += [(torch.float32, target) for target in package_checks.MICROCONTROLLERS]  # by other formulas
WIDTH = 24


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def of_all_sizes(dtype: torch.dtype, count: int) -> Tensor:
    """Finite numbers with random bits."""
    bits, integers = (32, torch.int32) if dtype == torch.float32 else (64, torch.int64)
    x = torch.randint(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, (2 * count,)).to(integers).view(dtype)
    return x[x.isfinite()][:count]


def beside_multiples(dtype: torch.dtype, count: int) -> Tensor:
    """Numbers nearest to multiples of pi/2, up to the largest, and the one f64 that is nearer than all others."""
    most = 127 if dtype == torch.float32 else 1023
    with mpmath.workprec(1300):
        sizes = torch.rand(count, dtype=torch.float64) * most
        multiples = [float(int(mpmath.mpf(2) ** size) * mpmath.pi / 2) for size in sizes.tolist()]
    return torch.tensor([*multiples, 6381956970095103.0 * 2.0**797], dtype=torch.float64).to(dtype)


def rows(x: Tensor) -> Tensor:
    """[steps, WIDTH], with a few ordinary numbers and edges in every row."""
    usual = torch.tensor([0.5, -3.0, 0.0, -0.0, float("inf"), float("nan")], dtype=x.dtype)
    x = x[: len(x) // (WIDTH - 6) * (WIDTH - 6)].reshape(-1, WIDTH - 6)
    return torch.cat([x[:, :9], usual.expand(len(x), 6), x[:, 9:]], 1).contiguous()


def run(
    function: Callable[..., Tensor], xs: tuple[Tensor, ...], target: str, factory: pytest.TempPathFactory
) -> Tensor:
    """The function of stacked steps, as computed by a package."""

    def step(carry: Tensor, x: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return carry + 1, function(*x)

    example = (torch.zeros(()), tuple(x[0] for x in xs))
    folder = weft.package(step, example, factory.mktemp("packages") / "model", targets=target)
    if target not in packaged.NATIVE:
        return packaged.run(folder, target, xs, len(xs[0]), {"y": (xs[0].dtype, tuple(function(*example[1]).shape))})[0]
    model = packaged.loaded(folder, factory)
    found = model.run(*xs)
    assert isinstance(found, Tensor)
    turned = model.run(*(x.flip(-1).contiguous() for x in xs)).flip(-1)  # a lane's result depends on no other lane
    bits = torch.int32 if found.dtype == torch.float32 else torch.int64
    same = (turned.view(bits) == found.view(bits)) | (turned.isnan() & found.isnan())
    assert same.all()
    return found


def units(found: Tensor, exact: np.ndarray) -> float:
    """The largest distance in units in the last place; NaN where PyTorch has it."""
    assert torch.equal(found.isnan(), torch.from_numpy(np.isnan(exact.astype(np.float64))))
    single = found.dtype == torch.float32
    rounded = exact.astype(np.float32 if single else np.float64)
    unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(rounded.dtype).tiny)).astype(np.longdouble)
    error = np.abs(found.numpy().astype(np.longdouble) - exact) / unit
    return float(np.max(error[np.isfinite(exact)]))


@pytest.mark.parametrize(("dtype", "target"), BOTH)
def test_turns(dtype: torch.dtype, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(7)
    small = torch.randint(1, 636_619, (6000,)).double() * np.pi / 2  # beside multiples, reduced with few digits
    x = rows(torch.cat([of_all_sizes(dtype, 12_000), beside_multiples(dtype, 3000), small.to(dtype)]))
    found = run(lambda x: torch.stack([torch.sin(x), torch.cos(x)]), (x,), target, tmp_path_factory)
    wide = x.numpy().astype(np.longdouble)
    exact = np.stack([np.sin(wide), np.cos(wide)], 1)  # glibc's reduce numbers of all sizes
    most = 1 if dtype == torch.float32 and target not in package_checks.MICROCONTROLLERS else 2
    assert units(found, exact) <= most
    assert torch.equal(found[:, 0][x == 0].signbit(), x[x == 0].signbit())


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Dividends and divisors of all sizes; quotients beside integers, and beside halves; the largest dividend."""
    x, y = of_all_sizes(dtype, 24_000).chunk(2)
    y = y.clone()
    y[6000:] = (torch.rand(len(y) - 6000, dtype=dtype) + 0.5) * 2.0 ** torch.randint(-60, 60, (len(y) - 6000,))
    x = x.clone()
    x[8000:] = y[8000:] * torch.randint(1, 1 << 45, (len(x) - 8000,)).to(dtype)
    x[10_000:] = y[10_000:] * (torch.randint(1, 1 << 20, (len(x) - 10_000,)).to(dtype) + 0.5)
    most = torch.full((4500,), torch.finfo(dtype).max, dtype=dtype)
    parts = most / torch.arange(1, 4501).to(dtype)
    return torch.cat([x, most]), torch.cat([y, torch.nextafter(parts, 2 * parts).clamp(max=most[0])])


@pytest.mark.parametrize(("dtype", "target"), BOTH)
def test_remainders(dtype: torch.dtype, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(8)
    x, y = pairs(dtype)
    x, y = rows(x), rows(y.flip(0)).flip(1).contiguous()
    x[-1, :4], y[-1, :4] = torch.tensor([5.0, -5.0, 5.0, 1e30]), torch.tensor([0.0, -0.0, float("inf"), 0.0])
    found = run(torch.fmod, (x, y), target, tmp_path_factory)
    expected = torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    known = ~expected.isnan()
    assert torch.equal(found[known].signbit(), expected[known].signbit())


@pytest.mark.parametrize("target", [name for name, _ in _C.package_targets()])
def test_no_target_needs_a_library(target: str, tmp_path: Path) -> None:
    """The packager refuses an object that names a function of others, as that for stacks above a page on Windows."""

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return carry + 1, [torch.sin(x), torch.cos(x), x % 3, torch.fmod(x, carry), torch.tan(x), x.abs() ** carry]

    for dtype in (torch.float32, *([] if target.startswith("cortex") else [torch.float64])):
        x = torch.zeros(24, dtype=dtype)
        weft.package(step, (x, x), tmp_path / "model", targets=target)


def test_chunks_of_large_arguments(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Calls of 16 steps have the bits of single ones, whichever lanes lie beside each other."""
    torch.manual_seed(9)

    class Turned(nn.Module):
        """Powers of two as factors, since a rounding of a large argument would be a turn."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv1d(4, 4, 3, dilation=2**i) for i in range(4)])

        def forward(self, x: Tensor) -> Tensor:
            large = torch.where(x > 0.5, 2.0**40, 2.0)
            x = torch.sin(x * large) + torch.fmod(x * large, 0.75)
            for i, layer in enumerate(self.layers):
                x = torch.tanh(layer(nn.functional.pad(x, (2 << i, 0))))
            return x

    x = torch.randn(1, 4, 150)
    folder = weft.package(
        Turned(), x, tmp_path_factory.mktemp("packages") / "model", time=2, targets=packaged.NATIVE[-1]
    )
    xs = x.movedim(2, 0).unsqueeze(-1).contiguous()
    package_checks.check_chunks(packaged.loaded(folder, tmp_path_factory), xs)
