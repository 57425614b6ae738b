"""Arguments that don't fit: an error in words, never the end of the process. PyTorch's own kernels, which calls that
Weft doesn't cover are handed to, end it for some."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import weft

GATES = {"gru": 3, "lstm": 4, "rnn_tanh": 1, "rnn_relu": 1}
SEEDS = 200


@pytest.mark.parametrize("disabled", [False, True])
def test_a_cell_with_a_state_of_too_many_dims(disabled):
    with (
        weft.disabled() if disabled else torch.no_grad(),
        pytest.raises(RuntimeError, match=r"hx\[0\] must have 2 dims"),
    ):
        nn.LSTMCell(3, 3)(torch.randn(3), torch.zeros(2, 3, 3))


@pytest.mark.parametrize("cell", GATES)
def test_packed_without_batch_sizes(cell):
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}.get(cell, nn.RNN)
    state = torch.zeros(1, 3, 4)
    states = [state, state] if cell == "lstm" else state
    with pytest.raises(RuntimeError, match="batch_sizes must have an element for each step"):
        getattr(torch.ops.aten, cell).data(
            torch.randn(0, 3), torch.zeros(0, dtype=torch.long), states, [*kind(3, 4).parameters()], True, 1, 0.0,
            False, False,
        )  # fmt: skip


@pytest.mark.parametrize(
    "spoilt, message",
    [
        ({"x": torch.randn(5, 2, 3)}, r"size 1 of hx\[0\] must be 2, but is 3"),  # oneDNN would read a third row
        ({"biases": False}, "incorrect number of RNN parameters"),
        ({"layers": 1 << 40}, "hx must be of 1099511627776 layers, but is of 1"),
        ({"bidirectional": True}, "incorrect number of RNN parameters"),
        ({"x": torch.randn(5, 3, 3, 3)}, "input must have 3 dims, but has 4"),
    ],
)
def test_an_lstm_of_other_sizes(spoilt, message):
    given = {"x": torch.randn(5, 3, 3), "biases": True, "layers": 1, "bidirectional": False, **spoilt}
    x, biases, layers, bidirectional = given.values()
    states, params = [torch.zeros(1, 3, 4)] * 2, [*nn.LSTM(3, 4).parameters()]
    with pytest.raises(RuntimeError, match=message):
        torch.ops.aten.lstm.input(x, states, params, biases, layers, 0.0, False, bidirectional, False)


# ---- any arguments


def spoilt(r: random.Random, value: Any) -> Any:
    """Another argument of about the same kind."""
    if isinstance(value, list) and value:
        at = r.randrange(len(value))
        return r.choice([value[:-1], value + value[-1:], [], [*value[:at], spoilt(r, value[at]), *value[at + 1 :]]])
    if isinstance(value, torch.Tensor):
        sizes, other = list(value.shape), r.choice([0, 1, 2, 3, 5])
        at = r.randrange(max(len(sizes), 1))
        shapes = [[*sizes, other], [other, *sizes], sizes[1:], [*sizes[:at], other, *sizes[at + 1 :]]]
        made = [torch.ones(shape).to(value.dtype) for shape in shapes]
        types = (torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
        return r.choice([*made, *made, value.to(r.choice(types)), value * r.choice([-1, 0, 2, 100]), value.to_sparse()])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return r.choice([-1, 0, 1, 2, 3, 1 << 40])
    return r.choice([-1.0, 0.5, float("nan")]) if isinstance(value, float) else value


def layers_call(r: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    cell, packed = r.choice([*GATES]), r.random() < 0.5
    gates, (steps, batch, columns, hidden) = GATES[cell], (r.choice([1, 2, 3]) for _ in range(4))
    layers, directions, biases = r.choice([1, 2]), r.choice([1, 2]), r.random() < 0.7
    params = []
    for part in range(layers * directions):
        taken = columns if part < directions else directions * hidden
        params += [torch.randn(gates * hidden, taken), torch.randn(gates * hidden, hidden)]
        params += [torch.randn(gates * hidden), torch.randn(gates * hidden)] if biases else []
    state = torch.randn(layers * directions, batch, hidden)
    states = [state, state.clone()] if cell == "lstm" else state
    rest = [states, params, biases, layers, r.choice([0.0, 0.5]), r.random() < 0.5, directions == 2]
    op = getattr(torch.ops.aten, cell)
    if packed:
        return op.data, [torch.randn(steps * batch, columns), torch.full((steps,), batch), *rest]
    return op.input, [torch.randn(steps, batch, columns), *rest, r.random() < 0.3]


def cell_call(r: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    cell = r.choice([*GATES])
    gates, (batch, columns, hidden) = GATES[cell], (r.choice([1, 2, 3]) for _ in range(3))
    state = torch.randn(batch, hidden)
    weights = [torch.randn(gates * hidden, columns), torch.randn(gates * hidden, hidden)]
    biases = [torch.randn(gates * hidden), torch.randn(gates * hidden)]
    states = [state, state.clone()] if cell == "lstm" else state
    return getattr(torch.ops.aten, f"{cell}_cell").default, [torch.randn(batch, columns), states, *weights, *biases]


def quantized_cell_call(r: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    cell = r.choice([*GATES])
    kind = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}.get(cell, nn.RNNCell)
    made = torch.ao.quantization.quantize_dynamic(nn.Sequential(kind(3, 4)), {kind}, dtype=torch.qint8)[0]
    state = torch.randn(2, 4)
    states = [state, state.clone()] if cell == "lstm" else state
    weights = [made._packed_weight_ih, made._packed_weight_hh, made.bias_ih, made.bias_hh]
    return getattr(torch.ops.quantized, f"quantized_{cell}_cell_dynamic").default, [torch.randn(2, 3), states, *weights]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", [layers_call, cell_call, quantized_cell_call])
def test_no_arguments_end_the_process(calls):
    """In a process of its own, which a signal would end."""
    # In a child of a process that had two threads, PyTorch quantizes in OpenMP of GNU, which waits for them for ever.
    torch.set_num_threads(1)
    child = os.fork()
    if child == 0:
        try:
            for seed in range(SEEDS):
                r = random.Random(seed)
                op, arguments = calls(r)
                for _ in range(r.choice([1, 2])):
                    at = r.randrange(len(arguments))
                    arguments[at] = spoilt(r, arguments[at])
                with contextlib.suppress(Exception):
                    op(*arguments)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
