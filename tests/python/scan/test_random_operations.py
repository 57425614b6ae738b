"""Random steps of many operations: as weft.scan, under weft.jit and on the device they give the loop's values and its
gradients. WEFT_RANDOM_OPERATIONS says how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from operation_cases import Case
from oracles import loop
from torch import Tensor

import weft

COUNT = int(os.environ.get("WEFT_RANDOM_OPERATIONS", "160"))


def _check(case: Case, run: Callable[..., Any], length: int, device: str = "cpu") -> None:
    expected = case.results(loop, length, "cpu")
    if not all(torch.isfinite(value).all() for value in expected if value is not None):
        return
    found = case.results(run, length, device)
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        told = f"{case.text}result {place} of {length} steps"
        if ours is None or theirs is None:  # where PyTorch has a gradient of zeros, none is an error for its user
            assert theirs is None, f"{told}: no gradient"
            assert ours is None or not ours.any(), f"{told}: a gradient where there is none"
        else:
            _assert_close(ours, theirs, told)


def _assert_close(ours: Tensor, theirs: Tensor, told: str) -> None:
    scale = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
    torch.testing.assert_close(
        ours, theirs, rtol=2e-3, atol=1e-3 * scale, equal_nan=True, msg=lambda words: f"{told}: {words}"
    )


@pytest.mark.parametrize("first", range(0, COUNT, 20))
def test_scans_are_programs_with_the_loops_results(first: int) -> None:
    for seed in range(first, first + 20):
        case = Case.of(seed)
        for length in (3, 1) if seed % 2 else (4,):
            before = dict(weft.stats()["fallbacks"])
            _check(case, weft.scan, length)
            new = [reason for reason, n in weft.stats()["fallbacks"].items() if n > before.get(reason, 0)]
            # A view that was made without a gradient may show a value that has one.
            assert not new or ("no_grad" in case.text and "goes through a node" in new[0]), (case.text, new)


@pytest.mark.parametrize("first", range(0, COUNT // 4, 10))
def test_loops_under_jit_have_the_loops_results(first: int) -> None:
    def run(step: Any, carry: Any, xs: Tensor) -> Any:
        return weft.jit(lambda carry, xs: loop(step, carry, xs))(carry, xs)

    for seed in range(first, first + 10):
        _check(Case.of(seed), run, 3)


@pytest.mark.parametrize("first", range(0, COUNT // 4, 10))
def test_loops_on_the_device_have_the_loops_results(first: int) -> None:
    for seed in range(first, first + 10):
        for _ in range(2):  # recorded, then a program
            _check(Case.of(seed), loop, 3, "weft")
