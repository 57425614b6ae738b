"""Random models, and the answers of an implementation with one known mistake."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from faulty_cells import GATES, Answer, Array, Faults, Numbers, run
from torch import Tensor

from weft.formats import Activation, Direction, Layer, Trace

SIGMOID, TANH, RELU, IDENTITY = (Activation(name) for name in ("sigmoid", "tanh", "relu", "identity"))
SOFTSIGN, HARD_TANH = Activation("softsign"), Activation("hard_tanh")
HARD_SIGMOID, HARD_SIGMOID_5 = Activation("hard_sigmoid", 1 / 6, 0.5), Activation("hard_sigmoid", 0.2, 0.5)
WEIGHTS = ("weight_x", "weight_h")
PARAMETERS = ("weight_x", "weight_h", "bias_x", "bias_h", "projection", "peepholes", "norm_x", "norm_h", "norm_c")


@dataclasses.dataclass
class Case:
    """A model, and another implementation that answers differently."""

    fault: str  #: its stable name
    detail: str  #: for whoever reads a failure
    layers: list[Layer]  #: the reference
    trace: Trace  #: the candidate
    right: Tensor  #: the right answer, [T, B, D*H]
    model: list[Layer] | None = None  #: the candidate, where layers can have the same mistake

    def __str__(self) -> str:
        first = self.layers[0]
        size = f"{first.kind} {first.input_size} -> {first.hidden_size}"
        size += ", two layers" * (len(self.layers) == 2) + ", two directions" * (len(first.directions) == 2)
        steps, rows = self.trace.x.shape[:2]
        return f"{self.fault} ({self.detail}): {size}; {steps} steps, {rows} rows, {self.trace.x.dtype}"


@dataclasses.dataclass
class Wrong:
    """A fault to make in layers of this kind, and the features that the reference needs for it."""

    detail: str
    faults: Faults
    kind: str
    layer: dict[str, Any] = dataclasses.field(default_factory=dict)
    has: tuple[str, ...] = ()  #: parameters beside weights and biases: peepholes, norm
    one_bias: bool = False
    square: bool = False  #: inputs as many as units
    state: bool | None = None  #: whether there must be an initial state; None: either
    directions: int = 0  #: 0: any
    layers: int = 0
    same: Callable[[Layer], Layer] | None = None  #: makes a layer with the same mistake


def replaced(**fields: Any) -> Callable[[Layer], Layer]:
    return lambda layer: dataclasses.replace(layer, **fields)


def each_direction(change: Callable[[Direction], dict[str, Any]]) -> Callable[[Layer], Layer]:
    return lambda layer: dataclasses.replace(
        layer, directions=[dataclasses.replace(each, **change(each)) for each in layer.directions]
    )


# The possible faults. Each function draws one form of its fault.


def reset_before(draw: random.Random) -> Wrong:
    return Wrong("", Faults(reset_side=True), "GRU", same=replaced(reset_after=False))


def reset_after(draw: random.Random) -> Wrong:
    return Wrong("", Faults(reset_side=True), "GRU", {"reset_after": False}, same=replaced(reset_after=True))


def stale_hidden_state(draw: random.Random) -> Wrong:
    kind = draw.choice(list(GATES))
    stale = draw.choice({"GRU": ["all", "products", "update"], "LSTM": ["all", "hidden"], "RNN": ["all"]}[kind])
    return Wrong(stale, Faults(stale=stale), kind)


def stale_cell_state(draw: random.Random) -> Wrong:
    return Wrong("", Faults(stale="cell"), "LSTM")


def gate_order(draw: random.Random) -> Wrong:
    kind = draw.choice(["GRU", "LSTM"])
    order = draw.choice(list(itertools.permutations(range(len(GATES[kind]))))[1:])
    of = draw.choice(
        [("weight_x", "weight_h", "bias_x", "bias_h")] * 3
        + [("weight_h",), ("weight_x",), ("bias_x", "bias_h"), ("weight_h", "bias_h")]
    )

    def taken(each: Direction) -> dict[str, Any]:
        arrays = {name: getattr(each, name) for name in of}
        return {name: torch.cat([array.chunk(len(order))[g] for g in order]) for name, array in arrays.items()}

    return Wrong(f"{order} of {', '.join(of)}", Faults(gate_order=order, gate_order_of=of), kind,
                 same=each_direction(taken))  # fmt: skip


def one_bias(draw: random.Random) -> Wrong:
    name = draw.choice(["bias_x", "bias_h"])
    kind = draw.choice(list(GATES))
    return Wrong(f"without {name}", Faults(without=(name,)), kind, same=each_direction(lambda each: {name: None}))


def bias_outside_reset(draw: random.Random) -> Wrong:
    return Wrong("", Faults(bias_side=True), "GRU")


def bias_inside_reset(draw: random.Random) -> Wrong:
    return Wrong("", Faults(bias_side=True), "GRU", one_bias=True)


def update_gate_sense(draw: random.Random) -> Wrong:
    return Wrong("", Faults(swapped_update=True), "GRU")


def activation(draw: random.Random) -> Wrong:
    kind = draw.choice(["GRU", "RNN", "LSTM"])
    to = draw.choice([RELU, SIGMOID, SOFTSIGN, IDENTITY, HARD_TANH])
    more = {"output_activation": to} if kind == "LSTM" else {}
    return Wrong(str(to), Faults(activation=to, **more), kind, same=replaced(activation=to, **more))


def output_activation(draw: random.Random) -> Wrong:
    return Wrong("", Faults(output_activation=IDENTITY), "LSTM", same=replaced(output_activation=IDENTITY))


def gate_activation(draw: random.Random) -> Wrong:
    to = draw.choice([HARD_SIGMOID, HARD_SIGMOID_5, TANH])
    kind = draw.choice(["GRU", "LSTM"])
    return Wrong(str(to), Faults(gate_activation=to), kind, same=replaced(gate_activation=to))


def hard_sigmoid_slope(draw: random.Random) -> Wrong:
    own, to = draw.sample([HARD_SIGMOID, HARD_SIGMOID_5], 2)
    kind = draw.choice(["GRU", "LSTM"])
    return Wrong(str(to), Faults(gate_activation=to), kind, {"gate_activation": own}, same=replaced(gate_activation=to))


def time_order(draw: random.Random) -> Wrong:
    kind, flipped = draw.choice(list(GATES)), draw.choice(["input", "both"])
    return Wrong(flipped, Faults(flipped=flipped), kind)


def batch_axis(draw: random.Random) -> Wrong:
    return Wrong("", Faults(batch_axis=True), draw.choice(list(GATES)), state=False)


def direction_order(draw: random.Random) -> Wrong:
    kind, what = draw.choice(list(GATES)), draw.choice(["results", "weights"])

    def exchanged(layer: Layer) -> Layer:
        first, second = layer.directions
        pair = [dataclasses.replace(second, reverse=False), dataclasses.replace(first, reverse=True)]
        return dataclasses.replace(layer, directions=pair)

    same = exchanged if what == "weights" else None
    return Wrong(f"{what} exchanged", Faults(exchanged=what), kind, directions=2, same=same)


def reverse_output_order(draw: random.Random) -> Wrong:
    return Wrong("", Faults(reverse_kept=True), draw.choice(list(GATES)), directions=2)


def transposed_weights(draw: random.Random) -> Wrong:
    names = draw.choice([("weight_h",), ("weight_h",), ("weight_x",), WEIGHTS])
    kind = draw.choice(list(GATES))

    def turned(each: Direction) -> dict[str, Any]:
        return {
            name: torch.cat([part.T for part in getattr(each, name).chunk(len(GATES[kind]))]).contiguous()
            for name in names
        }

    square = "weight_x" in names
    return Wrong(", ".join(names), Faults(transposed=names), kind, square=square, layers=square,
                 same=each_direction(turned))  # fmt: skip


def column_major(draw: random.Random) -> Wrong:
    names = draw.choice([("weight_h",), ("weight_x",), WEIGHTS])

    def reread(each: Direction) -> dict[str, Any]:
        weights = {name: getattr(each, name) for name in names}
        return {name: w.flatten().view(w.shape[::-1]).T.contiguous() for name, w in weights.items()}

    kind = draw.choice(list(GATES))
    return Wrong(", ".join(names), Faults(column_major=names), kind, same=each_direction(reread))


def initial_state(draw: random.Random) -> Wrong:
    kind = draw.choice(list(GATES))
    what = draw.choice(["zeros", "h zeros", "c zeros", "exchanged"]) if kind == "LSTM" else "zeros"
    return Wrong(what, Faults(initial_state=what), kind, state=True)


def epsilon(draw: random.Random) -> Wrong:
    own, to = draw.sample([1e-3, 1e-5, 1e-6, 1e-7], 2)
    kind = draw.choice(["GRU", "LSTM"])
    return Wrong(f"{to} instead of {own}", Faults(eps=to), kind, {"norm_eps": own}, has=("norm",),
                 same=replaced(norm_eps=to))  # fmt: skip


def dtype(draw: random.Random) -> Wrong:
    to = draw.choice(["float16", "bfloat16"])
    return Wrong(to, Faults(dtype=to), draw.choice(list(GATES)))


def forget_bias(draw: random.Random) -> Wrong:
    more = draw.choice([1.0, -1.0])

    def added(each: Direction) -> dict[str, Any]:
        units = each.bias_x.shape[0] // 4
        bias = each.bias_x.clone()
        bias[units : 2 * units] += more
        return {"bias_x": bias}

    return Wrong(f"{more:+g}", Faults(forget_bias=more), "LSTM", same=each_direction(added))


def peepholes(draw: random.Random) -> Wrong:
    ignored = each_direction(lambda each: {"peepholes": None})
    return Wrong("ignored", Faults(without=("peepholes",)), "LSTM", has=("peepholes",), same=ignored)


def clip(draw: random.Random) -> Wrong:
    kind = draw.choice(["GRU", "LSTM"])
    return Wrong("ignored", Faults(without_clip=True), kind, {"clip": 0.3}, same=replaced(clip=None))


def cell_clip(draw: random.Random) -> Wrong:
    own = {"cell_clip": 0.15}
    return Wrong("ignored", Faults(without_cell_clip=True), "LSTM", own, same=replaced(cell_clip=None))


FAULTS: dict[str, Callable[[random.Random], Wrong]] = {
    function.__name__: function
    for function in (
        reset_before, reset_after, stale_hidden_state, stale_cell_state, gate_order, one_bias, bias_outside_reset,
        bias_inside_reset, update_gate_sense, activation, output_activation, gate_activation, hard_sigmoid_slope,
        time_order, batch_axis, direction_order, reverse_output_order, transposed_weights, column_major, initial_state,
        epsilon, dtype, forget_bias, peepholes, clip, cell_clip,
    )
}  # fmt: skip


# Models


def random_direction(
    inputs: int, units: int, projected: int, wrong: Wrong, draw: random.Random, reverse: bool
) -> Direction:
    generator = torch.Generator().manual_seed(draw.getrandbits(60))
    rows = len(GATES[wrong.kind]) * units
    scale = draw.choice([1.0, 2.0]) * units**-0.5

    def weights(*shape: int, about: float = 0.0) -> Tensor:
        # Multiples of 2^-16, so that sums of two of them are exact in float32 and float64.
        return ((about + scale * (2 * torch.rand(*shape, generator=generator) - 1)) * 65536).round() / 65536

    found: dict[str, Tensor] = {
        "weight_x": weights(rows, inputs), "weight_h": weights(rows, projected or units), "bias_x": weights(rows),
    }  # fmt: skip
    if not wrong.one_bias:
        found["bias_h"] = weights(rows)
    if projected:
        found["projection"] = weights(projected, units)
    if "peepholes" in wrong.has:
        found["peepholes"] = weights(3, units)
    if "norm" in wrong.has:
        found |= {"norm_x": weights(rows, about=1.0), "norm_h": weights(rows, about=1.0)}
        if wrong.kind == "LSTM":
            found |= {"norm_c": weights(units, about=1.0), "norm_c_bias": weights(units)}
    return Direction(**found, reverse=reverse)


def random_layers(wrong: Wrong, draw: random.Random) -> list[Layer]:
    inputs, units = draw.randint(1, 12), draw.randint(1, 16)
    if wrong.square:
        inputs = units
    projected = 0
    if wrong.kind == "LSTM" and not wrong.faults.transposed and wrong.faults.initial_state != "exchanged":
        projected = draw.randint(1, units - 1) if units > 1 and draw.random() < 0.1 else 0
    directions = wrong.directions or draw.choice([1, 1, 2])
    count = wrong.layers or draw.choice([1, 1, 2])
    layers: list[Layer] = []
    for index in range(count):
        pair = [random_direction(inputs, units, projected, wrong, draw, d == 1) for d in range(directions)]
        layers.append(Layer(f"rnn.{index}", wrong.kind, pair, continues=index > 0, **wrong.layer))
        inputs = layers[-1].output_size
    return layers


def state_dict(layers: list[Layer]) -> dict[str, Tensor]:
    """A state dict with the names of `nn.GRU` and similar modules, for layers that these can compute."""
    names = {"weight_x": "weight_ih", "weight_h": "weight_hh", "bias_x": "bias_ih", "bias_h": "bias_hh",
             "projection": "weight_hr"}  # fmt: skip
    return {
        f"rnn.{name}_l{index}" + ("_reverse" if each.reverse else ""): value
        for index, layer in enumerate(layers)
        for each in layer.directions
        for own, name in names.items()
        if (value := getattr(each, own)) is not None
    }


def trace_of(x: Array, h0: Array | None, c0: Array | None, answer: Answer, dtype: torch.dtype, **more: Any) -> Trace:
    def tensor(array: Array | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(np.array(array)).to(dtype)

    gates = {name: tensor(value) for name, value in more.pop("gates", {}).items()}
    states = {name: tensor(value) for name, value in more.items()}
    return Trace(tensor(x), tensor(answer.y), h0=tensor(h0), c0=tensor(c0), gates=gates, **states)


def random_case(seed: int, fault: str) -> Case:
    """A model with one fault; the same seed gives the same case. Models in which the fault changes no more than
    rounding does are drawn anew."""
    for attempt in range(200):
        draw = random.Random(f"{fault} {seed} {attempt}")
        case = drawn_case(FAULTS[fault](draw), fault, draw)
        least = 1e-3 if case.trace.y.dtype == torch.float32 else 1e-6
        if (case.trace.y - case.right).abs().max() > least:
            return case
    raise AssertionError(f"no model shows {fault}")


def drawn_case(wrong: Wrong, fault: str, draw: random.Random) -> Case:
    layers = random_layers(wrong, draw)
    steps, rows = draw.randint(3, 12), draw.randint(1, 4)
    numbers = np.random.default_rng(draw.getrandbits(60))
    first = layers[0].directions[0]
    x = numbers.standard_normal((steps, rows, layers[0].input_size)).astype(np.float32)
    shape = len(layers) * len(layers[0].directions), rows
    h0, c0 = (numbers.standard_normal((*shape, size)).astype(np.float32) * 0.5
              for size in (first.output_size, layers[0].hidden_size))  # fmt: skip
    has_state = draw.random() < 0.5 if wrong.state is None else wrong.state
    h0, c0 = (h0 if has_state else None), (c0 if has_state and wrong.kind == "LSTM" else None)
    # Half precisions are best seen from a precision that is far from them.
    computed = draw.choice(["float32", "float64"])
    number = Numbers(computed, draw.choice(["numpy", "forward", "backward", "shuffled"]))
    answer = run(layers, x, h0, c0, wrong.faults, number)
    more: dict[str, Any] = {}
    if draw.random() < 0.4 and wrong.faults.exchanged != "results" and not wrong.faults.batch_axis:
        more = {"hn": answer.hn, "cn": answer.cn}
    if draw.random() < 0.2 and not (wrong.faults.exchanged or wrong.faults.batch_axis or wrong.faults.flipped):
        more["gates"] = answer.gates
    trace = trace_of(x, h0, c0, answer, getattr(torch, computed), **more)
    right = torch.from_numpy(run(layers, x, h0, c0).y.copy())
    model = [wrong.same(layer) for layer in layers] if wrong.same else None
    return Case(fault, wrong.detail, layers, trace, right, model)


def pair_case(seed: int) -> tuple[Case, set[str]] | None:
    """Two faults at once in a model, and their names; None where the two drawn can't be in one."""
    draw = random.Random(f"pair {seed}")
    first, second = draw.sample([name for name in FAULTS if name != "dtype"], 2)
    wrong = both(FAULTS[first](draw), FAULTS[second](draw))
    if wrong is None:
        return None
    return drawn_case(wrong, f"{first} + {second}", draw), {first, second}


def both(first: Wrong, second: Wrong) -> Wrong | None:
    right, switches = Faults(), {}
    for field in dataclasses.fields(Faults):
        made = [getattr(wrong.faults, field.name) for wrong in (first, second)]
        made = [value for value in made if value != getattr(right, field.name)]
        if len(made) == 2:
            return None
        switches[field.name] = made[0] if made else getattr(right, field.name)
    wanted = [(first.directions, second.directions), (first.layers, second.layers)]
    states = {wrong.state for wrong in (first, second)} - {None}
    if first.kind != second.kind or first.one_bias != second.one_bias or set(first.layer) & set(second.layer):
        return None
    if len(states) > 1 or any(a and b and a != b for a, b in wanted):
        return None
    return dataclasses.replace(
        first,
        detail=f"{first.detail}; {second.detail}",
        faults=Faults(**switches),
        layer=first.layer | second.layer,
        has=(*first.has, *(name for name in second.has if name not in first.has)),
        square=first.square or second.square,
        state=next(iter(states), None),
        directions=first.directions or second.directions,
        layers=first.layers or second.layers,
        same=None,
    )
