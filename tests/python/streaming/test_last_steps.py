"""`x[:, -1]` of a value that is computed step by step: after each chunk, as if the sequence ended there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft

GRU = nn.GRU(3, 4, batch_first=True)
LSTM = nn.LSTM(3, 4, num_layers=2)
CONV = nn.Conv1d(3, 4, 3)
CELL = nn.GRUCell(3, 4)
HEAD = nn.Linear(4, 2)
NORM = nn.LayerNorm(4)


def appended(x: Tensor) -> Tensor:
    h, hs = x.new_zeros(x.shape[0], 4), []
    for t in range(x.shape[1]):
        h = CELL(x[:, t], h)
        hs.append(h)
    return torch.stack(hs, 1)


def written(x: Tensor) -> Tensor:
    h, hs = x.new_zeros(x.shape[0], 4), x.new_zeros(x.shape[0], x.shape[1], 4)
    for t in range(x.shape[1]):
        h = CELL(x[:, t], h)
        hs[:, t] = h + 1
    return hs


MODELS: dict[str, Callable[[Tensor], Tensor]] = {
    "input": lambda x: x[:, -1],
    "kept": lambda x: x[:, -1:].sin(),
    "select": lambda x: x.cumsum(1).select(1, -1),
    "gru": lambda x: HEAD(GRU(x)[0][:, -1]),
    "lstm": lambda x: HEAD(LSTM(x.transpose(0, 1))[0][-1]),
    "norm": lambda x: HEAD(NORM(GRU(x)[0]).relu())[..., -1, :],
    "convolution": lambda x: CONV(functional.pad(x.transpose(1, 2), (2, 0))).tanh()[:, :, -1],
    "valid": lambda x: CONV(x.transpose(1, 2)).tanh()[:, :, -1],
    "differences": lambda x: (x[:, 1:] - x[:, :-1])[:, -1],
    "both": lambda x: GRU(x)[0][:, -1] + GRU(x)[1][0],
    "appended": lambda x: appended(x)[:, -1],
    "written": lambda x: written(x)[:, -1],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_last_step_so_far(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for module in (GRU, LSTM, CONV, CELL, HEAD, NORM):
        module.to(dtype)
    model, x = MODELS[name], torch.randn(2, 23, 3, dtype=dtype)
    stream = weft.stream(lambda x: (x, model(x)), x)
    assert stream.outputs[1].time is None
    done = 0
    while done < x.shape[1]:
        steps = min(int(torch.randint(1, 6, ())) if done else 5, x.shape[1] - done)
        _, found = stream.run(x[:, done : done + steps])
        done += steps
        with torch.no_grad():
            torch.testing.assert_close(found, model(x[:, :done]), rtol=1e-5, atol=1e-6)


def test_of_frames() -> None:
    x = torch.randn(2, 24, 3)
    conv = nn.Conv1d(3, 4, 2, stride=2)
    stream = weft.stream(lambda x: conv(x.transpose(1, 2))[:, :, -1], x)
    for done in range(2, 25, 2):
        with torch.no_grad():
            torch.testing.assert_close(stream.run(x[:, done - 2 : done]), conv(x[:, :done].transpose(1, 2))[:, :, -1])


def test_zeros_before_the_first_element() -> None:
    stream = weft.stream(lambda x: CONV(x.transpose(1, 2))[:, :, -1], torch.randn(2, 20, 3, dtype=CONV.weight.dtype))
    assert not stream.run(torch.randn(2, 2, 3, dtype=CONV.weight.dtype)).any()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x[:, -2], "picks steps by number|counted from the end"),
        (lambda x: x[:, :-1][:, -1], "a sequence without its last steps|counted from the end"),
        (lambda x: functional.conv1d(x.transpose(1, 2), torch.ones(4, 3, 3), padding=1)[:, :, -1], "last"),
        (lambda x: x - x[:, -1:], "a last step, or a loop's last carry, at steps before the last one"),
        (lambda x: x - x[:, -1, None], "a last step, or a loop's last carry, at steps before the last one"),
        (lambda x: x.flip(1)[:, -1], "reverses the steps"),
    ],
)
def test_what_needs_the_end_is_refused(model: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        weft.stream(model, torch.randn(2, 20, 3))
