"""Compares a package's steps with the same steps in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import packaged
import pytest
import torch
from oracles import loop
from torch import Tensor
from torch.utils import _pytree as pytree

import weft

EMULATED = ["aarch64", "riscv64"]

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


def carry_and_outputs(step: StepFunction, init: Any, xs: Any, steps: int) -> tuple[Any, list[Tensor]]:
    """In plain PyTorch: the last carry, and the stacked ys in the order of a package's outputs."""
    carry, ys = loop(step, init, xs, length=steps)
    return carry, [leaf for leaf in pytree.tree_leaves(ys) if leaf is not None]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if not expected.is_floating_point():
        assert torch.equal(found, expected)
        return
    nan = expected.isnan()
    assert torch.equal(found.isnan(), nan)
    finite = expected.isfinite()
    assert torch.equal(found[~finite & ~nan], expected[~finite & ~nan])
    scale = max(expected[finite].abs().max().item() if finite.any() else 0.0, 1e-3)
    assert (
        (found[finite].double() - expected[finite].double()).abs().max().item() <= tolerance * scale
        if finite.any()
        else True
    )


def check_step(
    factory: pytest.TempPathFactory,
    step: StepFunction,
    init: Any,
    xs: Any,
    steps: int,
    targets: list[str],
    tolerance: float = 2e-6,
) -> None:
    """Steps of a package of each target beside PyTorch's: outputs, and the last state."""
    expected_carry, expected = carry_and_outputs(step, init, xs, steps)
    x = pytree.tree_map(lambda x: x[0], xs)
    for target in targets:
        folder = factory.mktemp("packages") / "model"
        weft.package(step, (init, x), folder, targets=target)
        if target in packaged.NATIVE:
            model = packaged.loaded(folder, factory)
            found = model.run(*pytree.tree_leaves(xs), steps=steps)
            found = list(found) if isinstance(found, tuple) else [found]
            for state, leaf in zip(model.state.values(), pytree.tree_leaves(expected_carry), strict=True):
                assert_close(state, leaf, tolerance)
        else:
            described = {str(i): (y.dtype, tuple(y.shape[1:])) for i, y in enumerate(expected)}
            found = packaged.run(folder, target, pytree.tree_leaves(xs), steps, described)
        for y, wanted in zip(found, expected, strict=True):
            assert_close(y, wanted, tolerance)
