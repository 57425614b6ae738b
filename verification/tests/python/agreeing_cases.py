"""Pairs of implementations that compute the same and differ in rounding alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fault_cases import (
    HARD_SIGMOID,
    HARD_SIGMOID_5,
    PARAMETERS,
    RELU,
    SOFTSIGN,
    Wrong,
    random_layers,
    state_dict,
    trace_of,
)
from faulty_cells import GATES, Faults, Numbers, run
from torch import nn

import weft
from weft.formats import Direction, Layer, Trace


@dataclasses.dataclass
class Pair:
    name: str
    reference: Any
    candidate: Any


def plain(draw: random.Random) -> list[Layer]:
    return random_layers(Wrong("", Faults(), draw.choice(list(GATES))), draw)


def variant(draw: random.Random) -> list[Layer]:
    """Layers for which PyTorch has no module."""
    kind, own, has = draw.choice(
        [
            ("GRU", {"reset_after": False}, ()),
            ("GRU", {"norm_eps": 1e-5}, ("norm",)),
            ("GRU", {"norm_eps": 1e-3, "reset_after": False}, ("norm",)),
            ("LSTM", {"norm_eps": 1e-5}, ("norm",)),
            ("LSTM", {"cell_clip": 0.5}, ("peepholes",)),
            ("LSTM", {"clip": 0.4}, ()),
            ("GRU", {"gate_activation": HARD_SIGMOID, "clip": 0.7}, ()),
            ("LSTM", {"gate_activation": HARD_SIGMOID_5}, ()),
            ("RNN", {"activation": RELU}, ()),
            ("GRU", {"activation": SOFTSIGN}, ()),
        ]
    )
    return random_layers(Wrong("", Faults(), kind, own, has), draw)


def changed(layers: list[Layer], change: Callable[[torch.Tensor], torch.Tensor]) -> list[Layer]:
    """The layers with all parameters changed."""

    def direction(each: Direction) -> Direction:
        values = {name: getattr(each, name) for name in (*PARAMETERS, "norm_c_bias")}
        return dataclasses.replace(each, **{name: change(v) for name, v in values.items() if v is not None})

    return [dataclasses.replace(layer, directions=[direction(each) for each in layer.directions]) for layer in layers]


def answered(layers: list[Layer], draw: random.Random, steps: int, scale: float = 1.0, dtype: str = "") -> Trace:
    """The answer of the slow implementation, in some precision and order of summation."""
    numbers = np.random.default_rng(draw.getrandbits(60))
    rows, first = draw.randint(1, 4), layers[0].directions[0]
    dtype = dtype or draw.choice(["float32", "float64"])
    number = Numbers(dtype, draw.choice(["numpy", "forward", "backward", "shuffled"]))
    x = number(scale * numbers.standard_normal((steps, rows, layers[0].input_size)))
    shape = len(layers) * len(layers[0].directions), rows
    h0 = c0 = None
    if draw.random() < 0.5:
        h0 = number(0.5 * numbers.standard_normal((*shape, first.output_size)))
        c0 = (
            number(0.5 * numbers.standard_normal((*shape, layers[0].hidden_size))) if layers[0].kind == "LSTM" else None
        )
    answer = run(layers, x, h0, c0, number=number)
    more = {"hn": answer.hn, "cn": answer.cn, "gates": answer.gates} if draw.random() < 0.5 else {}
    return trace_of(x, h0, c0, answer, getattr(torch, dtype), **more)


def orders(draw: random.Random) -> tuple[Any, Any]:
    layers = plain(draw) if draw.random() < 0.5 else variant(draw)
    return layers, answered(layers, draw, draw.randint(1, 12))


def large_weights(draw: random.Random) -> tuple[Any, Any]:
    layers = changed(plain(draw), lambda value: 4 * value)
    return layers, answered(layers, draw, draw.randint(1, 30))


def long_sequences(draw: random.Random) -> tuple[Any, Any]:
    layers = changed(plain(draw), lambda value: draw.choice([1, 2]) * value)
    return layers, answered(layers, draw, 200)


def sizes_of_inputs(draw: random.Random) -> tuple[Any, Any]:
    layers = plain(draw) if draw.random() < 0.5 else variant(draw)
    return layers, answered(layers, draw, draw.randint(1, 12), scale=draw.choice([1e-30, 1e-10, 1e-4, 1e3, 1e8]))


def half_precisions(draw: random.Random) -> tuple[Any, Any]:
    dtype = draw.choice(["float16", "bfloat16"])
    layers = changed(plain(draw), lambda value: value.to(getattr(torch, dtype)))
    return layers, answered(layers, draw, draw.randint(1, 12), dtype=dtype)


def two_dtypes(draw: random.Random) -> tuple[Any, Any]:
    """The same numbers in files of two dtypes."""
    layers = plain(draw) if draw.random() < 0.5 else variant(draw)
    return layers, changed(layers, lambda value: value.double())


def joined_biases(draw: random.Random) -> tuple[Any, Any]:
    """Biases as a converter to a format of one bias adds them, in the dtype of the file. A GRU whose reset gate is
    after the product keeps the two biases of n."""
    kind, own = draw.choice([("LSTM", {}), ("RNN", {}), ("GRU", {}), ("GRU", {"reset_after": False})])
    dtype = draw.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    layers = random_layers(Wrong("", Faults(), kind, own), draw)
    layers = changed(layers, lambda value: (value + 1e-3 * torch.randn(value.shape)).to(dtype))

    def joined(each: Direction) -> Direction:
        both, none = each.bias_x + each.bias_h, torch.zeros_like(each.bias_h)
        if kind == "GRU" and not own:
            first = 2 * each.bias_x.shape[0] // 3
            both[first:], none[first:] = each.bias_x[first:], each.bias_h[first:]
            return dataclasses.replace(each, bias_x=both, bias_h=none)
        return dataclasses.replace(each, bias_x=both, bias_h=draw.choice([None, none]))

    other = [dataclasses.replace(layer, directions=[joined(each) for each in layer.directions]) for layer in layers]
    return (layers, other) if draw.random() < 0.5 else (other, layers)


def pytorchs_modules(draw: random.Random) -> tuple[Any, Any]:
    """Answers in float32, by PyTorch's own kernels or by Weft's, as a trace; against the module, its state dict or
    layers."""
    layers = plain(draw)
    first = layers[0]
    more = {"proj_size": first.directions[0].output_size} if first.directions[0].projection is not None else {}
    module = getattr(nn, first.kind)(
        first.input_size, first.hidden_size, len(layers), bidirectional=len(first.directions) == 2, **more
    )
    state = state_dict(layers)
    module.load_state_dict({name.removeprefix("rnn."): value for name, value in state.items()})
    x = torch.randn(draw.choice([5, 60]), draw.randint(1, 4), first.input_size)
    with torch.no_grad():
        if draw.random() < 0.5:
            y, states = module(x)
        else:
            with weft.disabled():
                y, states = module(x)
    hn, cn = states if first.kind == "LSTM" else (states, None)
    return draw.choice([layers, state, module]), Trace(x, y, hn=hn, cn=cn)


KINDS = (orders, large_weights, long_sequences, sizes_of_inputs, two_dtypes, joined_biases, pytorchs_modules,
         half_precisions)  # fmt: skip


def agreeing_pair(seed: int) -> Pair:
    draw = random.Random(f"agreeing {seed}")
    torch.manual_seed(seed)
    kind = KINDS[seed % len(KINDS)]
    return Pair(f"{kind.__name__}, seed {seed}", *kind(draw))
