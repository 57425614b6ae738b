"""Sorting, ranks and medians of short rows within a step, distances, and shifts of integers."""

from __future__ import annotations

import math
import random
from typing import Any

import packaged
import pytest
import torch
from package_checks import EMULATED, Case, check_cases, check_step
from torch import Tensor

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def _rows(rng: random.Random) -> tuple[Tensor, int]:
    """With equal elements, infinities and NaNs among them, and the dim to sort along."""
    n = rng.choice([1, 2, 3, 7, 16, 33])
    dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.int64, torch.int32])
    shape, dim = rng.choice([((n,), 0), ((2, n), 1), ((n, 3), 0), ((2, n, 2), 1)])
    x = torch.randint(-5, 6, shape).to(dtype)
    if dtype.is_floating_point:
        x = torch.where(torch.rand(shape) < 0.5, x, torch.randn(shape, dtype=dtype))
        if rng.random() < 0.4:
            x = torch.where(torch.rand(shape) < 0.2, torch.nan, x)
            x = torch.where(torch.rand(shape) < 0.1, torch.inf, x)
    return x, dim


def _cases(rng: random.Random) -> list[Case]:
    x, d = _rows(rng)
    down, keep, right, k, bits = *(rng.random() < 0.5 for _ in range(3)), rng.randint(1, x.shape[d]), rng.randint(0, 31)
    ordered, wanted = torch.sort(x.flatten().nan_to_num())[0], torch.randint(-6, 6, (2, 4)).to(x.dtype)
    cases: list[Case] = [
        ("sort", lambda x: torch.sort(x, dim=d, descending=down, stable=True), (x,)),
        ("values", lambda x: x.sort(dim=d, descending=down).values, (x,)),
        ("argsort", lambda x: torch.argsort(x, dim=d, descending=down, stable=True), (x,)),
        ("msort", torch.msort, (x,)),
        ("topk", lambda x: torch.topk(x, k, d, down).values, (x,)),
        ("kthvalue", lambda x: torch.kthvalue(x, k, d, keep).values, (x,)),
        ("median", torch.median, (x,)),
        ("median of rows", lambda x: torch.median(x, d, keep).values, (x,)),
        ("nanmedian", torch.nanmedian, (x,)),
        ("nanmedian of rows", lambda x: torch.nanmedian(x, d, keep).values, (x,)),
        ("searchsorted", lambda x, y: torch.searchsorted(x, y, right=right), (ordered, wanted)),
    ]
    if x.is_floating_point():
        a, b = torch.randn(2, 3, 4, dtype=x.dtype), torch.randn(2, 5, 4, dtype=x.dtype)
        p = rng.choice([0.0, 1.0, 2.0, 3.0, math.inf])
        return [
            *cases,
            ("quantile", lambda x: torch.quantile(x, 0.3, d), (x,)),
            ("nanquantile", lambda x: torch.nanquantile(x, 0.7, d), (x,)),
            (f"cdist, {p}", lambda a, b: torch.cdist(a, b, p), (a, b)),
        ]
    return [
        *cases,
        ("left", lambda x: x << bits, (x,)),
        ("right", lambda x: (x * 12345677) >> bits, (x,)),
        ("xorshift", lambda x: torch.bitwise_right_shift(x ^ (x << 3), 5), (x,)),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_random_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    targets = [EMULATED[seed % 2], "wasm32"] if seed % 6 == 5 else ["x86-64-v3"]
    check_cases(tmp_path_factory, rng.sample(_cases(rng), 9), targets)


def test_long_rows_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    x = torch.randn(200)
    with pytest.raises(RuntimeError, match=r"aten.sort.default"):
        weft.package(lambda c, x: (c, x.sort()[0]), (x, x), tmp_path_factory.mktemp("packages") / "m")


def test_a_median_filter_and_the_nearest_code() -> None:
    """In a model over time; with more than 25 rows PyTorch computes distances by products, in another way."""
    torch.manual_seed(0)
    codes, x = torch.randn(40, 6), torch.randn(2, 60, 6)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        calm = torch.nn.functional.pad(x, (0, 0, 4, 0)).unfold(1, 5, 1).median(-1).values
        return calm, torch.cdist(x.flatten(0, 1), codes).argmin(-1).view(x.shape[:2])

    calm, nearest = weft.stream(model, x).run(x)
    expected_calm, expected_nearest = model(x)
    assert torch.equal(calm, expected_calm) and torch.equal(nearest, expected_nearest)


def test_the_package_of_a_noise_generator(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = state ^ (state << 13)
        state = state ^ ((state >> 7) & ((1 << 57) - 1))
        state = state ^ (state << 17)
        return state, x + (state >> 40).float() / 2**24

    init = torch.tensor([88172645463325252])
    check_step(tmp_path_factory, step, init, torch.randn(50, 1), 50, [*packaged.NATIVE, *EMULATED])
