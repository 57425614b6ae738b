"""Compares a package's steps with the same steps in PyTorch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from oracles import loop
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import weft

EMULATED = ["aarch64", "riscv64"]
MICROCONTROLLERS = [name for name in packaged.MACHINES if name.startswith("cortex")]  # without float64

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


def _as_pairs(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def check_step(
    factory: pytest.TempPathFactory,
    step: StepFunction,
    init: Any,
    xs: Any,
    steps: int,
    targets: list[str],
    tolerance: float = 2e-6,
) -> None:
    """Steps of a package of each target beside PyTorch's: outputs, and the last state. Complex tensors are pairs."""
    expected_carry, expected = carry_and_outputs(step, init, xs, steps)
    expected_carry, expected = pytree.tree_map(_as_pairs, expected_carry), [_as_pairs(y) for y in expected]
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
            found = packaged.run(folder, target, list(map(_as_pairs, pytree.tree_leaves(xs))), steps, described)
        for y, wanted in zip(found, expected, strict=True):
            assert_close(y, wanted, tolerance)


#: A name, a function of tensors, and the tensors.
Case = tuple[str, Callable[..., Any], tuple[Tensor, ...]]


def check_cases(
    factory: pytest.TempPathFactory, cases: Sequence[Case], targets: list[str], tolerance: float = 2e-6
) -> None:
    """Functions in one step, so that they are compiled together, beside PyTorch's."""

    def step(carry: Tensor, x: list[tuple[Tensor, ...]]) -> tuple[Tensor, Any]:
        return carry, [f(*tensors) for (_, f, _), tensors in zip(cases, x, strict=True)]

    xs = [tuple(tensor.unsqueeze(0) for tensor in tensors) for _, _, tensors in cases]
    check_step(factory, step, torch.zeros(1), xs, 1, targets, tolerance)


def in_chunks(model: Any, xs: Tensor, counts: Iterable[int]) -> list[Tensor]:
    """Outputs of a loaded package after a reset for stacked `xs`: by calls of `run` of so many steps, then the rest."""
    model.reset()
    found, t = [], 0
    for count in [*counts, len(xs)]:
        ys = model.run(xs[t : t + count], steps=len(xs[t : t + count]))
        found.append(ys if isinstance(ys, tuple) else (ys,))
        t += count
    return [torch.cat(each) for each in zip(*found, strict=True)]


def check_chunks(model: Any, xs: Tensor) -> list[Tensor]:
    """The outputs of all steps, which are the same bits in whatever chunks they are computed, and so is the state."""
    one_by_one = in_chunks(model, xs, [1] * len(xs))
    saved = model.save()
    for counts in ([], [5, 16, 17, 33, 1, 100, 31], [16] * (len(xs) // 16), [15] * (len(xs) // 15), [3, 64, 64]):
        for found, expected in zip(in_chunks(model, xs, counts), one_by_one, strict=True):
            assert torch.equal(found, expected)
        assert model.save() == saved
    return one_by_one


def least_step_ns(model: Any, xs: Tensor) -> float:
    """Nanoseconds of this thread's CPU time a step, of the fastest of five runs: other programs don't count."""
    times = []
    for _ in range(5):
        start = time.thread_time_ns()
        model.run(xs)
        times.append(time.thread_time_ns() - start)
    return min(times) / len(xs)


def check_model_in_chunks(
    factory: pytest.TempPathFactory,
    model: nn.Module,
    x: Tensor,
    targets: Sequence[str],
    quantize: str | None,
    tolerance: float,
) -> None:
    """A model over sequences [B, C, T], packaged for each target: check_chunks, and its outputs beside the model's."""
    expected = model(x)
    xs = x.movedim(2, 0).unsqueeze(-1).contiguous()
    for target in targets:
        folder = factory.mktemp("packages") / "model"
        weft.package(model, x, folder, time=2, targets=target, quantize=quantize)
        found = check_chunks(packaged.loaded(folder, factory), xs)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        for y, whole in zip(found, wanted, strict=True):
            assert_close(y.squeeze(-1).movedim(0, 2), whole, tolerance)


def check_flash(file: Path, most: int) -> None:
    """The Cortex-M4 object has less than `most` bytes of code and constants, and no variables."""
    if packaged.machine_of("cortex-m4").missing:
        pytest.skip("there is no compiler for it")
    text = subprocess.run(["arm-none-eabi-size", str(file)], capture_output=True, text=True, check=True).stdout
    code_and_constants, data, zeros = map(int, text.splitlines()[1].split()[:3])
    assert code_and_constants < most and data == zeros == 0
