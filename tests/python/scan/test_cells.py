"""The cells of examples/cells through weft.scan against the same step in a Python loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.min_rnn import MinGRU, MinLSTM
from cells.python_loop import python_loop
from cells.zoneout_lstm import ZoneoutLSTM
from cells.zoo import CELLS, Example, Size

SIZES = [Size(7, 3, 6), Size(1, 4, 5), Size(4, 1, 8), Size(5, 5, 5), Size(13, 17, 9)]


@contextmanager
def without_weft() -> Iterator[None]:
    """The cell without Weft: a Python loop, and PyTorch's own cells in its step."""
    scan = weft.scan
    weft.scan = python_loop
    try:
        with weft.disabled():
            yield
    finally:
        weft.scan = scan


def example_of(name: str, size: Size, dtype: torch.dtype) -> Example:
    """The cell in eval mode; tests of random masks are below."""
    torch.manual_seed(hash(size) % 1000)
    example = CELLS[name](size).to(dtype)
    if example.module is not None:
        example.module.eval()
    return example


def outputs_of(example: Example) -> list[Tensor]:
    return pytree.tree_leaves(example())


def results(example: Example) -> dict[str, Tensor]:
    """Outputs, and the gradients of their product with fixed random numbers, by name."""
    example = example.mapped(lambda value: value.detach().requires_grad_())
    outputs = outputs_of(example)
    found = {f"output {k}": value.detach() for k, value in enumerate(outputs)}
    smooth = [value for value in outputs if value.is_floating_point()]
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in smooth]
    wanted = example.differentiable()
    loss = sum((value * cotangent.to(value.dtype)).sum() for value, cotangent in zip(smooth, cotangents, strict=True))
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True)
    return found | {f"gradient of {name}": value for name, value in zip(wanted, gradients, strict=True)}


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry. Shapes must be the same, and whole numbers equal."""
    assert found.shape == expected.shape
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    scale = expected.abs().max().item() or 1.0
    return (found.double() - expected.double()).abs().max().item() / scale


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_float64_is_the_loop(name: str, size: Size) -> None:
    example = example_of(name, size, torch.float64)
    with without_weft():
        expected = results(example)
    weft.reset_stats()
    found = results(example)
    assert weft.stats()["fallbacks"] == {}
    # An HMM and its like have nothing to scan in one step.
    assert weft.stats()["calls"] > 0 or size.steps == 1
    for key, value in expected.items():
        assert distance(found[key], value) < 1e-12, key
        assert found[key].dtype == value.dtype, key


@pytest.mark.parametrize("name", CELLS)
def test_float32_is_as_near_to_float64_as_the_loop_is(name: str) -> None:
    example = example_of(name, Size(9, 5, 7), torch.float32)
    found = results(example)
    with without_weft():
        loop = results(example)
        exact = results(example.to(torch.float64))
    for key, value in exact.items():
        # Sums in another order and exp within 2 ulp make errors of the loop's own kind: a few times its, and for
        # entries where it happened to be exact, a few units in the last place.
        assert distance(found[key], value) < 4 * distance(loop[key], value) + 16 * torch.finfo(torch.float32).eps, key
        assert found[key].dtype == loop[key].dtype, key


SMALL = Size(3, 2, 2, words=3, image=2)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    example = example_of(name, SMALL, torch.float64).mapped(Tensor.requires_grad_)

    def run(*_: Tensor) -> tuple[Tensor, ...]:
        return tuple(value for value in outputs_of(example) if value.is_floating_point())

    torch.autograd.gradcheck(run, tuple(example.differentiable().values()), fast_mode=True)


@pytest.mark.parametrize("name", CELLS)
def test_another_length_or_batch_compiles_nothing(name: str) -> None:
    for size in (Size(6, 3, 7), Size(9, 5, 7)):
        results(example_of(name, size, torch.float32))
    before = weft.stats()["compiled"]
    for size in (Size(11, 4, 7), Size(4, 2, 7), Size(6, 3, 7)):
        results(example_of(name, size, torch.float32))
    assert weft.stats()["compiled"] == before


@pytest.mark.parametrize("cell", [MinGRU, MinLSTM])
def test_the_minimal_cells_by_associative_scan(cell: Callable[..., Any]) -> None:
    module = cell(3, 4).double()
    x, h = torch.randn(33, 2, 3, dtype=torch.float64, requires_grad=True), torch.rand(2, 4, dtype=torch.float64)

    def all_of(run: Callable[..., Any]) -> list[Tensor]:
        y, last = run(x, h)
        wanted = [x, *module.parameters()]
        return [y, last, *torch.autograd.grad((y * y).sum() + last.sum(), wanted)]

    with without_weft():
        expected = all_of(module.forward)
    for way in (module.forward, module.parallel, module.log_space):
        for found, reference in zip(all_of(way), expected, strict=True):
            assert distance(found, reference) < 1e-11, way.__name__


# --- zoneout: masks that are drawn in the step


def masked(module: ZoneoutLSTM, x: Tensor, h: Tensor, kept: Tensor) -> Tensor:
    """The layer by PyTorch's cell, with h kept where `kept` [T, B, hidden] says so; no zoneout of c."""
    cell = torch.nn.LSTMCell(x.shape[2], module.hidden, dtype=x.dtype)
    c, ys = torch.zeros_like(h), []
    values = {"weight_ih": module.input.weight, "bias_ih": module.input.bias, "weight_hh": module.recurrent.weight}
    values["bias_hh"] = torch.zeros_like(module.input.bias)
    for row, keep in zip(x, kept, strict=True):
        new, c = torch.func.functional_call(cell, values, (row, (h, c)))
        h = torch.where(keep, h, new)
        ys.append(h)
    return torch.stack(ys)


def test_masks_drawn_in_the_step_are_the_same_forward_and_backward() -> None:
    """The mask that was kept shows in h where h didn't move; a loop with those masks has the same gradients."""
    module = ZoneoutLSTM(3, 16, zoneout_h=0.5, zoneout_c=0.0).double()
    x, h = torch.randn(8, 4, 3, dtype=torch.float64), torch.randn(4, 16, dtype=torch.float64)
    y, _ = module(x, (h, torch.zeros_like(h)))
    cotangent = torch.randn_like(y)
    found = torch.autograd.grad(y, list(module.parameters()), cotangent)
    kept = y == torch.cat([h[None], y[:-1]])
    with without_weft():
        expected_y = masked(module, x, h, kept)
    expected = torch.autograd.grad(expected_y, list(module.parameters()), cotangent)
    for value, reference in zip((y, *found), (expected_y, *expected), strict=True):
        assert distance(value, reference) < 1e-12
    # 512 coins: 0.5 +- five standard deviations. No two steps have the same mask, and every unit is kept in some step.
    assert 0.39 < kept.double().mean().item() < 0.61
    assert len({tuple(mask.flatten().tolist()) for mask in kept}) == 8
    assert (kept.double().mean(0).flatten() > 0).all()


def test_masks_follow_the_seed() -> None:
    module, x = ZoneoutLSTM(3, 8), torch.randn(6, 4, 3)

    def run(seed: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        y, _ = module(x)
        return y.detach(), torch.autograd.grad(y.sum(), module.recurrent.weight)[0]

    first, again, other = run(1), run(1), run(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    torch.manual_seed(1)
    assert not torch.equal(module(x)[0], module(x)[0])  # a call advances the generator


def test_eval_mode_is_another_step() -> None:
    module, x = ZoneoutLSTM(3, 8, 0.5, 0.5), torch.randn(6, 4, 3)
    module(x)
    module.eval()
    with without_weft():
        expected, _ = module(x)
    for _ in range(2):
        assert distance(module(x)[0], expected) < 1e-6
    module.train()
    assert not torch.equal(module(x)[0], module(x)[0])
