"""The variants of weft.nn once more, as slow loops in plain PyTorch, from the formulas in the papers.

hard_sigmoid is written out: the gradient of functional.hardsigmoid has 1/6 in float32, whatever the dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "hard_sigmoid": lambda x: functional.relu6(x + 3) / 6,
    "hardsigmoid": lambda x: functional.relu6(x + 3) / 6,
    "identity": lambda x: x,
    "linear": lambda x: x,
    "hard_tanh": functional.hardtanh,
    "hard_swish": functional.hardswish,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "log_sigmoid": functional.logsigmoid,
    "mish": functional.mish,
    "relu6": functional.relu6,
    "selu": functional.selu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
}


def activation(value):
    return ACTIVATIONS[value] if isinstance(value, str) else value


def run(module, x, hx=None, is_init=None):
    """The result of weft.nn's module for a batch: (y, state). Draws from PyTorch's generator as documented."""
    if module.batch_first:
        x = x.transpose(0, 1)
        is_init = None if is_init is None else is_init.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    size = module.proj_size or module.hidden_size
    sizes = (size, module.hidden_size)
    if hx is None:
        states = [x.new_zeros(module.num_layers * directions, x.shape[1], s) for s in sizes]
    else:
        states = list(hx) if isinstance(hx, tuple) else [hx]
    last = [[], []]
    for layer in range(module.num_layers):
        if layer > 0:
            x = functional.dropout(x, module.dropout, module.training)
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            carry = [state[index] for state in states]
            y, carry = run_direction(module, suffix, x, carry, is_init, backwards=direction == 1)
            outputs.append(y)
            for kept, state in zip(last, carry, strict=False):
                kept.append(state)
        x = torch.cat(outputs, -1)
    y = x.transpose(0, 1) if module.batch_first else x
    h, c = (torch.stack(kept) if kept else None for kept in last)
    return y, (h, c) if isinstance(module, nn.LSTM) else h


def run_direction(module, suffix, x, carry, is_init, backwards):
    steps, batch = x.shape[:2]
    is_lstm = isinstance(module, nn.LSTM)
    sizes = (module.proj_size or module.hidden_size, module.hidden_size)[: 2 if is_lstm else 1]
    zoneout = module.zoneout if isinstance(module.zoneout, tuple) else (module.zoneout,) * 2

    dropped = x.new_ones(batch, sizes[0])
    if module.training and module.recurrent_dropout > 0:
        dropped = torch.empty(batch, sizes[0], dtype=x.dtype).bernoulli_(1 - module.recurrent_dropout)
        dropped = dropped / (1 - module.recurrent_dropout)
    kept = [
        torch.empty(steps, batch, size, dtype=torch.bool).bernoulli_(p) if module.training and p > 0 else None
        for size, p in zip(sizes, zoneout, strict=False)
    ]

    ys = [None] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        carry = list(carry[: len(sizes)])
        if is_init is not None:
            restart = is_init[t]
            if backwards:  # backwards a piece is entered at its last step
                restart = is_init[t + 1] if t + 1 < steps else torch.zeros_like(restart)
            carry = [torch.where(restart[:, None], torch.zeros_like(state), state) for state in carry]
        new = step(module, suffix, x[t], carry, carry[0] * dropped)
        for i, p in enumerate(zoneout[: len(sizes)]):
            if kept[i] is not None:
                new[i] = torch.where(kept[i][t], carry[i], new[i])
            elif p > 0:
                new[i] = p * carry[i] + (1 - p) * new[i]
        carry = new
        ys[t] = carry[0]
    return torch.stack(ys), carry


def step(module, suffix, x, carry, h):
    """The next carry; h is the hidden state as the recurrent product sees it."""
    weights = Weights(module, suffix)
    if isinstance(module, nn.RNN):
        return [weights.clip(weights.act(weights.of_input(x) + weights.of_state(h)))]
    if isinstance(module, nn.GRU):
        return gru_step(weights, x, carry, h)
    return lstm_step(weights, x, carry, h)


class Weights:
    """The weights of one layer and direction: products for some gates' rows, and the functions applied to these."""

    def __init__(self, module, suffix):
        self.module, self.suffix = module, suffix
        self.gate = activation(getattr(module, "gate_activation", "sigmoid"))
        self.act = activation(module.nonlinearity if module.activation is None else module.activation)

    def get(self, name):
        return getattr(self.module, name + self.suffix, None)

    def of_input(self, x, rows=slice(None)):
        return self.product(x, self.get("weight_ih"), self.get("weight_ln_ih"), self.get("bias_ih"), rows)

    def of_state(self, h, rows=slice(None)):
        return self.product(h, self.get("weight_hh"), self.get("weight_ln_hh"), self.get("bias_hh"), rows)

    def product(self, v, weight, gain, bias, rows):
        p = v @ weight[rows].T
        if self.module.layer_norm:
            p = functional.layer_norm(p, p.shape[-1:]) * gain[rows]
        return p if bias is None else p + bias[rows]

    def clip(self, v):
        limit = self.module.cell_clip
        return v if limit is None else v.clamp(-limit, limit)


def gru_step(weights, x, carry, h):
    gate, act, size = weights.gate, weights.act, weights.module.hidden_size
    xr, xz, xn = weights.of_input(x).chunk(3, 1)
    if weights.module.reset_after:
        hr, hz, hn = weights.of_state(h).chunk(3, 1)
        r, z = gate(xr + hr), gate(xz + hz)
        n = act(xn + r * hn)
    else:
        hr, hz = weights.of_state(h, slice(2 * size)).chunk(2, 1)
        r, z = gate(xr + hr), gate(xz + hz)
        n = act(xn + weights.of_state(r * h, slice(2 * size, None)))
    return [weights.clip((1 - z) * n + z * carry[0])]


def lstm_step(weights, x, carry, h):
    module, gate, act, size = weights.module, weights.gate, weights.act, weights.module.hidden_size
    c = carry[1]
    coupled = {True: "input"}.get(module.coupled_input_forget, module.coupled_input_forget)
    names = {"input": "ico", "forget": "fco"}.get(coupled, "ifco")
    rows = torch.cat([torch.arange(k * size, (k + 1) * size) for k, name in enumerate("ifco") if name in names])
    both = weights.of_input(x, rows) + weights.of_state(h, rows)
    pre = dict(zip(names, both.chunk(len(names), 1), strict=True))

    def peep(name, state):
        return pre[name] + weights.get(f"weight_c{name}") * state if module.peepholes else pre[name]

    if coupled == "forget":
        f = gate(peep("f", c))
        i = 1 - f
    else:
        i = gate(peep("i", c))
        f = 1 - i if coupled == "input" else gate(peep("f", c))
    new = weights.clip(f * c + i * act(pre["c"]))
    o = gate(peep("o", new))
    shown = new
    if module.layer_norm:
        shown = functional.layer_norm(new, (size,)) * weights.get("weight_ln_c")
        if module.bias:
            shown = shown + weights.get("bias_ln_c")
    out: Tensor = o * act(shown)
    if module.proj_size:
        out = out @ weights.get("weight_hr").T
    return [out, new]
