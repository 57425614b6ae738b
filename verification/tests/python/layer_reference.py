"""weft.formats' Layer run by the book: a loop over steps in float64 that honours every field."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from weft.formats import GATES, Activation, Direction, Layer

_FUNCTIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda x: x,
    "hard_sigmoid": lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1),
    "hard_tanh": lambda x: x.clamp(-1, 1),
    "softsign": lambda x: x / (1 + x.abs()),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "elu": lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x)),
    "selu": functional.selu,
    "leaky_relu": lambda x, alpha: torch.where(x > 0, x, alpha * x),
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": functional.gelu,
    "mish": functional.mish,
    "exp": torch.exp,
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "scaled_tanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "thresholded_relu": lambda x, alpha: torch.where(x > alpha, x, torch.zeros_like(x)),
    "relu6": lambda x: x.clamp(0, 6),
    "hard_silu": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "log_sigmoid": functional.logsigmoid,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def activate(activation: Activation, x: Tensor) -> Tensor:
    parameters = [value for value in (activation.alpha, activation.beta) if not math.isnan(value)]
    return _FUNCTIONS[activation.name](x, *parameters)


def run_layers(layers: list[Layer], x: Tensor) -> Tensor:
    """[T, B, I] -> [T, B, D*H]: runs the layers one after the other, even if they aren't declared as a chain."""
    for layer in layers:
        x, _ = run_layer(layer, x)
    return x


def run_layer(layer: Layer, x: Tensor, h0: Tensor | None = None, c0: Tensor | None = None) -> tuple[Tensor, list]:
    """x [T, B, I] -> y [T, B, D*P], and each direction's last states (h, c); c is None except for an LSTM.

    h0 [D, B, P], c0 [D, B, H]: they go before the layer's own.
    """
    x = x.double()
    ys, states = [], []
    for i, direction in enumerate(layer.directions):
        y, state = _run_direction(layer, direction, x, h0 if h0 is None else h0[i], c0 if c0 is None else c0[i])
        ys.append(y)
        states.append(state)
    if len(ys) == 1 or layer.merge == "concat":
        return torch.cat(ys, -1), states
    merged = {"sum": ys[0] + ys[1], "mul": ys[0] * ys[1], "ave": (ys[0] + ys[1]) / 2}
    return merged[layer.merge], states


def _run_direction(layer: Layer, d: Direction, x: Tensor, h0: Tensor | None, c0: Tensor | None):
    steps, batch = x.shape[:2]
    given = [d.h0 if h0 is None else h0, d.c0 if c0 is None else c0]
    sizes = (d.output_size, layer.hidden_size)
    h, c = (
        torch.zeros(batch, size, dtype=torch.float64) if state is None else state.double().expand(batch, size)
        for state, size in zip(given, sizes, strict=True)
    )
    ys: list[Tensor] = [h] * steps
    for t in reversed(range(steps)) if d.reverse else range(steps):
        new_h, new_c = _step(layer, d, x[t], h, c)
        keep_h, keep_c = layer.zoneout
        h = keep_h * h + (1 - keep_h) * new_h
        c = keep_c * c + (1 - keep_c) * new_c
        ys[t] = h
    return torch.stack(ys), (h, c if layer.kind == "LSTM" else None)


def _step(layer: Layer, d: Direction, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    size = layer.hidden_size
    gates = GATES[layer.kind]
    skipped = {"input": "f", "forget": "i"}.get(layer.coupled, "")

    def clip(v: Tensor, most: float | None) -> Tensor:
        return v if most is None else v.clamp(-most, most)

    def product(v: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, of: str) -> dict[str, Tensor]:
        rows = torch.cat([torch.arange(size) + gates.index(gate) * size for gate in of])
        p = v @ weight.double()[rows].T
        if layer.norm_eps is not None and gain is not None:
            p = functional.layer_norm(p, p.shape[-1:], eps=layer.norm_eps) * gain.double()[rows]
        if bias is not None:
            p = p + bias.double()[rows]
        return dict(zip(of, p.split(size, -1), strict=True))

    def s(v: Tensor) -> Tensor:
        return activate(layer.gate_activation, clip(v, layer.clip))

    def g(v: Tensor) -> Tensor:
        return activate(layer.activation, clip(v, layer.clip))

    computed = "".join(gate for gate in gates if gate != skipped)
    xs = product(x, d.weight_x, d.bias_x, d.norm_x, computed)

    def of_h(v: Tensor, of: str) -> dict[str, Tensor]:
        return product(v, d.weight_h, d.bias_h, d.norm_h, of)

    if layer.kind == "RNN":
        return clip(g(xs["h"] + of_h(h, "h")["h"]), layer.cell_clip), c
    if layer.kind == "GRU":
        hs = of_h(h, "rzn" if layer.reset_after else "rz")
        r, z = s(xs["r"] + hs["r"]), s(xs["z"] + hs["z"])
        n = g(xs["n"] + (r * hs["n"] if layer.reset_after else of_h(r * h, "n")["n"]))
        return clip((1 - z) * n + z * h, layer.cell_clip), c
    hs = of_h(h, computed)
    peep = torch.zeros(3, size) if d.peepholes is None else d.peepholes
    peep_i, peep_f, peep_o = peep.double()
    i = f = torch.zeros_like(c)
    if skipped != "i":
        i = s(xs["i"] + hs["i"] + peep_i * c)
    if skipped != "f":
        f = s(xs["f"] + hs["f"] + peep_f * c)
    i = 1 - f if skipped == "i" else i
    f = 1 - i if skipped == "f" else f
    new_c = clip(f * c + i * g(xs["g"] + hs["g"]), layer.cell_clip)
    o = s(xs["o"] + hs["o"] + peep_o * new_c)
    shown = new_c
    if d.norm_c is not None:
        shown = functional.layer_norm(new_c, new_c.shape[-1:], eps=layer.norm_eps or 0.0) * d.norm_c.double()
    if d.norm_c_bias is not None:
        shown = shown + d.norm_c_bias.double()
    h = o * activate(layer.output_activation, shown)
    return h if d.projection is None else h @ d.projection.double().T, new_c
