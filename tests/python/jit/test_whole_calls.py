"""PyTorch's cells and linear layers in a step, recorded as one operation each, against themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scan.step_checks import assert_step, numbers
from shared.oracles import fallen_back, loop
from torch import Tensor

import weft
from weft._capture import record
from weft._capture.runs import Function

CELLS: dict[str, tuple[Callable[..., object], int, int]] = {  #: the cell, its gates and states
    "gru_cell": (lambda x, h, *w: torch.gru_cell(x, h, *w), 3, 1),
    "lstm_cell": (lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w), 4, 2),
    "rnn_tanh_cell": (lambda x, h, *w: torch.rnn_tanh_cell(x, h, *w), 1, 1),
    "rnn_relu_cell": (lambda x, h, *w: torch.rnn_relu_cell(x, h, *w), 1, 1),
}


def arguments(name: str, rows=3, features=5, hidden=4, *, bias=True, dtype=torch.float64) -> list[Tensor]:
    _, gates, states = CELLS[name]
    weights = [(gates * hidden, features), (gates * hidden, hidden)] + bias * 2 * [(gates * hidden,)]
    shapes = [(rows, features)] + states * [(rows, hidden)] + weights
    return [numbers(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def recorded(name: str, given: list[Tensor], around: Callable[..., object] | None = None) -> bool:
    """Whether the cell is one operation of the record."""
    cell = around or CELLS[name][0]
    result = record.record(Function(lambda *g: (_flat(cell(*g)), None), given, None, "the step"))
    first = result.recording.first_of(f"weft::{name}")
    return first is not None


def _flat(results: object) -> list[Tensor]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "features", "hidden"), [(3, 5, 4), (1, 1, 1), (0, 2, 3), (2, 0, 3)])
def test_values_and_gradients(name, bias, dtype, rows, features, hidden):
    given = arguments(name, rows, features, hidden, bias=bias, dtype=dtype)
    assert recorded(name, given)
    loose = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    assert_step(CELLS[name][0], *given, **loose)


@pytest.mark.parametrize("name", CELLS)
def test_calls_that_one_operation_does_not_say(name):
    given = arguments(name)

    def transposed(x, h, *rest):
        return CELLS[name][0](x, h.t().contiguous().t(), *rest)

    assert not recorded(name, given, transposed)
    assert_step(transposed, *given)
    bfloat16 = [t.to(torch.float32) for t in given]
    with torch.autocast("cpu", torch.bfloat16):
        assert not recorded(name, bfloat16)

    def mapped(x, *rest):
        return torch.func.vmap(CELLS[name][0], in_dims=(0, *[None] * len(rest)))(torch.stack([x, x + 1]), *rest)

    assert not recorded(name, given, mapped)


@pytest.mark.parametrize("name", CELLS)
def test_wrong_sizes_are_pytorchs_errors(name):
    given = arguments(name)
    given[0] = numbers((3, 6))
    with pytest.raises(RuntimeError, match="inconsistent input_size"):
        weft.jit(CELLS[name][0])(*given)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("again", [False, True])
def test_a_gradient_within_the_step(name, again):
    """torch.autograd.grad runs the cell's node; with create_graph its result is differentiable."""
    cell, _, states = CELLS[name]
    given = arguments(name)

    def step(*given):
        with torch.enable_grad():
            own = [t * 1 if again and t.requires_grad else t.detach().requires_grad_() for t in given]
            results = _flat(cell(*own))
            energy = sum((r.sin() * (i + 1)).sum() for i, r in enumerate(results))
            found = torch.autograd.grad(energy, own, create_graph=again)
        return [*results, *found]

    assert_step(step, *given, gradients=again)
    assert_step(lambda *g: step(*g)[states:], *given, gradients=again)


def test_second_derivatives_of_a_scan():
    cell = torch.nn.GRUCell(3, 4).double()
    xs, h = numbers((5, 2, 3)).requires_grad_(), numbers((2, 4), seed=1).requires_grad_()

    def step(carry, x):
        carry = cell(x, carry)
        return carry, carry * 2

    def second(scan):
        y = scan(step, h, xs)[1]
        first = torch.autograd.grad(y.pow(2).sum(), [xs, h], create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in first), [xs, h, *cell.parameters()])

    before = len(fallen_back())
    for ours, theirs in zip(second(weft.scan), second(loop), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert len(fallen_back()) == before


def test_a_hook_and_a_frozen_weight():
    cell = torch.nn.LSTMCell(3, 4).double()
    cell.weight_ih.requires_grad_(False)
    xs = numbers((5, 2, 3)).requires_grad_()
    state = (numbers((2, 4), seed=1), numbers((2, 4), seed=2))

    def step(carry, x):
        h, c = cell(x, carry)
        h.register_hook(lambda g: g * 0.5)
        return (h, c), h

    def gradients(scan):
        y = scan(step, state, xs)[1]
        return torch.autograd.grad(y.sin().sum(), [xs, cell.weight_hh, cell.bias_ih])

    for ours, theirs in zip(gradients(weft.scan), gradients(loop), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_output_that_nobody_reads():
    cell = torch.nn.LSTMCell(3, 4).double()
    x, h, c = numbers((2, 3)), numbers((2, 4), seed=1), numbers((2, 4), seed=2)
    for which in range(2):
        assert_step(lambda x, h, c, which=which: cell(x, (h, c))[which], x, h, c)


LINEAR = torch.nn.functional.linear


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 3), (2, 0, 3), (2, 1, 4, 3)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_linear(shape, bias, dtype):
    given = [numbers(shape, dtype), numbers((5, 3), dtype, 1), *bias * [numbers((5,), dtype, 2)]]
    assert recorded("linear", given, LINEAR)
    loose = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    assert_step(LINEAR, *given, **loose)


@pytest.mark.parametrize("again", [False, True])
def test_a_gradient_through_linear_within_the_step(again):
    def step(x, weight, bias):
        with torch.enable_grad():
            own = [t * 1 if again and t.requires_grad else t.detach().requires_grad_() for t in (x, weight, bias)]
            energy = LINEAR(LINEAR(*own).sin(), own[1].t()).pow(2).sum()
            return torch.autograd.grad(energy, own, create_graph=again)

    assert_step(step, numbers((4, 2, 3)), numbers((5, 3), seed=1), numbers((5,), seed=2), gradients=again)


def test_calls_of_linear_that_one_operation_does_not_say():
    x, weight = numbers((2, 3), torch.float32), numbers((5, 3), torch.float32, 1)

    def mapped(x, weight):
        return torch.func.vmap(LINEAR, in_dims=(None, 0))(x, torch.stack([weight, weight * 2]))

    assert not recorded("linear", [x, weight], mapped)
    assert_step(mapped, x, weight)
    with torch.autocast("cpu", torch.bfloat16):  # what it casts is one operation
        assert recorded("linear", [x, weight], LINEAR)
        assert_step(LINEAR, x, weight, rtol=0.05, atol=0.05)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        weft.jit(LINEAR)(numbers((2, 4)), numbers((5, 3)))
    with pytest.raises(RuntimeError, match="same dtype"):
        weft.jit(LINEAR)(numbers((2, 3)), weight)
