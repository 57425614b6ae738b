"""A backward that is compiled by a thread of its own while the forward is (CallProgram::compile_ahead)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from threads_cases import threads
from torch import nn

import weft


@pytest.fixture
def two_threads() -> Iterator[None]:
    with threads(2):
        yield


def gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    y = module(x)[0]
    return list(torch.autograd.grad(y, list(module.parameters()), torch.ones_like(y)))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_backward_is_counted_when_it_is_called(kind: str) -> None:
    module = getattr(nn, kind)(3, 21)  # sizes of this test's own
    x = torch.randn(4, 2, 3)
    before = weft.stats()["compiled"]
    y = module(x)[0]
    assert weft.stats()["compiled"] == before + 1
    found = torch.autograd.grad(y, list(module.parameters()), torch.ones_like(y))
    assert weft.stats()["compiled"] == before + 2
    with weft.disabled():
        expected = gradients(module, x)
    torch.testing.assert_close(list(found), expected)


@pytest.mark.usefixtures("two_threads")
def test_many_threads_want_it_at_once() -> None:
    for hidden in range(33, 41):
        module, x = nn.GRU(2, hidden), torch.randn(3, 2, 2)
        y = module(x)[0]
        found: list[list[torch.Tensor]] = []

        def backward(y: torch.Tensor = y, module: nn.Module = module, found: list[list[torch.Tensor]] = found) -> None:
            given = torch.ones_like(y)
            found.append(list(torch.autograd.grad(y, list(module.parameters()), given, retain_graph=True)))

        callers = [threading.Thread(target=backward) for _ in range(6)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        with weft.disabled():
            expected = gradients(module, x)
        assert len(found) == len(callers)
        for each in found:
            torch.testing.assert_close(each, expected)


ENDS = r"""
import os, sys, threading
import torch, weft
torch.set_num_threads(2)
layers = [torch.nn.LSTM(4, 20 + i, 3, bidirectional=True) for i in range(3)]
xs = torch.randn(3, 2, 4)
ys = [layer(xs)[0] for layer in layers]  # whose backwards are being compiled now
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        for layer, y in zip(layers, ys):
            grads = torch.autograd.grad(y, list(layer.parameters()), torch.ones_like(y))
            with weft.disabled():
                again = layer(xs)[0]
                expected = torch.autograd.grad(again, list(layer.parameters()), torch.ones_like(again))
            torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-5)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
elif sys.argv[1] == "exit":
    raise SystemExit(0)
"""


@pytest.mark.parametrize("how", ["plain", "fork", "exit"])
@pytest.mark.parametrize("turn", range(2))
def test_a_process_may_end_meanwhile(how: str, turn: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS, how],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "WEFT_CACHE": "0"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), turn
