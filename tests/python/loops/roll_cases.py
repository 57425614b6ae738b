"""Loops that a program writes in Python, as bodies of a module: loops that are scans, and code that only looks like
one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

T, B, I, H = 6, 3, 5, 7  # noqa: E741


class Loop(nn.Module):
    """Runs `body(self, x)`; holds the parameters that the loops below need."""

    def __init__(self, body: Callable[[Any, Tensor], Any], steps: int = T) -> None:
        super().__init__()
        self.body, self.steps = body, steps
        self.gru, self.lstm, self.rnn = nn.GRUCell(I, H), nn.LSTMCell(I, H), nn.RNNCell(I, H)
        self.deep = nn.GRUCell(H, H)
        self.deeper = nn.GRUCell(H, H)
        self.inp, self.rec, self.out = nn.Linear(I, H), nn.Linear(H, H, bias=False), nn.Linear(H, I)
        self.norm = nn.LayerNorm(H)
        self.decay = nn.Parameter(torch.rand(H))

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


def zeros(m: Loop, x: Tensor) -> Tensor:
    return torch.zeros(x.shape[1], H, dtype=x.dtype)


def gru_cell(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        outs.append(h)
    return torch.stack(outs), h


def gru_cell_without_state(m: Loop, x: Tensor) -> Any:
    h = None
    for xt in x:
        h = m.gru(xt, h)
    return h


def lstm_cell(m: Loop, x: Tensor) -> Any:
    h, c = zeros(m, x), x.new_zeros(x.shape[1], H)
    outs = []
    for xt in x.unbind(0):
        h, c = m.lstm(xt, (h, c))
        outs.append(h.unsqueeze(0))
    return torch.cat(outs), (h, c)


def custom_cell(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        z = torch.sigmoid(m.inp(x[t]) + m.rec(h))
        h = (1 - z) * h + z * torch.tanh(m.norm(m.rec(h) * m.decay))
        outs.append(m.out(h))
    return torch.stack(outs, dim=1)


def concatenated_cell(m: Loop, x: Tensor) -> Any:
    h, w = zeros(m, x), torch.cat([m.inp.weight, m.rec.weight], 1)
    for t in range(x.shape[0]):
        h = torch.tanh(torch.cat([x[t], h], dim=-1) @ w.t())
    return h


def elementwise(m: Loop, x: Tensor) -> Any:
    h, a, outs = x[0] * 0, m.decay[:I], []
    for t in range(x.shape[0]):
        h = a * h + (1 - a) * x[t]
        outs.append(h)
    return torch.stack(outs)


def batch_first(m: Loop, x: Tensor) -> Any:
    x = x.transpose(0, 1)
    h, outs = torch.zeros(x.size(0), H, dtype=x.dtype), []
    for t in range(x.size(1)):
        h = m.rnn(x[:, t, :], h)
        outs.append(h)
    return torch.stack(outs, 1)


def chunks(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for xt in x.chunk(x.shape[0], 0):
        h = m.gru(xt.squeeze(0), h)
        outs.append(h)
    return torch.stack(outs)


def two_layers_in_one_loop(m: Loop, x: Tensor) -> Any:
    h, g, k, outs = zeros(m, x), zeros(m, x), zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        g = m.deep(h, g)
        k = m.deeper(g, k)
        outs.append(k)
    return torch.stack(outs), h, g


def layers_one_after_the_other(m: Loop, x: Tensor) -> Any:
    ys = list(x)
    for cell in (m.gru, m.deep, m.deeper):
        h, outs = zeros(m, x), []
        for y in ys:
            h = cell(y, h)
            outs.append(h)
        ys = outs
    return torch.stack(ys)


def backwards(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in reversed(range(x.shape[0])):
        h = m.gru(x[t], h)
        outs.insert(0, h)
    return torch.stack(outs), h


def backwards_in_order(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0] - 1, -1, -1):
        h = m.gru(x[t], h)
        outs.append(h)
    return torch.stack(outs)


def bidirectional(m: Loop, x: Tensor) -> Any:
    n = x.shape[0]
    f, b = zeros(m, x), zeros(m, x)
    forward, backward = [], []
    for t in range(n):
        f = m.gru(x[t], f)
        b = m.rnn(x[n - 1 - t], b)
        forward.append(f)
        backward.append(b)
    return torch.cat([torch.stack(forward), torch.stack(backward[::-1])], -1)


def attention(m: Loop, x: Tensor) -> Any:
    memory = m.inp(x).transpose(0, 1)
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        weights = torch.softmax((memory @ m.rec(h).unsqueeze(-1)).squeeze(-1), -1)
        context = (weights.unsqueeze(1) @ memory).squeeze(1)
        h = m.deep(context, m.gru(x[t], h))
        outs.append(m.out(h))
    return torch.stack(outs)


def chosen_inputs(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in (2, 0, 0, 5, 1, 3, 2):
        h = m.gru(x[t], h)
        outs.append(h)
    return torch.stack(outs)


def window(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0] - 2):
        h = torch.tanh(m.inp(x[t : t + 3]).sum(0) + m.rec(h))
        outs.append(h)
    return torch.stack(outs)


def last_only(m: Loop, x: Tensor) -> Any:
    h = zeros(m, x)
    for xt in x:
        h = m.gru(xt, h)
    return m.out(h)


def every_second(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        if t % 2:
            outs.append(h)
    return torch.stack(outs)


def list_of_all(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        outs.append(h)
    return outs


def counter(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t] * (t / x.shape[0]), h + 0.1 * t) / (t + 1)
        outs.append(h)
    return torch.stack(outs)


def coefficients(m: Loop, x: Tensor) -> Any:
    h = zeros(m, x)
    for t, c in enumerate((0.5, -0.25, 3.0, 0.3, 0.5, 1e-3)):
        h = m.gru(x[t] * c, h)
    return h


def sum_of_losses(m: Loop, x: Tensor) -> Any:
    h, loss = zeros(m, x), 0
    for t in range(x.shape[0] - 1):
        h = m.gru(x[t], h)
        error = m.out(h) - x[t + 1]
        loss = loss + (error * error).mean()
    return loss


def sum_in_place(m: Loop, x: Tensor) -> Any:
    h, total = zeros(m, x), torch.zeros(())
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        total += h.square().mean()
    return total / x.shape[0]


def two_steps_back(m: Loop, x: Tensor) -> Any:
    before, h, outs = zeros(m, x), zeros(m, x) + 0.5, []
    for t in range(x.shape[0]):
        before, h = h, torch.tanh(m.inp(x[t]) + m.rec(h) - 0.5 * before)
        outs.append(h)
    return torch.stack(outs)


def previous_input(m: Loop, x: Tensor) -> Any:
    h, before = zeros(m, x), torch.zeros_like(x[0])
    for xt in x:
        h = m.gru(xt - before, h)
        before = xt
    return h


def differing_first_step(m: Loop, x: Tensor) -> Any:
    h = torch.tanh(m.inp(x[0]))
    outs = [h]
    for t in range(1, x.shape[0]):
        h = m.gru(x[t], h)
        outs.append(h)
    return torch.stack(outs)


def something_now_and_then(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        if t % 2 == 0:
            outs.append(m.out(h))
    return torch.stack(outs), h


def truncated(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h).detach() if t == 2 else m.gru(x[t], h)
        outs.append(h)
    return torch.stack(outs)


def detached_input(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        outs.append(m.out(h.detach()) + m.out(h) * 2)
    return torch.stack(outs)


def inner_loop(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        for _ in range(4):
            h = h + 0.1 * torch.tanh(m.rec(h))
        outs.append(h)
    return torch.stack(outs)


def feedback(m: Loop, x: Tensor) -> Any:
    h, y, outs = zeros(m, x), x[0], []
    for _ in range(8):
        h = m.gru(y, h)
        y = m.out(h)
        outs.append(y)
    return torch.stack(outs)


def teacher_forcing(m: Loop, x: Tensor) -> Any:
    h, y, outs = zeros(m, x), x[0], []
    for t, is_given in enumerate((True, False, True, True, False, False)):
        h = m.gru(x[t] if is_given else y, h)
        y = m.out(h)
        outs.append(y)
    return torch.stack(outs)


def masked(m: Loop, x: Tensor) -> Any:
    lengths = torch.arange(x.shape[1]) + 2
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = torch.where((t < lengths).unsqueeze(1), m.gru(x[t], h), h)
        outs.append(h)
    return torch.stack(outs)


def buffer(m: Loop, x: Tensor) -> Any:
    h = zeros(m, x)
    outs = torch.zeros(x.shape[0], x.shape[1], H, dtype=x.dtype)
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
        outs[t] = h
    return outs


ROLLED = [
    gru_cell, gru_cell_without_state, lstm_cell, custom_cell, concatenated_cell, elementwise, batch_first, chunks,
    two_layers_in_one_loop, layers_one_after_the_other, backwards, backwards_in_order, bidirectional, attention,
    chosen_inputs, window, last_only, every_second, list_of_all, counter, coefficients, sum_of_losses, sum_in_place,
    two_steps_back, previous_input, differing_first_step, something_now_and_then, truncated, detached_input, inner_loop,
    feedback, teacher_forcing, masked, buffer,
]  # fmt: skip


def no_steps(m: Loop, x: Tensor) -> Any:
    return m.out(m.rec(torch.tanh(m.inp(x))))


def layers(m: Loop, x: Tensor) -> Any:
    h = m.inp(x)
    for cell in (m.deep, m.deeper):
        h = cell(h[0], h[1]).unsqueeze(0).expand(2, -1, -1)
    return h


def other_function_each_step(m: Loop, x: Tensor) -> Any:
    h = zeros(m, x)
    for t, f in enumerate((torch.tanh, torch.sigmoid, torch.relu, torch.sin, torch.cos, torch.exp)):
        h = f(m.inp(x[t])) * f(h)
    return h


def polynomial(m: Loop, x: Tensor) -> Any:
    y = torch.zeros_like(x)
    for c in (0.1, 0.2, 0.3, 0.4, 0.5):
        y = y * x + c
    return y


NOT_ROLLED = [no_steps, layers, other_function_each_step, polynomial]
