"""weft.stream of loops in Python whose step gives its output before it computes the next state."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stream_models import MODELS
from test_streaming import compare
from torch import Tensor, nn

import weft

H = 6


class Cells(nn.Module):
    """A cell of any kind, in layers, with the output that the step's old states give."""

    def __init__(self, kind: str, layers: int = 1) -> None:
        super().__init__()
        makers = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn": nn.RNNCell}
        self.cells = nn.ModuleList(makers[kind](H, H) for _ in range(layers))
        self.out, self.is_lstm = nn.Linear(2 * H, 4), kind == "lstm"

    def start(self, x: Tensor) -> list[Any]:
        zeros = x.new_zeros(x.shape[0], H)
        return [(zeros, zeros) if self.is_lstm else zeros for _ in self.cells]

    def output(self, xt: Tensor, states: list[Any]) -> Tensor:
        return torch.tanh(self.out(torch.cat([xt, states[-1][0] if self.is_lstm else states[-1]], -1)))

    def update(self, xt: Tensor, states: list[Any]) -> list[Any]:
        new = []
        for cell, state in zip(self.cells, states, strict=True):
            new.append(cell(xt, state))
            xt = new[-1][0] if self.is_lstm else new[-1]
        return new

    def forward(self, x: Tensor) -> Tensor:
        states, ys = self.start(x), []
        for t in range(x.shape[1]):
            ys.append(self.output(x[:, t], states))
            states = self.update(x[:, t], states)
        return torch.stack(ys, 1)


class Enumerated(Cells):
    def forward(self, x: Tensor) -> Tensor:
        states, ys = self.start(x), []
        for t, xt in enumerate(x.unbind(1)):
            ys.append(self.output(xt, states) + t)
            states = self.update(xt, states)
        return torch.stack(ys, dim=1)


class Zipped(Cells):
    def forward(self, x: Tensor) -> Tensor:
        states, ys = self.start(x), []
        for xt, scale in zip(x.unbind(1), torch.relu(x).unbind(1), strict=True):
            ys.append((self.output(xt, states) * scale[:, :4]).unsqueeze(1))
            states = self.update(xt, states)
        return torch.cat(ys, 1)


class Listed(Cells):
    def forward(self, x: Tensor) -> Tensor:
        states, ys = self.start(x), []
        for xt in [x[:, t] for t in range(x.size(1))]:
            ys += [self.output(xt, states)[:, None]]
            states = self.update(xt, states)
        return torch.cat(ys, dim=1)


def filters(x: Tensor) -> tuple[Tensor, Tensor]:
    """Several carries, of which each output reads others; x [B, T, H]."""
    a, b, first, second = x.new_zeros(x.shape[0], H), x.new_ones(x.shape[0], 2), [], []
    for t in range(x.shape[1]):
        first.append(a * x[:, t] + b.sum(1, keepdim=True))
        a = 0.9 * a + torch.sin(x[:, t])
        second.append(torch.cat([a[:, :2], b], 1))
        b = torch.tanh(b + a[:, 2:4])
    return torch.stack(first, 1), torch.stack(second, 1)


def spinning(x: Tensor) -> Tensor:
    """A complex carry; x [B, T, H]."""
    z, ys = torch.complex(x.new_ones(x.shape[0], H), x.new_zeros(x.shape[0], H)), []
    for t in range(x.shape[1]):
        ys.append(z.real * x[:, t])
        z = z * torch.complex(x[:, t].cos(), x[:, t].sin())
    return torch.stack(ys, 1)


KINDS = [(kind, layers) for kind in ("gru", "lstm", "rnn") for layers in (1, 2)]


@pytest.mark.parametrize(("kind", "layers"), KINDS)
@pytest.mark.parametrize("model", [Cells, Enumerated, Zipped, Listed])
def test_cells(model: type[Cells], kind: str, layers: int) -> None:
    torch.manual_seed(0)
    made = model(kind, layers).eval()
    assert compare(made, torch.randn(3, 17, H), 1).outputs[0].lag == 0


@pytest.mark.parametrize("model", [filters, spinning])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 5])
def test_functions(model: Callable[[Tensor], Any], dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(0)
    stream = compare(model, torch.randn(rows, 19, H, dtype=dtype), 1)
    assert all(output.lag == 0 for output in stream.outputs)


@pytest.mark.parametrize("steps", [1, 2, 7, 16])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_lengths_of_the_example(steps: int, rows: int) -> None:
    torch.manual_seed(0)
    model, x = Cells("gru").double().eval(), torch.randn(rows, 23, H, dtype=torch.float64)
    stream = weft.stream(model, x[:, :steps])
    found = torch.cat([stream.run(x[:, :1]), stream.run(x[:, 1:14]), stream.run(x[:, 14:])], 1)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))


def test_the_first_output_reads_the_beginning_alone() -> None:
    """Time first, with an initial state that is learned."""
    torch.manual_seed(0)
    w, h0 = torch.randn(H, H) * 0.4, torch.randn(H)

    def model(x: Tensor) -> Tensor:  # [T, B, H]
        h, ys = h0.expand(x.shape[1], H), []
        for xt in x:
            ys.append(h)
            h = torch.tanh(h @ w + xt)
        return torch.stack(ys)

    compare(model, torch.randn(13, 3, H), 0)


def test_what_nobody_reads_may_have_no_program() -> None:
    """Beside the loop, operations that programs lack and whose results fall away."""
    torch.manual_seed(0)
    w = torch.randn(H, H) * 0.4

    def model(x: Tensor) -> Tensor:
        h, ys = x.new_zeros(x.shape[0], H), []
        for t in range(x.shape[1]):
            ys.append(h + x[:, t])
            h = torch.tanh(h @ w + x[:, t])
            torch.linalg.eigvals(h.T @ h)
        return torch.stack(ys, 1)

    assert compare(model, torch.randn(2, 15, H), 1).outputs[0].lag == 0


def test_a_package_without_delay(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Cells("lstm", 2).eval(), torch.randn(2, 12, H)
    folder = weft.package(model, x, tmp_path / "model", time=1, targets="x86-64-v3")
    package = weft.load(folder / "libmodel.so")
    found = torch.cat([package.step(x[:, t : t + 1]) for t in range(12)], 1)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(MODELS // 4))
def test_random_loops(seed: int) -> None:
    """States updated one after the other, with outputs anywhere between, before or behind."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    count = rng.randint(1, 4)
    weights = [torch.randn(H, H) * 0.3 for _ in range(count)]
    order = [(kind, i) for i in range(count) for kind in ("update", *["output"] * rng.randint(0, 1))]
    order.append(("output", rng.randrange(count)))
    rng.shuffle(order)
    functions = [rng.choice([torch.tanh, torch.sin, torch.sigmoid]) for _ in order]
    others = [rng.randrange(count) for _ in order]

    def model(x: Tensor) -> list[Tensor]:
        states = [x.new_zeros(x.shape[0], H) for _ in range(count)]
        results: list[list[Tensor]] = [[] for kind, _ in order if kind == "output"]
        for t in range(x.shape[1]):
            left = iter(results)
            for (kind, i), f, other in zip(order, functions, others, strict=True):
                if kind == "update":
                    states[i] = f(states[i] @ weights[i] + states[other] + x[:, t])
                else:
                    next(left).append(f(states[i] * x[:, t] + states[other]))
        return [torch.stack(each, 1) for each in results]

    stream = compare(model, torch.randn(rng.choice([1, 2, 3]), 18, H), 1, seed=seed)
    assert all(output.lag == 0 for output in stream.outputs)
