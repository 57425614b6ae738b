"""weft.stream of models with loops over the steps in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_streaming import compare
from torch import Tensor, nn

import weft


def last_dim(x: Tensor) -> Tensor:
    """Steps in the last dim of x [B, C, T], C being 8."""
    mean, means = x.new_zeros(x.shape[0], x.shape[1]), []
    for t in range(x.shape[2]):
        mean = 0.9 * mean + x[..., t]
        means.append(mean)
    return torch.stack(means, -1)


class Qrnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 24, 2)

    def forward(self, x: Tensor) -> Tensor:  # [B, 6, T]
        z, f, o = self.conv(F.pad(x, (1, 0))).chunk(3, 1)
        z, f, o = z.tanh(), f.sigmoid(), o.sigmoid()
        c, cs = torch.zeros_like(z[..., 0]), []
        for t in range(x.shape[-1]):
            c = f[..., t] * c + (1 - f[..., t]) * z[..., t]
            cs.append(c)
        return o * torch.stack(cs, -1)


class Sru(nn.Module):
    """Rows of B steps are one dim in the product."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = nn.Linear(8, 24, bias=False), nn.Parameter(torch.randn(2, 8) * 0.3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # [B, T, 8]
        u, c, hs = self.w(x), x.new_zeros(x.shape[0], 8), []
        for t in range(x.shape[1]):
            a, f, r = u[:, t].chunk(3, -1)
            f, r = torch.sigmoid(f + self.v[0] * c), torch.sigmoid(r + self.v[1] * c)
            c = f * c + (1 - f) * a
            hs.append(r * torch.tanh(c) + (1 - r) * x[:, t])
        return torch.stack(hs, 1), c


class Mamba(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.of_x, self.a = nn.Conv1d(6, 6, 4, groups=6), nn.Linear(6, 14), nn.Parameter(torch.rand(6, 4))

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 6]
        x = F.silu(self.conv(F.pad(x.transpose(1, 2), (3, 0)))).transpose(1, 2)
        dt, b, c = self.of_x(x).split([6, 4, 4], -1)
        decay = torch.exp(-F.softplus(dt).unsqueeze(-1) * self.a)
        h, ys = x.new_zeros(x.shape[0], 6, 4), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + b[:, t].unsqueeze(1) * x[:, t].unsqueeze(-1)
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, 1)


def canceller(x: Tensor) -> Tensor:
    """Results joined by cat, a window of the last steps; x [B, T, 2]."""
    window, out = x.new_zeros(x.shape[0], 4), []
    for t in range(x.shape[1]):
        window = torch.cat([x[:, t, 1:], window[:, :-1]], 1)
        out.append(x[:, t, :1] - window.mean(1, keepdim=True))
    return torch.cat(out, 1)


@pytest.mark.parametrize(
    ("model", "shape", "time"),
    [
        *((last_dim, (rows, 8, steps), 2) for rows, steps in ((1, 8), (2, 13), (0, 9), (1, 1))),
        (last_dim, (8, 8, 8), 2),
        (Qrnn, (1, 6, 16), 2),
        (Qrnn, (3, 6, 24), 2),
        *((Sru, (rows, steps, 8), 1) for rows, steps in ((1, 8), (2, 12), (2, 16), (3, 24), (5, 1))),
        (Mamba, (1, 16, 6), 1),
        (Mamba, (2, 14, 6), 1),
        (canceller, (1, 16, 2), 1),
        (canceller, (2, 9, 2), 1),
    ],
)
def test_sizes_that_are_the_number_of_steps_or_multiples(model: Any, shape: tuple[int, ...], time: int) -> None:
    torch.manual_seed(0)
    made = model().eval() if isinstance(model, type) else model
    weft.stream(made, torch.randn(shape), time=time)  # compared with the model
    longer = [size + 23 if dim == time else size for dim, size in enumerate(shape)]
    assert compare(made, torch.randn(longer), time).chunk == 1


def test_a_loop_that_does_something_else_later_is_refused() -> None:
    def model(x: Tensor) -> Tensor:
        h, hs = x.new_zeros(x.shape[0], 4), []
        for t in range(x.shape[1]):
            h = torch.tanh(h + x[:, t]) if t < 15 else h + x[:, t]
            hs.append(h)
        return torch.stack(hs, 1)

    with pytest.raises(RuntimeError, match="something else for another number of steps"):
        weft.stream(model, torch.randn(1, 10, 4))


def test_bits_of_a_package(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Sru().eval(), torch.randn(2, 30, 8)
    stream = weft.stream(model, x)
    package = weft.load(weft.package(model, x, tmp_path / "model", time=1, targets=stream.target) / "libmodel.so")
    for t in range(30):
        found, expected = package.step(x[:, t : t + 1]), stream.step(x[:, t : t + 1])
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_the_last_states_beside_all(rows: int, count: int) -> None:
    torch.manual_seed(0)
    cell = nn.LSTMCell(5, 12)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        state = (torch.zeros(x.shape[0], 12), torch.zeros(x.shape[0], 12))
        hs = []
        for step in x.unbind(1):
            state = cell(step, state)
            hs.append(state[0])
        return torch.stack(hs, 1), *state[:count]

    x = torch.randn(rows, 30, 5)
    stream = weft.stream(model, x)
    outputs, at = [], 0
    for steps in (7, 1, 22):
        y, *states = stream.run(x[:, at : at + steps])
        outputs.append(y)
        at += steps
        with torch.no_grad():
            expected, *lasts = model(x[:, :at])  # as if the sequence ended there
        torch.testing.assert_close(states, lasts, atol=1e-6, rtol=0)
        torch.testing.assert_close(torch.cat(outputs, 1), expected, atol=1e-6, rtol=0)


def valid(layers: int) -> Callable[[Tensor], Tensor]:
    """Convolutions without padding, whose results are cut to the shortest from their ends."""
    weights = [torch.randn(4, 4, 2) * 0.3 for _ in range(layers)]

    def model(x: Tensor) -> Tensor:
        skips = []
        for i, weight in enumerate(weights):
            z = torch.tanh(F.conv1d(x, weight.to(x.dtype), dilation=2**i))
            x = x[:, :, -z.shape[2] :] + z
            skips.append(z)
        size = x.shape[-1]
        return x + sum(skip[..., -size:] for skip in skips)

    return model


@pytest.mark.parametrize(("layers", "steps"), [(1, 20), (2, 30), (4, 60)])
def test_slices_counted_from_the_end(layers: int, steps: int) -> None:
    torch.manual_seed(0)
    stream = compare(valid(layers), torch.randn(2, 4, steps), 2)
    assert stream.outputs[0].lag == 2**layers - 1
    compare(valid(layers), torch.randn(1, 4, steps + 1, dtype=torch.float64), 2)


@pytest.mark.parametrize("cut", [lambda x, n: x[:, -(n - 3) :], lambda x, n: x.narrow(1, 3 - n, n - 3)])
def test_a_model_that_cuts_from_the_end(cut: Callable[[Tensor, int], Tensor]) -> None:
    torch.manual_seed(0)
    assert compare(lambda x: torch.sin(cut(x, x.shape[1])), torch.randn(2, 20, 4), 1).outputs[0].lag == 3


def test_a_loop_beside_a_slice_counted_from_the_end() -> None:
    def model(x: Tensor) -> Tensor:
        h, hs = x.new_zeros(x.shape[0], 4), []
        for t in range(2, x.shape[1]):
            h = torch.tanh(0.5 * h + x[:, t] - x[:, t - 2])
            hs.append(h)
        y = torch.stack(hs, 1)
        return x[:, -y.shape[1] :] * y

    torch.manual_seed(0)
    compare(model, torch.randn(2, 17, 4), 1)


@pytest.mark.parametrize("steps", [20, 30, 50, 70])
def test_a_place_that_may_count_from_either_end_is_refused(steps: int) -> None:
    """40 - T is a place from the front up to 40 steps, and one from the end for more."""
    with pytest.raises(RuntimeError, match=r"something else|can't|counted from the end|depends on"):
        weft.stream(lambda x: x[:, 40 - x.shape[1] :].cumsum(1), torch.randn(2, steps, 4))
