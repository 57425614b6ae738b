"""When weft.scan captures a step anew, and when it must not."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import warm_python
from torch import Tensor, nn

import weft
from weft import _C
from weft._capture import programs, trace

SCALE = 2.0


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Functions traced since the test began, one entry for each trace; programs captured before aren't found."""
    monkeypatch.setattr(programs, "table", _C.CapturedTable())
    seen: list[str] = []
    of_run = trace.of_run

    def counted(function: Any, *args: Any) -> Any:
        seen.append(function.what)
        return of_run(function, *args)

    monkeypatch.setattr(trace, "of_run", counted)
    yield seen


def last(step: Any, h: Tensor, x: Tensor) -> Tensor:
    return weft.scan(step, h, x)[0]


def by_hand(step: Any, h: Tensor, x: Tensor) -> Tensor:
    for t in range(x.shape[0]):
        h, _ = step(h, x[t])
    return h


class TestSizes:
    def test_another_length_or_batch_compiles_nothing(self, traces: list[str]) -> None:
        cell = nn.GRUCell(3, 5)
        for length, batch in [(4, 6), (9, 6), (9, 2), (1, 7), (30, 50)]:
            x, h = torch.randn(length, batch, 3), torch.randn(batch, 5)
            torch.testing.assert_close(
                last(lambda h, x: (cell(x, h), h), h, x), by_hand(lambda h, x: (cell(x, h), h), h, x)
            )
        assert len(traces) <= 2  # the lambda occurs in two places
        before = weft.stats()["compiled"]
        last(lambda h, x: (cell(x, h), h), torch.randn(11, 5), torch.randn(13, 11, 3))
        assert weft.stats()["compiled"] == before or len(traces) == 3

    def test_one_program_for_all_sizes(self) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.sin(h * 1.5 + x), h

        last(step, torch.randn(4, 3), torch.randn(5, 4, 3))
        before = weft.stats()["compiled"]
        for batch, length in [(2, 3), (9, 40), (4, 1)]:
            last(step, torch.randn(batch, 3), torch.randn(length, batch, 3))
        assert weft.stats()["compiled"] == before

    def test_a_size_that_the_step_looks_at(self) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h / h.shape[0] + (x if h.shape[0] > 4 else -x), h

        for batch in (3, 5, 3, 8):
            h, x = torch.randn(batch, 2), torch.randn(4, batch, 2)
            torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))

    def test_a_batch_as_large_as_the_state(self) -> None:
        w, u = torch.randn(6, 6), torch.randn(6)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(h @ w + u + x), h

        for batch in (6, 3, 6, 1):
            h, x = torch.randn(batch, 6), torch.randn(4, batch, 6)
            torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))

    def test_another_rank_or_dtype(self) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(h + x), h

        for shape in [(2,), (2, 3), (2, 3, 4), ()]:
            for dtype in (torch.float32, torch.float64):
                h, x = torch.randn(shape, dtype=dtype), torch.randn(5, *shape, dtype=dtype)
                torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))


class TestSurroundings:
    def test_a_closure_made_anew_is_the_same_step(self, traces: list[str]) -> None:
        def run(scale: float) -> Tensor:
            return last(lambda h, x: (h * scale + x, h), torch.ones(2), torch.ones(3, 2))

        assert run(2.0)[0] == 15.0 and run(2.0)[0] == 15.0
        assert len(traces) == 1
        assert run(3.0)[0] == 40.0  # 27 + 9 + 3 + 1
        assert run(2.0)[0] == 15.0
        assert len(traces) == 2

    def test_a_global_that_changes(self) -> None:
        global SCALE

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h * SCALE + x, h

        assert last(step, torch.ones(2), torch.ones(3, 2))[0] == 15.0
        try:
            SCALE = 3.0
            assert last(step, torch.ones(2), torch.ones(3, 2))[0] == 40.0
        finally:
            SCALE = 2.0

    def test_other_tensors_of_the_same_kind(self, traces: list[str]) -> None:
        def run(w: Tensor) -> Tensor:
            return last(lambda h, x: (h * w + x, h), torch.ones(2), torch.ones(3, 2))

        for value in (2.0, 3.0, 0.5):
            w = torch.full((2,), value)
            assert torch.equal(run(w), by_hand(lambda h, x, w=w: (h * w + x, h), torch.ones(2), torch.ones(3, 2)))
        assert len(traces) == 1
        run(torch.full((2,), 2.0, dtype=torch.float32).reshape(1, 2)[0])
        with pytest.raises(ValueError, match=r"float32.* in, float64"):
            run(torch.full((2,), 2.0, dtype=torch.float64))

    def test_parameters_that_are_replaced(self) -> None:
        linear = nn.Linear(2, 2, bias=False)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return linear(h) + x, h

        h, x = torch.randn(3, 2), torch.randn(4, 3, 2)
        for _ in range(2):
            torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))
            linear.weight = nn.Parameter(torch.randn(2, 2))
        torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))
        linear = nn.Linear(2, 2)
        torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))

    def test_training_and_eval(self) -> None:
        dropout, cell = nn.Dropout(0.5), nn.GRUCell(2, 2)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return dropout(cell(x, h)), h

        h, x = torch.randn(3, 2), torch.randn(4, 3, 2)
        for mode in (True, False, True):
            dropout.train(mode)
            torch.manual_seed(0)
            ours = last(step, h, x)
            torch.manual_seed(0)
            torch.testing.assert_close(ours, by_hand(step, h, x))

    def test_methods_attributes_and_configuration(self) -> None:
        class Cell(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.Linear(2, 2)
                self.options = {"gain": 1.0, "shifts": [0.0, 1.0]}
                self.activation = torch.tanh

            def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return self.helper(h) + x + self.options["shifts"][1], h

            def helper(self, h: Tensor) -> Tensor:
                return self.activation(self.inner(h)) * self.options["gain"]

        cell = Cell()
        h, x = torch.randn(3, 2), torch.randn(4, 3, 2)
        for change in (
            lambda: None,
            lambda: cell.options.update(gain=2.0),
            lambda: cell.options["shifts"].__setitem__(1, 5.0),
            lambda: setattr(cell, "activation", torch.sigmoid),
            lambda: setattr(cell, "helper", lambda h: h * 3),
            lambda: setattr(cell, "inner", nn.Identity()),
        ):
            change()
            torch.testing.assert_close(last(cell.step, h, x), by_hand(cell.step, h, x))

    def test_partials_callables_and_defaults(self) -> None:
        class Step:
            def __init__(self, gain: float) -> None:
                self.gain = gain

            def __call__(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return h * self.gain + x, h

        def scaled(gain: float, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h * gain + x, h

        h, x = torch.ones(2), torch.ones(3, 2)
        for gain, expected in [(2.0, 15.0), (3.0, 40.0), (2.0, 15.0)]:
            for step in (Step(gain), functools.partial(scaled, gain), lambda h, x, g=gain: (h * g + x, h)):
                assert last(step, h, x)[0] == expected

    def test_autocast_is_part_of_the_key(self) -> None:
        linear = nn.Linear(8, 8)
        x, h = torch.randn(3, 4, 8), torch.randn(4, 8)
        step = lambda h, x: (h, linear(h) + x)  # noqa: E731
        assert weft.scan(step, h, x)[1].dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            exact = weft.scan(lambda h, x: (h, linear(h)), h, x)[1]
        assert exact.dtype == torch.bfloat16

    def test_capturing_keeps_nothing_alive(self) -> None:
        def run() -> weakref.ref[nn.Linear]:
            linear = nn.Linear(2, 2)
            weft.scan(lambda h, x: (linear(h), h), torch.ones(3, 2), torch.ones(2, 3, 2))
            return weakref.ref(linear)

        gone = run()
        gc.collect()
        assert gone() is None

    def test_threads(self) -> None:
        cell = nn.GRUCell(3, 4)
        x, h = torch.randn(6, 2, 3), torch.randn(2, 4)
        expected = by_hand(lambda h, x: (cell(x, h), h), h, x)
        failures = []

        def work() -> None:
            try:
                for _ in range(10):
                    torch.testing.assert_close(last(lambda h, x: (cell(x, h), h), h, x), expected)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_properties_are_read_through(self, traces: list[str]) -> None:
        class Cell(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.raw, self.gain = nn.Parameter(torch.randn(2, 2)), 1.0

            @property
            def weight(self) -> Tensor:
                return torch.tanh(self.raw) * self.gain

            def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return h @ self.weight + x, h

        cell, h, x = Cell(), torch.randn(3, 2), torch.randn(4, 3, 2)
        torch.testing.assert_close(last(cell.step, h, x), by_hand(cell.step, h, x))
        last(cell.step, h, x)
        assert len(traces) == 1
        cell.gain = 0.5
        torch.testing.assert_close(last(cell.step, h, x), by_hand(cell.step, h, x))

    def test_a_tensor_that_no_variable_names(self, traces: list[str]) -> None:
        class Hidden:
            __slots__ = ("tensor",)

            def __init__(self, tensor: Tensor) -> None:
                self.tensor = tensor

            def __getattr__(self, name: str) -> Tensor:
                if name != "anything":
                    raise AttributeError(name)
                return self.tensor

        hidden = [Hidden(torch.full((2,), 2.0))]

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h * hidden[0].anything + x, h

        assert last(step, torch.ones(2), torch.ones(3, 2))[0] == 15.0
        hidden[0].tensor = torch.full((2,), 3.0)
        assert last(step, torch.ones(2), torch.ones(3, 2))[0] == 40.0
        assert len(traces) <= 1

    def test_what_is_not_supported_is_not_tried_again(self, traces: list[str]) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h + torch.nonzero(x).sum() + x, h

        for _ in range(3):
            weft.reset_stats()
            torch.testing.assert_close(
                last(step, torch.ones(2), torch.ones(3, 2)), by_hand(step, torch.ones(2), torch.ones(3, 2))
            )
            assert sum(weft.stats()["fallbacks"].values()) == 1
        assert not traces

    def test_what_a_step_does_from_some_size_on(self) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            first = x[:50].sum(0) + x[: x.shape[0] // 8].sum(0)
            return torch.tanh(h + first), h

        for batch in (4, 60, 30, 7, 64, 129):
            h, x = torch.randn(batch, 2), torch.randn(3, batch, 2)
            torch.testing.assert_close(last(step, h, x), by_hand(step, h, x))


def test_executables_are_freed_and_compiled_again() -> None:
    code = """
import torch, weft
h, xs = torch.zeros(3, 4), torch.randn(5, 3, 4)
for n in [*range(12), *range(12)]:
    def step(h, x):
        for _ in range(n):
            h = torch.tanh(h + x)
        return h * 0.5 + x, h
    got, want = weft.scan(step, h, xs)[0], h
    for x in xs:
        want, _ = step(want, x)
    torch.testing.assert_close(got, want)
kept = weft.stats()["captured"]
assert kept["programs"] == 12 and kept["executables"] <= 4, kept
assert weft.stats()["compiled"] == 24, weft.stats()
"""
    subprocess.run([warm_python.command(), "-c", code], check=True, env=os.environ | {"WEFT_EXECUTABLES": "4"})


def test_autocast_sees_what_a_step_computes() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = h @ x.mT  # of recorded tensors alone
        return (scores @ x).float() * 0.1, scores

    h, xs = torch.randn(3, 4), torch.randn(5, 6, 4)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = weft.scan(step, h, xs), by_hand(step, h, xs)
        scores = step(h, xs[0])[1]
    assert ours[1].dtype == scores.dtype == torch.bfloat16
    torch.testing.assert_close(ours[1][0], scores, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(ours[0], theirs, rtol=5e-2, atol=5e-2)


def test_the_first_step_does_not_wait_for_dynamo() -> None:
    """PyTorch's Meta kernels in Python import it, which takes one to two seconds."""
    script = """
import sys, torch, weft
import torch.nn.functional as F
cell, norm = torch.nn.GRUCell(8, 8), torch.nn.LayerNorm(8)
def step(h, x):
    h = norm(cell(x, h))
    z = torch.sigmoid(h) * F.gelu(x) + F.silu(h).clamp(-1, 1) - h.std(-1, keepdim=True) + F.group_norm(h, 2)
    y = torch.cat([h.softmax(-1), x.abs().sqrt() ** 2 + z.logsumexp(-1, True)])
    return torch.where(z > 0, z, h.exp().log1p()), y
weft.scan(step, torch.zeros(3, 8), torch.randn(5, 3, 8))
assert not weft.stats()["fallbacks"], weft.stats()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([warm_python.command(), "-c", script], check=True, timeout=300)
