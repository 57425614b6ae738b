"""Loops of benchmarks/loops under the backend: scans, with eager mode's numbers and gradients; and messages about loops
that stay."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft import backend
from weft._dynamo.rolling.not_rolled import _difference
from weft._dynamo.rolling.stretches import form_of

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from loops.corpus import INPUT, LOOPS

B, T = 3, 6
#: One loop for each way to write it, and every loop with something special.
CHOSEN = (
    "peephole, buffer", "selective ssm, growing cat", "mgu, unbind and zip", "sru, while counter", "spikes, buffer",
    "conv lstm, list and stack", "stacked module list", "masked", "dict state", "in place gates", "recurrent dropout",
    "noisy weights", "running statistics", "decayed gru", "autoregressive", "time embedding", "teacher forcing",
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    weft.reset_stats()
    yield
    torch._dynamo.reset()


def results(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """The result, gradients, buffers, and the next random numbers."""
    torch.manual_seed(1)
    model.zero_grad()
    given = x.clone().requires_grad_()
    result = model(given)
    (result * torch.linspace(0.5, 1.5, result.numel()).view(result.shape)).sum().backward()
    found = {"result": result, "x": given.grad, "next": torch.rand(())}
    found |= {name: parameter.grad for name, parameter in model.named_parameters()}
    found |= dict(model.named_buffers())
    return {name.removeprefix("_orig_mod."): value for name, value in found.items()}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_loop_is_a_scan_at_the_first_length_and_at_the_second(name: str) -> None:
    eager = LOOPS[name]()
    compiled = torch.compile(copy.deepcopy(eager), backend="weft", fullgraph=True)
    for steps in (T, T + 2):  # at the second length Dynamo has made it a symbol
        before = backend.stats.rolled
        x = torch.randn(B, steps, INPUT)
        expected, found = results(eager, x), results(compiled, x)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}")
            assert value is None or found[key].requires_grad == value.requires_grad, key
        assert backend.stats.rolled > before
    assert weft.stats()["backend"]["not_rolled"] == {}


class Spectral(nn.Module):
    """Each step has an FFT, for which the IR has no operation."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, h: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            h = self.cell(h)
            h = torch.tanh(h + torch.fft.fft(h).abs())
        return h


@pytest.mark.parametrize("steps", [8, 9])
def test_a_loop_that_is_not_rolled_is_said(steps: int) -> None:
    model, h = Spectral(), torch.randn(4, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = torch.compile(model, backend="weft")(h, steps)
    torch.testing.assert_close(result, model(h, steps), rtol=1e-3, atol=1e-4)
    ((place, reasons),) = weft.stats()["backend"]["not_rolled"].items()
    assert place.startswith("test_loop_corpus.py:") and list(reasons.values()) == [steps]
    assert f"{place}: " in str(weft.stats())
    told = [warning for warning in caught if issubclass(warning.category, weft.FallbackWarning)]
    assert len(told) == (steps > 8)
    if told:
        assert Path(told[0].filename).name == "test_loop_corpus.py" and f"{steps} like steps" in str(told[0].message)


def _stabiliser(x: Tensor, h: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    if torch.all(n == 0):  # as in xlstm's sLSTM
        h = x
    return torch.tanh(torch.maximum(x, h)), n + 1


def _asked_in_a_step(x: Tensor) -> Tensor:
    h = n = torch.zeros(4)
    for t in range(x.shape[0]):
        h, n = _stabiliser(x[t], h, n)
    return h


def _asked_later(x: Tensor) -> Tensor:
    h = torch.zeros(4)
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] + h)
        if t > 1:
            h = h * float(h.sum())
    return h


def _asked_of_a_list(x: Tensor) -> Tensor:
    h = torch.zeros(4)
    steps = [(row, t == 2) for t, row in enumerate(x.unbind(0))]
    for row, asks in steps:
        h = torch.tanh(row + h)
        if asks:
            h = h * float(h.sum())
    return h


def _asked_once(x: Tensor) -> Tensor:
    h = torch.zeros(4)
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] + h)
    return h if h.sum() > 0 else -h


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (_asked_in_a_step, "the step at 0 of its range asks Python for the value of a tensor (`if torch.all(n == 0):"),
        (_asked_later, "the step at 2 of its range asks Python for the value of a tensor (`h = h * float(h.sum())`)"),
        (_asked_of_a_list, "step 3 asks Python for the value of a tensor (`h = h * float(h.sum())`)"),
        (_asked_once, ""),
    ],
)
def test_a_loop_that_dynamo_gives_up_is_said(loop: Callable[[Tensor], Tensor], told: str) -> None:
    x = torch.randn(6, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.testing.assert_close(torch.compile(loop, backend="weft")(x), loop(x))
        torch.testing.assert_close(torch.compile(loop, backend="eager")(x + 1), loop(x + 1))
    messages = [str(each.message) for each in caught if issubclass(each.category, weft.FallbackWarning)]
    left = weft.stats()["backend"]["not_rolled"]
    assert len(messages) == len(left) == (told != "")
    if told:
        ((place, reasons),) = left.items()
        assert told in next(iter(reasons)) and told in messages[0] and "torch.where" in messages[0]
        assert place.startswith("test_loop_corpus.py:")
    else:
        assert weft.stats()["backend"]["rolled"] == 1


def _two_ways(x: Tensor) -> Tensor:
    x = torch.cos(torch.tanh(x))
    return torch.sort(torch.cos(torch.relu(x)))[0]


def test_what_differs_in_a_step_is_said() -> None:
    """It says what the step does, and what most steps do instead."""
    graphs: list[Any] = []

    def keep(module: Any, _: Any) -> Any:
        graphs.append(module)
        return module

    torch.compile(_two_ways, backend=keep)(torch.randn(8))
    tanh, cos, relu, other_cos, sort, *_ = (node for node in graphs[0].graph.nodes if node.op.startswith("call"))
    for step, usual, said in (
        ([relu, other_cos], [tanh, cos], "it does relu instead of tanh"),
        ([relu, other_cos, sort], [relu, cos], "it does sort besides"),
        ([tanh], [tanh, cos], "it does no cos"),
    ):
        forms = [tuple(map(form_of, nodes)) for nodes in (step, usual)]
        place, reason = _difference(5, step, *forms, usual)
        assert reason == f"step 5 does something else than most: {said}"
        assert place.file.endswith("test_loop_corpus.py")


def test_layers_with_weights_of_their_own_are_no_loop() -> None:
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(12))

    def forward(x: Tensor, mask: Tensor) -> Tensor:
        for layer in layers:
            x = torch.tanh(layer(x) + mask)
        return x

    torch.compile(forward, backend="weft")(torch.randn(3, 4), torch.zeros(4))
    assert weft.stats()["backend"]["not_rolled"] == {}


def test_a_view_that_is_written_to_behind_the_loop_is_still_one() -> None:
    cell = nn.Linear(4, 4)

    def forward(h: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(5):
            h = torch.tanh(cell(h)).view(-1, 4)
        rows = h[:1]
        rows.mul_(2)
        return h, rows

    h = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(forward, backend="weft")(h), forward(h))


def test_an_argument_that_every_step_changes() -> None:
    cell = nn.Linear(4, 4)

    def forward(x: Tensor, memory: Tensor) -> Tensor:
        for t in range(x.shape[0]):
            memory.mul_(0.5).add_(torch.tanh(cell(x[t])))
            memory[:, 1:3] -= 0.1 * memory[:, :2]
        return memory.sum()

    x = torch.randn(T, 3, 4)
    found = []
    for run in (forward, torch.compile(forward, backend="weft")):
        memory = torch.ones(3, 4)
        result = run(x, memory)
        found.append([result, memory.detach(), *torch.autograd.grad(result, list(cell.parameters()))])
    torch.testing.assert_close(found[1], found[0])
    assert backend.stats.rolled > 0


def test_what_autograd_does_not_see_stays_so() -> None:
    weight = nn.Parameter(torch.randn(4, 4))

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        h, trace = x[0], torch.zeros(3, 4)
        for t in range(x.shape[0]):
            h = torch.tanh(h @ weight.T + x[t])
            with torch.no_grad():
                trace = 0.9 * trace + h
        return h, trace

    x = torch.randn(T, 3, 4)
    expected, found = forward(x), torch.compile(forward, backend="weft")(x)
    torch.testing.assert_close(found, expected)
    assert [y.requires_grad for y in found] == [True, False]
