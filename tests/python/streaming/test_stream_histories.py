"""Streams with long histories, whose rows are kept in buffers and not moved: nobody sees a difference."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


class Wave(nn.Module):
    """Dilated causal convolutions, with ways around them; the longest history has 2 * dilation rows."""

    def __init__(self, width: int, dilations: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=each) for each in dilations)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))))
        return x


def steps_of(stream: Any, x: Tensor) -> Tensor:
    return torch.stack([stream.step(x[..., t]) for t in range(x.shape[-1])], -1)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3])
def test_long_histories(batch: int, chunk: int) -> None:
    torch.manual_seed(0)
    model, x = Wave(7, [1, 90, 250]).eval(), torch.randn(batch, 7, 1500)
    stream = weft.stream(model, x[..., :600], time=2, chunk=chunk)
    expected = model(x)
    whole = stream.run(x)
    assert torch.allclose(whole, expected, atol=1e-5)
    stream.reset()
    parts = [stream.run(x[..., first : first + 300]) for first in range(0, 1500, 300)]
    assert torch.equal(torch.cat(parts, -1), whole)
    if chunk == 1:
        stream.reset()
        assert torch.equal(steps_of(stream, x), whole)


def test_states_are_copies() -> None:
    """What was read of a state stays as it is while the stream goes on, and a copied stream goes its own way."""
    torch.manual_seed(1)
    model, x = Wave(16, [40]).eval(), torch.randn(1, 16, 400)
    stream = weft.stream(model, x[..., :100], time=2)
    stream.run(x[..., :150])
    kept = stream.state
    before = {name: tensor.clone() for name, tensor in kept.items()}
    others = copy.copy(stream), copy.deepcopy(stream)
    rest = steps_of(stream, x[..., 150:])
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.items())
    for other in others:
        assert torch.equal(other.run(x[..., 150:]), rest)
    stream.state = kept
    for tensor in kept.values():
        tensor.fill_(7)  # the stream has its own
    assert torch.equal(stream.run(x[..., 150:]), rest)
    stream.state = {name: tensor.mT.contiguous().mT for name, tensor in before.items()}  # in another layout
    assert torch.equal(stream.run(x[..., 150:]), rest)
    stream.reset()
    assert torch.equal(stream.run(x)[..., 150:], rest)
    ((name, window),) = stream.state.items()
    assert torch.equal(window, x[..., -80:].mT), name


def test_a_step_that_fails_leaves_the_state() -> None:
    torch.manual_seed(2)
    table = torch.randn(10, 32)
    conv = nn.Conv1d(32, 8, 2, dilation=64)
    model = nn.Module()
    model.forward = lambda x: conv(nn.functional.pad(table[x].mT, (64, 0)))  # type: ignore[method-assign]
    x = torch.randint(0, 10, (1, 300))
    stream = weft.stream(model.forward, x[:, :100], check=False)
    found = []
    for t in range(300):
        if t % 7 == 0:
            with pytest.raises(RuntimeError, match="out of"):
                stream.step(torch.tensor([10]))
        found.append(stream.step(x[:, t]))
    assert torch.allclose(torch.stack(found, -1).reshape(1, 8, 300), model.forward(x), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    late = 300
    x = torch.randn(1, 900, 8).to(dtype)
    stream = weft.stream(lambda x: x + nn.functional.pad(x, (0, 0, late, 0))[:, :-late], x)
    assert torch.equal(stream.run(x), x + nn.functional.pad(x, (0, 0, late, 0))[:, :-late])


def test_a_step_takes_as_long_for_any_history() -> None:
    def step_ns(late: int) -> float:
        def model(x: Tensor) -> Tensor:
            return x + nn.functional.pad(x, (0, 0, late, 0))[:, :-late]

        x, times = torch.randn(1, 200, 1024), []
        stream = weft.stream(model, torch.randn(1, late + 8, 1024), check=False)
        for _ in range(7):
            start = time.thread_time_ns()  # CPU time of this thread, to which other programs don't count
            stream.run(x)
            times.append(time.thread_time_ns() - start)
        return min(times) / 200

    assert step_ns(1000) < 10 * step_ns(8)  # moving 4 MB takes a hundred times as long as the step
