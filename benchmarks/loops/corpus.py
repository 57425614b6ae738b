"""Recurrent loops as people write them in Python: cells in five styles each, and loops with something of their own.

A cell is a module with `step(x, state) -> (y, state)` and `initial(x)`, where x is one step's input [B, I]. A style
is a way to write the loop around it, over x[B, T, I]. `LOOPS` has all of them by name; each takes x and gives a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUT, HIDDEN = 24, 32


class Cell(nn.Module):
    hidden = HIDDEN

    def initial(self, x: Tensor) -> Any:
        return torch.zeros(x.size(0), self.hidden, dtype=x.dtype)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        raise NotImplementedError


class Gru(Cell):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUT, HIDDEN)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h = self.cell(x, state)
        return h, h


class Lstm(Cell):
    """Written out, with one matrix for both, as in many a repository."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(INPUT + HIDDEN, 4 * HIDDEN)

    def initial(self, x: Tensor) -> Any:
        return super().initial(x), super().initial(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)


class Peephole(Lstm):
    def __init__(self) -> None:
        super().__init__()
        self.peep = nn.Parameter(torch.randn(3, HIDDEN) * 0.1)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).split(HIDDEN, dim=1)
        i = torch.sigmoid(i + self.peep[0] * c)
        f = torch.sigmoid(f + self.peep[1] * c)
        c = f * c + i * g.tanh()
        h = torch.sigmoid(o + self.peep[2] * c) * c.tanh()
        return h, (h, c)


class LayerNormGru(Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec = nn.Linear(INPUT, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.norm_x, self.norm_h = nn.LayerNorm(3 * HIDDEN), nn.LayerNorm(3 * HIDDEN)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        xr, xz, xn = self.norm_x(self.inp(x)).chunk(3, -1)
        hr, hz, hn = self.norm_h(self.rec(state)).chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        h = (1 - z) * torch.tanh(xn + r * hn) + z * state
        return h, h


class Minimal(Cell):
    """A minimal gated unit whose weights are used transposed by `.T`."""

    def __init__(self) -> None:
        super().__init__()
        self.w_f, self.w_h = (nn.Parameter(torch.randn(HIDDEN, INPUT) * 0.2) for _ in range(2))
        self.u_f, self.u_h = (nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 0.2) for _ in range(2))

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        f = torch.sigmoid(x @ self.w_f.T + state @ self.u_f.T)
        n = torch.tanh(x @ self.w_h.T + (f * state) @ self.u_h.T)
        h = (1.0 - f) * state + f * n
        return h, h


class Independent(Cell):
    """IndRNN."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.u = nn.Linear(INPUT, HIDDEN), nn.Parameter(torch.rand(HIDDEN))

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h = functional.relu(self.inp(x) + self.u * state)
        return h, h


class SimpleRecurrentUnit(Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.skip = nn.Linear(INPUT, 3 * HIDDEN), nn.Linear(INPUT, HIDDEN)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        n, f, r = self.inp(x).chunk(3, dim=-1)
        f, r = f.sigmoid(), r.sigmoid()
        c = f * state + (1 - f) * n
        return r * torch.tanh(c) + (1 - r) * self.skip(x), c


class ConvLstm(Cell):
    """An LSTM cell that convolves over a row of 8 places with 4 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(INPUT // 8 + 4, 16, kernel_size=3, padding=1)

    def initial(self, x: Tensor) -> Any:
        return torch.zeros(x.size(0), 4, 8, dtype=x.dtype), torch.zeros(x.size(0), 4, 8, dtype=x.dtype)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, c = state
        gates = self.conv(torch.cat([x.view(x.size(0), -1, 8), h], dim=1))
        i, f, o, g = torch.split(gates, 4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h.flatten(1), (h, c)


class SelectiveSsm(Cell):
    """A state [B, H, 4] whose decay depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.bc, self.dt = nn.Linear(INPUT, HIDDEN), nn.Linear(INPUT, 8), nn.Linear(INPUT, HIDDEN)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, 5.0)).repeat(HIDDEN, 1))

    def initial(self, x: Tensor) -> Any:
        return torch.zeros(x.size(0), HIDDEN, 4, dtype=x.dtype)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        dt = functional.softplus(self.dt(x)).unsqueeze(-1)
        b, c = self.bc(x).chunk(2, dim=-1)
        state = torch.exp(-dt * self.log_a.exp()) * state + dt * b.unsqueeze(1) * self.inp(x).unsqueeze(-1)
        return (state * c.unsqueeze(1)).sum(-1), state


class LeakySpikes(Cell):
    """Leaky integrate and fire, with a surrogate gradient, as in snntorch and norse."""

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Tensor) -> Tensor:
            ctx.save_for_backward(v)
            return (v > 0).to(v.dtype)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (v,) = ctx.saved_tensors
            return gradient / (1 + 25 * v.abs()) ** 2

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.beta = nn.Linear(INPUT, HIDDEN), nn.Parameter(torch.tensor(0.9))

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        v = self.beta.clamp(0, 1) * state + self.inp(x)
        spike = self.Spike.apply(v - 1.0)
        return spike, v - spike.detach() * 1.0


CELLS = {
    "gru": Gru, "lstm": Lstm, "peephole": Peephole, "layer norm gru": LayerNormGru, "mgu": Minimal,
    "indrnn": Independent, "sru": SimpleRecurrentUnit, "conv lstm": ConvLstm, "selective ssm": SelectiveSsm,
    "spikes": LeakySpikes,
}  # fmt: skip


# ---- styles


def list_and_stack(cell: Cell, x: Tensor) -> Tensor:
    state, outputs = cell.initial(x), []
    for t in range(x.size(1)):
        y, state = cell.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def buffer(cell: Cell, x: Tensor) -> Tensor:
    batch, steps, _ = x.shape
    outputs = torch.empty(batch, steps, cell.hidden, dtype=x.dtype)
    state = cell.initial(x)
    for t in range(steps):
        y, state = cell.step(x[:, t, :], state)
        outputs[:, t] = y
    return outputs


def growing_cat(cell: Cell, x: Tensor) -> Tensor:
    state = cell.initial(x)
    outputs = torch.zeros(x.size(0), 0, cell.hidden, dtype=x.dtype)
    for t in range(x.size(1)):
        y, state = cell.step(x[:, t], state)
        outputs = torch.cat([outputs, y.unsqueeze(1)], dim=1)
    return outputs


def unbind_and_zip(cell: Cell, x: Tensor) -> Tensor:
    state, outputs = cell.initial(x), []
    scales = torch.linspace(0.5, 1.5, x.size(1), dtype=x.dtype)
    for xt, scale in zip(x.unbind(1), scales, strict=True):
        y, state = cell.step(xt * scale, state)
        outputs += [y.unsqueeze(1)]
    return torch.cat(outputs, 1)


def while_counter(cell: Cell, x: Tensor) -> Tensor:
    x = x.transpose(0, 1)
    state, outputs, t = cell.initial(x[0]), [], 0
    while t < x.shape[0]:
        y, state = cell.step(x[t], state)
        outputs.append(y)
        t += 1
    return torch.stack(outputs).transpose(0, 1)


STYLES = (list_and_stack, buffer, growing_cat, unbind_and_zip, while_counter)


class Styled(nn.Module):
    """A cell in a style."""

    def __init__(self, cell: type[Cell], style: Callable[[Cell, Tensor], Tensor]) -> None:
        super().__init__()
        self.cell, self.style = cell(), style

    def forward(self, x: Tensor) -> Tensor:
        return self.style(self.cell, x)


# ---- loops with something of their own


class StackedModuleList(nn.Module):
    """Layers within the loop over time, each with its state in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(INPUT if i == 0 else HIDDEN, HIDDEN) for i in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        states = [torch.zeros(x.size(0), HIDDEN, dtype=x.dtype) for _ in self.cells]
        outputs = []
        for t in range(x.size(1)):
            h = x[:, t]
            for i, cell in enumerate(self.cells):
                states[i] = h = cell(h, states[i])
            outputs.append(h)
        return torch.stack(outputs, 1)


class LayersOutside(nn.Module):
    """The loop over time lies within the loop over layers; each layer has a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(INPUT, INPUT) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for cell in self.cells:
            h = c = x.new_zeros(x.size(0), INPUT)
            outputs = []
            for t in range(x.size(1)):
                h, c = cell(x[:, t], (h, c))
                outputs.append(h)
            x = x + torch.stack(outputs, 1)
        return x


class Bidirectional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.GRUCell(INPUT, HIDDEN), nn.GRUCell(INPUT, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        h = k = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype)
        there, back = [], []
        for t in range(x.size(1)):
            h = self.there(x[:, t], h)
            there.append(h)
        for t in reversed(range(x.size(1))):
            k = self.back(x[:, t], k)
            back.insert(0, k)
        return torch.cat([torch.stack(there, 1), torch.stack(back, 1)], -1)


class Masked(nn.Module):
    """Rows of different lengths keep their state behind their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUT, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.arange(x.size(0)) % x.size(1) + 1
        mask = (torch.arange(x.size(1))[None, :] < lengths[:, None]).to(x.dtype)
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            m = mask[:, t].unsqueeze(1)
            h = m * self.cell(x[:, t], h) + (1 - m) * h
            outputs.append(h * m)
        return torch.stack(outputs, 1)


class DictState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleDict({name: nn.Linear(INPUT + HIDDEN, HIDDEN) for name in "ifgo"})

    def forward(self, x: Tensor) -> Tensor:
        state = {"h": x.new_zeros(x.size(0), HIDDEN), "c": x.new_zeros(x.size(0), HIDDEN)}
        outputs = {}
        for t in range(x.size(1)):
            z = torch.cat([x[:, t], state["h"]], -1)
            i, f, o = (torch.sigmoid(self.gates[name](z)) for name in "ifo")
            state["c"] = f * state["c"] + i * torch.tanh(self.gates["g"](z))
            state["h"] = o * torch.tanh(state["c"])
            outputs[t] = state["h"]
        return torch.stack([outputs[t] for t in range(x.size(1))], 1)


class InPlaceGates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec, self.gate = nn.Linear(INPUT, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            new = self.inp(x[:, t])
            new += self.rec(h)
            new = new.tanh_()
            keep = self.gate(h).sigmoid_()
            h = torch.lerp(new, h, keep)
            h[:, : HIDDEN // 4] *= 0.5
            outputs.append(h)
        return torch.stack(outputs, 1)


class Dropped(nn.Module):
    """Dropout of the state, drawn anew at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.drop = nn.GRUCell(INPUT, HIDDEN), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            h = self.drop(self.cell(x[:, t], h))
            outputs.append(h)
        return torch.stack(outputs, 1)


class RecurrentDropout(nn.Module):
    """One mask for all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(INPUT, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype)
        mask = torch.bernoulli(torch.full_like(h, 0.8)) / 0.8
        outputs = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h * mask, c))
            outputs.append(h)
        return torch.stack(outputs, 1)


class TeacherForcing(nn.Module):
    """A decoder; a Python flag decides at which steps it gets the right token."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(INPUT, HIDDEN), nn.Linear(HIDDEN, INPUT)

    def forward(self, x: Tensor) -> Tensor:
        h, y, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), x[:, 0], []
        for t in range(x.size(1)):
            use_truth = t % 3 == 0
            h = self.cell(x[:, t] if use_truth else y, h)
            y = self.out(h)
            outputs.append(y)
        return torch.stack(outputs, 1)


class Feedback(nn.Module):
    """Continues from its own outputs, with attention over an encoded input."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.cell, self.out = (
            nn.Linear(INPUT, HIDDEN),
            nn.GRUCell(2 * HIDDEN, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
        )

    def forward(self, x: Tensor) -> Tensor:
        memory = self.encode(x)
        h = y = memory.mean(1)
        outputs = []
        for _ in range(x.size(1)):
            scores = torch.bmm(memory, h.unsqueeze(2)).squeeze(2) / math.sqrt(HIDDEN)
            context = torch.bmm(torch.softmax(scores, -1).unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([y, context], -1), h)
            y = self.out(h)
            outputs.append(y)
        return torch.stack(outputs, 1)


class EarlyOutputs(nn.Module):
    """Reads every fourth step and sums a penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(INPUT, HIDDEN), nn.Linear(HIDDEN, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, penalty, outputs = x.new_zeros(x.size(0), HIDDEN), x.new_zeros(()), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            penalty = penalty + h.pow(2).mean()
            if (t + 1) % 4 == 0:
                outputs.append(self.out(h))
        return torch.stack(outputs, 1) + 0.01 * penalty


class NoisyWeights(nn.Module):
    """Noise refilled in place at every step, as in bayesian-torch. In eager mode a gradient of what is multiplied by it
    is one of the last noise; here the weight has no gradient by way of the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.mu, self.rho = (
            nn.Parameter(torch.randn(HIDDEN, INPUT) * 0.2),
            nn.Parameter(torch.full((HIDDEN, INPUT), -3.0)),
        )
        self.rec = nn.Linear(HIDDEN, HIDDEN)
        self.register_buffer("eps", torch.zeros(HIDDEN, INPUT))

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            weight = self.mu + self.rho + 0.1 * self.eps.data.normal_()
            h = torch.tanh(functional.linear(x[:, t], weight) + self.rec(h))
            outputs.append(h)
        return torch.stack(outputs, 1)


class RunningStatistics(nn.Module):
    """A buffer that every step moves a little, without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUT, HIDDEN)
        self.register_buffer("mean", torch.zeros(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * h.mean(0))
            outputs.append(h)
        return torch.stack(outputs, 1)


class Truncated(nn.Module):
    """Gradients stop every eight steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUT, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            if t % 8 == 0:
                h = h.detach()
            h = self.cell(x[:, t], h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Substeps(nn.Module):
    """An ODE's Euler steps between inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.field, self.cell = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN)), Gru()

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            for _ in range(4):
                h = h + 0.25 * self.field(h)
            _, h = self.cell.step(x[:, t], h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class DecayedGru(nn.Module):
    """GRU-D: a missing input is replaced by its last value, which decays."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.decay_h = nn.GRUCell(2 * INPUT, HIDDEN), nn.Linear(INPUT, HIDDEN)
        self.decay_x = nn.Parameter(torch.rand(INPUT))

    def forward(self, x: Tensor) -> Tensor:
        observed = (x > 0).to(x.dtype)
        mean = x.mean(1)
        h = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype)
        last, since, outputs = mean, torch.zeros_like(mean), []
        for t in range(x.size(1)):
            xt, m = x[:, t, :], observed[:, t, :]
            gamma = torch.exp(-torch.relu(self.decay_x * since))
            xt = m * xt + (1 - m) * (gamma * last + (1 - gamma) * mean)
            last = m * x[:, t, :] + (1 - m) * last
            h = h * torch.exp(-torch.relu(self.decay_h(since)))
            since = (1 - m) * (since + 1)
            h = self.cell(torch.cat([xt, m], 1), h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Autoregressive(nn.Module):
    """Writes its outputs to the tensor that it reads its inputs from."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(INPUT, HIDDEN), nn.Linear(HIDDEN, INPUT)

    def forward(self, x: Tensor) -> Tensor:
        h, found = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), torch.zeros_like(x)
        found[:, 0] = x[:, 0]
        for t in range(1, x.size(1)):
            h = self.cell(found[:, t - 1].clone(), h)
            found[:, t] = self.out(h)
        return found


class TimeEmbedding(nn.Module):
    """The number of the step goes in as an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.time = nn.GRUCell(INPUT, HIDDEN), nn.Embedding(512, INPUT)

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t] + self.time(torch.tensor(t)), h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class LastOnly(nn.Module):
    """Sequence first, einsum, the last state alone."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(torch.randn(INPUT, HIDDEN) * 0.2), nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.size(0), HIDDEN, dtype=x.dtype)
        for xt in x.permute(1, 0, 2):
            h = torch.tanh(torch.einsum("bi,ih->bh", xt, self.w) + torch.einsum("bh,hk->bk", h, self.u))
        return h


OWN = (
    StackedModuleList, LayersOutside, Bidirectional, Masked, DictState, InPlaceGates, Dropped, RecurrentDropout,
    TeacherForcing, Feedback, EarlyOutputs, NoisyWeights, RunningStatistics, Truncated, Substeps, DecayedGru,
    Autoregressive, TimeEmbedding, LastOnly,
)  # fmt: skip


def _spaced(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


LOOPS: dict[str, Callable[[], nn.Module]] = {
    f"{name}, {style.__name__.replace('_', ' ')}": lambda cell=cell, style=style: Styled(cell, style)
    for name, cell in CELLS.items()
    for style in STYLES
} | {_spaced(own.__name__): own for own in OWN}
