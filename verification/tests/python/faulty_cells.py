"""GRU, LSTM and RNN as slow loops in NumPy, right or with one of the mistakes that people make in them.

It shares no code with Weft: `weft.verify` is tested against it. A mistake is made where one makes it: while weights are
taken from their arrays, inside a step, in the loop over steps, or where layers and directions are put together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weft.formats import Activation, Direction, Layer

Array = NDArray[np.floating]

GATES = {"GRU": "rzn", "LSTM": "ifgo", "RNN": "h"}


@dataclasses.dataclass(frozen=True)
class Faults:
    """The mistakes; with the defaults there is none."""

    # while weights are taken
    gate_order: tuple[int, ...] = ()  #: rows of gate gate_order[k] are taken for gate k
    gate_order_of: tuple[str, ...] = ("weight_x", "weight_h", "bias_x", "bias_h")
    without: tuple[str, ...] = ()  #: of bias_x, bias_h, peepholes
    transposed: tuple[str, ...] = ()  #: of weight_x, weight_h: each gate's matrix by itself
    column_major: tuple[str, ...] = ()  #: likewise: the whole buffer is read in the other order of memory
    # inside a step
    reset_side: bool = False  #: the reset gate on the other side of the hidden product
    bias_side: bool = False  #: of the GRU's n: b_hn outside the reset, or the only bias inside
    swapped_update: bool = False
    gate_activation: Activation | None = None
    activation: Activation | None = None
    output_activation: Activation | None = None
    forget_bias: float = 0.0
    eps: float | None = None
    without_clip: bool = False
    without_cell_clip: bool = False
    dtype: str = ""  #: float16, bfloat16: weights and every intermediate; sums are in float32
    # in the loop
    stale: str = ""  #: all, products, update, hidden, cell
    initial_state: str = ""  #: zeros, h zeros, c zeros, exchanged
    # where directions and layers are put together
    reverse_kept: bool = False  #: the reverse direction's results stay in the order of processing
    flipped: str = ""  #: what is reversed in time: "input" (results are turned back), or "both"
    batch_axis: bool = False
    exchanged: str = ""  #: results, weights: of the two directions


# Numbers


def rounded_to_bfloat16(x: Array) -> Array:
    """To nearest, ties to even, of float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), kept, x).astype(np.float32)


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "float64": lambda x: np.asarray(x, np.float64),
    "float32": lambda x: np.asarray(x, np.float32),
    "float16": lambda x: np.asarray(x, np.float16).astype(np.float32),
    "bfloat16": rounded_to_bfloat16,
}


@dataclasses.dataclass(frozen=True)
class Numbers:
    """How an implementation computes: its dtype, and the order of its sums."""

    dtype: str = "float64"
    order: str = "numpy"  #: numpy, forward, backward, shuffled (one product after the other)

    def __call__(self, x: Array) -> Array:
        return ROUNDINGS[self.dtype](x)

    def product(self, x: Array, weight: Array, start: Array | None = None) -> Array:
        """x [B, I] times weight [H, I] transposed, plus the start [H]."""
        if self.order == "numpy":
            result = self(x @ weight.T)
            return result if start is None else self(result + start)
        which = np.arange(weight.shape[1])
        if self.order == "backward":
            which = which[::-1]
        elif self.order == "shuffled":
            which = np.random.default_rng(len(which)).permutation(which)
        total = np.zeros((x.shape[0], weight.shape[0]), x.dtype) + (0 if start is None else start)
        for k in which:
            total = total + x[:, k, None] * weight[None, :, k]
        return self(total)


def apply(activation: Activation, x: Array) -> Array:
    alpha, beta = activation.alpha, activation.beta
    functions: dict[str, Callable[[Array], Array]] = {
        "sigmoid": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "identity": lambda x: x,
        "hard_sigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "hard_tanh": lambda x: np.clip(x, -1, 1),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.logaddexp(0, x),
        "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    }
    return functions[activation.name](x).astype(x.dtype)


# Weights


class Weights:
    """A direction's parameters, gate by gate, as somebody takes them out of their arrays."""

    def __init__(self, kind: str, source: Direction, faults: Faults, number: Numbers) -> None:
        count = len(GATES[kind])

        def array(name: str) -> Array | None:
            value = None if name in faults.without else getattr(source, name)
            return None if value is None else number(value.detach().double().numpy())

        def gates(name: str) -> list[Array] | None:
            value = array(name)
            if value is None:
                return None
            if name in faults.column_major:
                value = value.ravel().reshape(value.shape, order="F")
            parts = np.split(value, count)
            if faults.gate_order and name in faults.gate_order_of:
                parts = [parts[gate] for gate in faults.gate_order]
            return [part.T for part in parts] if name in faults.transposed else parts

        self.x, self.h = gates("weight_x"), gates("weight_h")
        self.bias_x, self.bias_h = gates("bias_x"), gates("bias_h")
        self.norm_x, self.norm_h = gates("norm_x"), gates("norm_h")
        self.norm_c, self.norm_c_bias = array("norm_c"), array("norm_c_bias")
        self.projection = array("projection")
        peepholes = array("peepholes")
        self.peepholes = None if peepholes is None else dict(zip("ifo", peepholes, strict=True))
        self.units = source.weight_h.shape[0] // count
        self.outputs = source.weight_h.shape[1]


# A step


class Cell:
    """One direction of one layer: a step of it."""

    def __init__(self, layer: Layer, direction: Direction, faults: Faults, number: Numbers) -> None:
        self.kind, self.faults, self.number = layer.kind, faults, number
        self.w = Weights(layer.kind, direction, faults, number)
        self.reset_after = layer.reset_after != faults.reset_side
        self.gate = faults.gate_activation or layer.gate_activation
        self.activation = faults.activation or layer.activation
        self.output = faults.output_activation or layer.output_activation
        self.clip = None if faults.without_clip else layer.clip
        self.cell_clip = None if faults.without_cell_clip else layer.cell_clip
        self.eps = layer.norm_eps if faults.eps is None or layer.norm_eps is None else faults.eps

    def products(self, x: Array, weights: list[Array], gains: list[Array] | None) -> list[Array]:
        """The products of each gate, without bias; normalised over all of them."""
        parts = [self.number.product(x, weight) for weight in weights]
        if self.eps is None:
            return parts
        gain = None if gains is None else np.concatenate(gains)
        return np.split(self.normalised(np.concatenate(parts, 1), gain), len(parts), 1)

    def normalised(self, x: Array, gain: Array | None) -> Array:
        mean = x.mean(1, keepdims=True)
        variance = ((x - mean) ** 2).mean(1, keepdims=True)
        result = self.number((x - mean) / np.sqrt(variance + self.eps))
        return result if gain is None else self.number(result * gain)

    def active(self, function: Activation, x: Array) -> Array:
        if self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        return self.number(apply(function, x))

    def clamped(self, state: Array) -> Array:
        return state if self.cell_clip is None else np.clip(state, -self.cell_clip, self.cell_clip)

    def bias(self, biases: list[Array] | None, gate: int) -> Array | float:
        return 0.0 if biases is None else biases[gate]

    def sums(self, x: Array, h: Array, gates: list[int]) -> list[Array]:
        """The arguments of the activations of these gates, for cells where they are sums only."""
        w = self.w
        norm_x, norm_h = ([part[g] for g in gates] if part else None for part in (w.norm_x, w.norm_h))
        from_x = self.products(x, [w.x[g] for g in gates], norm_x)
        from_h = self.products(h, [w.h[g] for g in gates], norm_h)
        return [
            self.number(self.number(a + self.bias(w.bias_x, g)) + self.number(b + self.bias(w.bias_h, g)))
            for g, a, b in zip(gates, from_x, from_h, strict=True)
        ]

    def rnn(self, x: Array, h: Array) -> Array:
        return self.clamped(self.active(self.activation, self.sums(x, h, [0])[0]))

    def gru(self, x: Array, h: Array, old: Array, gates: dict[str, Array]) -> Array:
        """h goes into the products, old into the update."""
        w, number = self.w, self.number
        x_parts = self.products(x, w.x, w.norm_x)
        if self.reset_after:
            h_parts = self.products(h, w.h, w.norm_h)
        else:
            h_parts = self.products(h, w.h[:2], w.norm_h and w.norm_h[:2])
        r, z = (
            self.active(self.gate, number(x_parts[g] + self.bias(w.bias_x, g) + h_parts[g] + self.bias(w.bias_h, g)))
            for g in (0, 1)
        )
        outside, inside = self.bias(w.bias_x, 2), self.bias(w.bias_h, 2)
        if self.faults.bias_side:
            outside, inside = (outside + inside, 0.0) if w.bias_h is not None else (inside, outside)
        if self.reset_after:
            before = number(x_parts[2] + outside + number(r * number(h_parts[2] + inside)))
        else:
            (product,) = self.products(number(r * h), w.h[2:], w.norm_h and w.norm_h[2:])
            before = number(x_parts[2] + outside + product + inside)
        n = self.active(self.activation, before)
        gates.update(r=r, z=z, n=n)
        if self.faults.swapped_update:
            z = 1 - z
        return self.clamped(number(number((1 - z) * n) + number(z * old)))

    def lstm(self, x: Array, h: Array, c: Array, gates: dict[str, Array]) -> tuple[Array, Array]:
        number, peepholes = self.number, self.w.peepholes
        i, f, g, o = self.sums(x, h, [0, 1, 2, 3])
        f = number(f + self.faults.forget_bias)
        if peepholes is not None:
            i, f = number(i + peepholes["i"] * c), number(f + peepholes["f"] * c)
        i, f, g = self.active(self.gate, i), self.active(self.gate, f), self.active(self.activation, g)
        c = self.clamped(number(number(f * c) + number(i * g)))
        if peepholes is not None:
            o = number(o + peepholes["o"] * c)
        o = self.active(self.gate, o)
        gates.update(i=i, f=f, g=g, o=o, c=c)
        shown = c
        if self.eps is not None:
            shown = self.normalised(c, self.w.norm_c)
            shown = shown if self.w.norm_c_bias is None else number(shown + self.w.norm_c_bias)
        h = number(o * number(apply(self.output, shown)))
        return (h if self.w.projection is None else number.product(h, self.w.projection)), c


# The loop


@dataclasses.dataclass
class Results:
    y: Array  #: [T, B, P]
    h: Array  #: [B, P]
    c: Array | None
    gates: dict[str, Array]  #: [T, B, H]


def run_direction(cell: Cell, x: Array, h0: Array | None, c0: Array | None, backwards: bool) -> Results:
    """x [T, B, I]; results are in the order of the input, unless the fault is that they aren't."""
    faults, number, steps, rows = cell.faults, cell.number, x.shape[0], x.shape[1]
    sizes = cell.w.outputs, cell.w.units
    h_first, c_first = (
        number(np.zeros((rows, size))) if s is None else number(s) for s, size in zip((h0, c0), sizes, strict=True)
    )
    if faults.initial_state in ("zeros", "h zeros"):
        h_first = np.zeros_like(h_first)
    if faults.initial_state in ("zeros", "c zeros"):
        c_first = np.zeros_like(c_first)
    if faults.initial_state == "exchanged":
        h_first, c_first = c_first, h_first
    h, c, kept = h_first, c_first, []
    for t in reversed(range(steps)) if backwards else range(steps):
        product_h = h_first if faults.stale in ("all", "products", "hidden") else h
        old = h_first if faults.stale in ("all", "update") else h
        gates: dict[str, Array] = {}
        if cell.kind == "RNN":
            h = cell.rnn(number(x[t]), product_h)
        elif cell.kind == "GRU":
            h = cell.gru(number(x[t]), product_h, old, gates)
        else:
            h, c = cell.lstm(number(x[t]), product_h, c_first if faults.stale in ("all", "cell") else c, gates)
        kept.append({"h": h} | gates)
    if backwards and not faults.reverse_kept:
        kept.reverse()
    stacks = {name: np.stack([entry[name] for entry in kept]) for name in kept[0]}
    return Results(stacks.pop("h"), h, c if cell.kind == "LSTM" else None, stacks)


@dataclasses.dataclass
class Answer:
    y: Array  #: [T, B, D*P]
    hn: Array  #: [layers*D, B, P]
    cn: Array | None
    gates: dict[str, Array]  #: of the last layer's forward direction


def run(
    layers: list[Layer],
    x: Array,
    h0: Array | None = None,
    c0: Array | None = None,
    faults: Faults | None = None,
    number: Numbers | None = None,
) -> Answer:
    """x [T, B, I], h0 and c0 [layers*D, B, ...]."""
    faults, number = faults or Faults(), number or Numbers()
    if faults.dtype:
        number = dataclasses.replace(number, dtype=faults.dtype)
    if faults.batch_axis:
        x = x.transpose(1, 0, 2)
    if faults.flipped:
        x = x[::-1]
    last: list[Results] = []
    parts: list[Results] = []
    for layer in layers:
        directions = list(layer.directions)
        if faults.exchanged == "weights":
            directions.reverse()
        parts = []
        for place, direction in enumerate(directions):
            state = [None if s is None else s[len(last) + place] for s in (h0, c0)]
            backwards = layer.directions[place].reverse
            parts.append(run_direction(Cell(layer, direction, faults, number), x, *state, backwards))
        last += parts
        shown = parts[::-1] if faults.exchanged == "results" else parts
        x = np.concatenate([part.y for part in shown], 2)
    if faults.flipped == "input":
        x = x[::-1]
    if faults.batch_axis:
        x = x.transpose(1, 0, 2)
    cells = [part.c for part in last if part.c is not None]
    return Answer(x, np.stack([part.h for part in last]), np.stack(cells) if cells else None, parts[0].gates)
