"""Uses of Weft's public names as type checkers are to see them; test_typing.py has mypy and pyright read this file.

A line that says `type: ignore` is a mistake that a checker must find: mypy --strict reports an ignore without an error.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

import weft


class State(NamedTuple):
    h: Tensor
    c: Tensor


def step(state: State, x: Tensor) -> tuple[State, Tensor]:
    return State(state.h + x, state.c), state.h


def scans(x: Tensor, state: State) -> None:
    assert_type(weft.scan(step, state, x), tuple[State, Tensor])
    assert_type(weft.scan(step, state, x, None, True, dim=1), tuple[State, Tensor])
    assert_type(weft.checkpoint_scan(step, state, x, every=4)[0].h, Tensor)
    assert_type(weft.associative_scan(torch.add, x, dim=1), Tensor)
    weft.scan(step, x, x)  # type: ignore[arg-type]
    weft.scan(step, state, x, lenght=3)  # type: ignore[call-arg]
    weft.scan(step, state, x, "10")  # type: ignore[arg-type]


def loops(carry: tuple[Tensor, Tensor]) -> None:
    def body(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return carry[0] + 1, carry[1]

    assert_type(weft.while_loop(lambda pair: pair[0] < 3, body, carry), tuple[Tensor, Tensor])


def square(x: Tensor) -> Tensor:
    return x * x


def functions(x: Tensor) -> None:
    assert_type(weft.jit(square)(x), Tensor)
    weft.jit(square)("x")  # type: ignore[arg-type]
    assert_type(weft.call("program @p() { return }", [x]), list[Tensor])
    assert_type(weft.call_("program @p() { return }", [x]), list[Tensor])
    assert_type(weft.stablehlo(square, x).text, str)
    weft.reset_stats()
    assert_type(str(weft.stats()), str)
    with weft.disabled():
        weft.sync()


def modules(x: Tensor, model: nn.Module) -> None:
    gru = weft.nn.GRU(3, 4, 2, reset_after=False)
    assert_type(gru(x), tuple[Tensor, Tensor])
    assert_type(weft.nn.LSTM(3, 4, proj_size=2)(x), tuple[Tensor, tuple[Tensor, Tensor]])
    packed = nn.utils.rnn.pack_sequence([x])
    assert_type(gru(packed)[0], nn.utils.rnn.PackedSequence)
    weft.nn.GRU(3, 3, reset_aftr=False)  # type: ignore[call-arg]
    weft.nn.RNN(3, 3, layer_norm="yes")  # type: ignore[arg-type]
    assert_type(weft.nn.convert(model, zoneout=0.1), weft.nn.ConvertReport)
    weft.nn.convert(model, zoneut=0.1)  # type: ignore[call-arg]
    assert_type(weft.quantize(model), nn.Module)


def reports(x: Tensor, model: nn.Module) -> None:
    assert_type(weft.verify("a.onnx", model, input=x).text(), str)
    assert_type(weft.formats.read("a.onnx"), weft.formats.Source)
    assert_type(weft.explain(model, x, seconds=1.0).text(), str)
    print(weft.scn)  # type: ignore[attr-defined]
