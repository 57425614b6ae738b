"""The implementation that `weft.verify` is tested against: right where it means to be, wrong where not."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from fault_cases import FAULTS, Wrong, random_case, random_layers, state_dict
from faulty_cells import GATES, Faults, Numbers, rounded_to_bfloat16, run
from reference_cells import run as run_variant
from torch import nn

import weft.nn

SEEDS = range(8)


def loaded(module: nn.RNNBase, layers: list) -> nn.RNNBase:
    parameters = {name.removeprefix("rnn."): value.double() for name, value in state_dict(layers).items()}
    module.load_state_dict(parameters, strict=False)
    return module.double()


def random_inputs(layers: list, draw: random.Random) -> tuple[np.ndarray, ...]:
    numbers = np.random.default_rng(draw.getrandbits(60))
    first, (steps, rows) = layers[0].directions[0], (draw.randint(1, 9), draw.randint(1, 4))
    shape = len(layers) * len(layers[0].directions), rows
    sizes = [first.output_size, layers[0].hidden_size][: 2 if layers[0].kind == "LSTM" else 1]
    states = [numbers.standard_normal((*shape, size)) for size in sizes]
    return numbers.standard_normal((steps, rows, layers[0].input_size)), *states


def options_of(layers: list) -> dict:
    projection = layers[0].directions[0].projection
    return {
        "input_size": layers[0].input_size, "hidden_size": layers[0].hidden_size, "num_layers": len(layers),
        "bidirectional": len(layers[0].directions) == 2,
        **({"proj_size": projection.shape[0]} if projection is not None else {}),
    }  # fmt: skip


def compare(answer, y: torch.Tensor, state) -> None:
    states = state if isinstance(state, tuple) else (state,)
    for ours, theirs in zip((answer.y, answer.hn, answer.cn), (y, *states), strict=False):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", GATES)
def test_without_a_fault_it_is_pytorch(kind: str) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        layers = random_layers(Wrong("", Faults(), kind), draw)
        x, *states = random_inputs(layers, draw)
        module = loaded(getattr(nn, kind)(**options_of(layers)), layers)
        tensors = [torch.from_numpy(state) for state in states]
        y, state = module(torch.from_numpy(x), tuple(tensors) if kind == "LSTM" else tensors[0])
        for order in ("numpy", "forward", "backward", "shuffled"):
            compare(run(layers, x, *states, number=Numbers("float64", order)), y, state)


@pytest.mark.parametrize(
    ("kind", "own", "has", "options"),
    [
        ("GRU", {"reset_after": False}, (), {"reset_after": False}),
        ("GRU", {"norm_eps": 1e-5}, ("norm",), {"layer_norm": True}),
        ("GRU", {"norm_eps": 1e-5, "reset_after": False}, ("norm",), {"layer_norm": True, "reset_after": False}),
        ("LSTM", {"norm_eps": 1e-5}, ("norm",), {"layer_norm": True}),
        ("LSTM", {"cell_clip": 0.15}, ("peepholes",), {"cell_clip": 0.15, "peepholes": True}),
    ],
)
def test_variants_are_those_of_weft_nn(kind: str, own: dict, has: tuple[str, ...], options: dict) -> None:
    """Compared with tests/python/reference_cells.py, which shares no code with them."""
    names = {"norm_x": "weight_ln_ih", "norm_h": "weight_ln_hh", "norm_c": "weight_ln_c", "norm_c_bias": "bias_ln_c"}
    for seed in SEEDS:
        draw = random.Random(seed)
        layers = random_layers(Wrong("", Faults(), kind, own, has), draw)
        module = loaded(getattr(weft.nn, kind)(**options_of(layers), **options), layers)
        with torch.no_grad():
            for index, layer in enumerate(layers):
                for each in layer.directions:
                    suffix = f"_l{index}" + ("_reverse" if each.reverse else "")
                    values = {theirs: getattr(each, ours) for ours, theirs in names.items()}
                    if each.peepholes is not None:
                        values |= {f"weight_c{gate}": each.peepholes[k] for k, gate in enumerate("ifo")}
                    for name, value in values.items():
                        if value is not None:
                            getattr(module, name + suffix).copy_(value)
        x, *states = random_inputs(layers, draw)
        tensors = [torch.from_numpy(state) for state in states]
        y, state = run_variant(module, torch.from_numpy(x), tuple(tensors) if kind == "LSTM" else tensors[0])
        compare(run(layers, x, *states), y, state)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_half_precisions_round_as_pytorch_does(dtype: str) -> None:
    x = torch.randn(1000) * torch.logspace(-20, 20, 1000)
    x = torch.cat([x, torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1 + 2**-8, 1 + 3 * 2**-8])])
    wanted = x.to(getattr(torch, dtype)).float()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(Numbers(dtype)(x.numpy()), wanted.numpy())
    assert rounded_to_bfloat16(np.float32([1 + 2**-8]))[0] == 1.0


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_shows_and_a_model_that_has_it_answers_so(fault: str) -> None:
    for seed in SEEDS:
        case = random_case(seed, fault)
        trace = case.trace
        assert trace.x.dtype == trace.y.dtype and not torch.equal(trace.y.double(), case.right), case
        again = random_case(seed, fault)
        assert torch.equal(again.trace.y, trace.y), "a seed is a case"
        if case.model is None:
            continue
        x, h0, c0 = (None if part is None else part.double().numpy() for part in (trace.x, trace.h0, trace.c0))
        answer = run(case.model, x, h0, c0)
        np.testing.assert_allclose(answer.y, trace.y.double().numpy(), rtol=1e-3, atol=1e-4, err_msg=str(case))


def test_gates_are_what_the_step_computed_with() -> None:
    """h' from z and n, and c' from i, f and g, as recorded."""
    for kind in ("GRU", "LSTM"):
        layers = random_layers(Wrong("", Faults(), kind, directions=1, layers=1), random.Random(3))
        x, *states = random_inputs(layers, random.Random(4))
        answer = run(layers, x, *states)
        gates = answer.gates
        if kind == "GRU":
            before = np.concatenate([states[0], answer.y[:-1]])
            np.testing.assert_allclose((1 - gates["z"]) * gates["n"] + gates["z"] * before, answer.y, atol=1e-14)
        else:
            before = np.concatenate([states[1], gates["c"][:-1]])
            np.testing.assert_allclose(gates["f"] * before + gates["i"] * gates["g"], gates["c"], atol=1e-14)
