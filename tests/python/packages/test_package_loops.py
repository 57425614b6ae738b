"""Loops of the structure that packages have, trained twice: spiking neurons that keep their state as attributes, as
snntorch's do, and an LSTM whose steps give dicts, as neuralhydrology's does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

T, B, N = 6, 3, 6


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    weft.reset_stats()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Spike(torch.autograd.Function):
    """A step whose gradient is that of the arc tangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad / (1 + (torch.pi * x) ** 2)


class Neuron(nn.Module):
    """Integrate and fire. The state and the reset of the last step stay as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(0.3))
        self.register_buffer("mem", torch.zeros(0), False)
        self.beta = nn.Parameter(torch.tensor(0.9))

    def start(self) -> Tensor:
        self.mem = torch.zeros_like(self.mem)
        return self.mem

    def next(self, x: Tensor) -> Tensor:
        return self.beta.clamp(0, 1) * self.mem + x - self.reset * self.threshold

    def forward(self, x: Tensor, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if mem is not None:
            self.mem = mem
        if self.mem.shape != x.shape:
            self.mem = torch.zeros_like(x)
        self.reset = Spike.apply(self.mem - self.threshold).clone().detach()
        self.mem = self.next(x)
        self.spikes = Spike.apply(self.mem - self.threshold)
        return self.spikes, self.mem


class SpikingLstm(Neuron):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(N, N)
        self.register_buffer("syn", torch.zeros(0), False)

    def start(self) -> Tensor:
        self.syn = torch.zeros_like(self.syn)
        return super().start()

    def next(self, x: Tensor) -> Tensor:
        syn = self.syn if self.syn.shape == x.shape else torch.zeros_like(x)
        mem, self.syn = self.cell(x, (self.mem, syn))
        return mem - self.reset * self.threshold


class Layers(nn.Module):
    def __init__(self, neuron: type[Neuron]) -> None:
        super().__init__()
        self.first, self.linear, self.second = neuron(), nn.Linear(N, N), neuron()

    def forward(self, x: Tensor) -> Tensor:
        mem, mem_last = self.first.start(), self.second.start()
        found = []
        for t in range(x.shape[0]):
            spikes, mem = self.first(x[t], mem)
            _, mem_last = self.second(self.linear(spikes), mem_last)
            found.append(mem_last)
        return torch.stack(found)


class Gates(nn.Module):
    """Every gate and state of every step is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.w_hh, self.w_ih = nn.Parameter(torch.randn(4 * N, N) / N), nn.Parameter(torch.randn(4 * N, N) / N)
        self.b_hh, self.b_ih = nn.Parameter(torch.zeros(4 * N)), nn.Parameter(torch.zeros(4 * N))

    def step(self, x_t: Tensor, h_0: Tensor, c_0: Tensor) -> dict[str, Tensor]:
        gates = h_0 @ self.w_hh.T + self.b_hh + x_t @ self.w_ih.T + self.b_ih
        i, f, g, o = gates.chunk(4, 1)
        c_1 = torch.sigmoid(f) * c_0 + torch.sigmoid(i) * torch.tanh(g)
        return {"h_n": torch.sigmoid(o) * torch.tanh(c_1), "c_n": c_1, "i": i, "f": f, "g": g, "o": o}

    def forward(self, x: Tensor) -> Tensor:
        h_x = (x.data.new(x.shape[1], N).zero_(), x.data.new(x.shape[1], N).zero_())
        output = defaultdict(list)
        for x_t in x:
            h_0, c_0 = h_x
            cell_output = self.step(x_t=x_t, h_0=h_0, c_0=c_0)
            h_x = (cell_output["h_n"], cell_output["c_n"])
            for key, value in cell_output.items():
                output[key].append(value)
        found = {key: torch.stack(value, 1) for key, value in output.items()}
        return torch.cat([found[key] for key in sorted(found)], 2)


def train(function: Any, model: nn.Module, x: Tensor) -> list[Tensor | None]:
    model.zero_grad()
    result = function(x)
    (result * torch.linspace(0.5, 1.5, result.numel()).view(result.shape)).sum().backward()
    return [result.detach(), *(None if p.grad is None else p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize(("make", "scans"), [(lambda: Layers(Neuron), 2), (lambda: Layers(SpikingLstm), 1), (Gates, 1)])
def test_trained_twice_it_is_what_eager_mode_gives(make: Any, scans: int) -> None:
    """The second call finds the first one's states, whose graph is gone; only their size is read."""
    model = make()
    compiled = torch.compile(model, backend="weft")
    for _ in range(3):
        x = torch.randn(T, B, N)
        before = {name: value.detach().clone() for name, value in model.named_buffers()}
        found = train(compiled, model, x)
        plain = make()
        plain.load_state_dict(model.state_dict())
        for name, value in before.items():
            part, _, last = name.rpartition(".")
            setattr(plain.get_submodule(part), last, value)
        torch.testing.assert_close(found, train(plain, plain, x), rtol=1e-4, atol=1e-5)
    counted = weft.stats()["backend"]
    assert counted["rolled"] >= scans and not counted["not_rolled"], counted
