"""Loops that a program writes in Python: under the backend they are scans, and compute and train as in eager mode."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from roll_cases import (
    NOT_ROLLED,
    ROLLED,
    B,
    H,
    I,
    Loop,
    T,
    backwards,
    bidirectional,
    counter,
    custom_cell,
    gru_cell,
    layers_one_after_the_other,
    zeros,
)
from torch import Tensor, fx, nn

import weft
from weft import backend
from weft._dynamo.rolling.roll import roll


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    backend.stats.not_rolled.clear()
    yield
    torch._dynamo.reset()


def leaves(result: Any) -> list[Tensor]:
    return torch.utils._pytree.tree_leaves(result)


def loss_of(result: Any) -> Tensor:
    """A loss that depends on all results, on each in another way."""
    return sum((leaf * torch.linspace(0.5, 1.5, leaf.numel()).view(leaf.shape)).sum() for leaf in leaves(result))


@pytest.mark.parametrize("body", ROLLED, ids=lambda body: body.__name__)
def test_a_loop_is_a_scan_and_trains_as_in_eager_mode(body: Callable[[Any, Tensor], Any]) -> None:
    eager = Loop(body)
    rolled = copy.deepcopy(eager)
    compiled = torch.compile(rolled, backend="weft", fullgraph=True)
    before = backend.stats.rolled
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (eager, rolled)]
    for _ in range(3):
        x = torch.randn(T, B, I)
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        results = [eager(inputs[0]), compiled(inputs[1])]
        torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
        for optimiser, result in zip(optimisers, results, strict=True):
            optimiser.zero_grad()
            loss_of(result).backward()
            optimiser.step()
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-4, atol=1e-5)
    assert backend.stats.rolled > before
    assert not backend.stats.not_rolled
    for (name, a), b in zip(rolled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("body", NOT_ROLLED, ids=lambda body: body.__name__)
def test_what_is_no_loop_stays_as_it_is(body: Callable[[Any, Tensor], Any]) -> None:
    model, x, before = Loop(body), torch.randn(T, B, I), backend.stats.rolled
    result = torch.compile(model, backend="weft", fullgraph=True)(x)
    torch.testing.assert_close(result, model(x), rtol=1e-5, atol=1e-5)
    assert backend.stats.rolled == before


def test_the_option_turns_it_off() -> None:
    model, x, before = Loop(gru_cell), torch.randn(T, B, I), backend.stats.rolled
    result = torch.compile(model, backend="weft", options={"roll": False})(x)
    torch.testing.assert_close(result, model(x), rtol=1e-5, atol=1e-5)
    assert backend.stats.rolled == before
    torch._dynamo.reset()
    torch.compile(model, backend="weft", options={"roll": True})(x)
    assert backend.stats.rolled > before


def dropped(m: Loop, x: Tensor) -> Any:
    h, outs = zeros(m, x), []
    for t in range(x.shape[0]):
        h = nn.functional.dropout(m.gru(x[t], h), 0.4)
        outs.append(h)
    return torch.stack(outs)


def test_random_numbers_are_those_that_the_loop_draws() -> None:
    model, x, before = Loop(dropped), torch.randn(T, B, I), backend.stats.rolled
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    results = []
    for run in (model, compiled):
        torch.manual_seed(3)
        result = run(x)
        results.append((result, torch.autograd.grad(loss_of(result), model.gru.weight_hh)[0], torch.rand(())))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
    assert backend.stats.rolled > before


def test_the_loops_of_a_decomposition() -> None:
    gru, x, before = nn.GRU(I, H, num_layers=2, bidirectional=True), torch.randn(T, B, I), backend.stats.rolled
    with weft.disabled():
        exported = torch.export.export(gru, (x,)).run_decompositions().module()
    result = torch.compile(exported, backend="weft")(x)
    torch.testing.assert_close(result, gru(x), rtol=1e-5, atol=1e-5)
    assert backend.stats.rolled == before + 4


def programs_of(model: nn.Module, x: Tensor) -> list[str]:
    """The programs in the graph that AOTAutograd gets."""
    programs: list[str] = []

    def record(graph_module: fx.GraphModule, _: Any) -> Any:
        roll(graph_module.graph)
        programs.extend(node.args[0] for node in graph_module.graph.nodes if node.target is torch.ops.weft.call.default)
        graph_module.recompile()
        return graph_module

    torch._dynamo.reset()
    torch.compile(model, backend=record)(x)
    return programs


@pytest.mark.parametrize("body", [custom_cell, backwards, bidirectional, layers_one_after_the_other, counter])
def test_the_program_is_no_longer_for_a_longer_loop(body: Callable[[Any, Tensor], Any]) -> None:
    """Work after tracing takes no longer for a longer loop either."""
    model = Loop(body)
    short, long = (programs_of(model, torch.randn(steps, B, I)) for steps in (11, 13))
    assert len(short) == 1
    assert re.sub(r"(?<!%)\b11\b", "T", short[0]) == re.sub(r"(?<!%)\b13\b", "T", long[0])


def test_gradients_in_double_precision() -> None:
    model = Loop(custom_cell).double()
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    x = torch.randn(4, 2, I, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compiled, (x,))


def test_another_length_is_another_graph_but_no_other_result() -> None:
    model = Loop(gru_cell)
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    for length in (6, 9, 4, 9):
        x = torch.randn(length, B, I)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_batch_size_that_is_a_symbol() -> None:
    model, before = Loop(gru_cell), backend.stats.rolled
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    for batch in (3, 5, 8):
        x = torch.randn(T, batch, I)
        torch._dynamo.mark_dynamic(x, 1)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert backend.stats.rolled == before + 1
