"""Steps that call what torch.compile made, or PyTorch's control flow, which calls torch.compile in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import loop
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map

import weft

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def compiled(w: Tensor, backend: str) -> Step:
    cell = torch.compile(lambda h, x: torch.tanh(h @ w + x), backend=backend, fullgraph=True)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = cell(h, x)
        return h, h * 2

    return step


def chosen(w: Tensor) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.cond(x.sum() > 0, lambda h, x: torch.tanh(h @ w + x), lambda h, x: h - x, (h, x))
        return h, h * 2

    return step


def mapped(w: Tensor) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch_map(lambda row: torch.tanh(row @ w), h + x)
        return h, h * 2

    return step


STEPS: dict[str, Callable[[Tensor], Step]] = {
    "eager": lambda w: compiled(w, "eager"),
    "aot_eager": lambda w: compiled(w, "aot_eager"),
    "weft": lambda w: compiled(w, "weft"),
    "cond": chosen,
    "map": mapped,
}


def outcome(run: Callable[..., Any], make: Callable[[Tensor], Step], leaves: list[Tensor]) -> list[Tensor]:
    w, h, xs = (leaf.clone().requires_grad_() for leaf in leaves)
    last, ys = run(make(w), h, xs)
    (last.sum() + (ys * ys).sum()).backward()
    return [last, ys, *(leaf.grad for leaf in (w, h, xs) if leaf.grad is not None)]


@pytest.mark.parametrize("name", STEPS)
def test_it_is_part_of_the_program(name: str) -> None:
    leaves = [torch.randn(shape, dtype=torch.float64) for shape in ((4, 4), (3, 4), (6, 3, 4))]
    want = outcome(loop, STEPS[name], leaves)
    weft.reset_stats()
    for _ in range(2):
        for a, b in zip(outcome(weft.scan, STEPS[name], leaves), want, strict=True):
            torch.testing.assert_close(a, b)
    assert not weft.stats()["fallbacks"]


def test_a_compiled_module() -> None:
    cell, h, xs = nn.GRUCell(5, 4), torch.randn(3, 4), torch.randn(6, 3, 5)
    compiled_cell = torch.compile(cell, backend="eager")
    weft.reset_stats()
    _, ys = weft.scan(lambda h, x: (compiled_cell(x, h),) * 2, h, xs)
    assert not weft.stats()["fallbacks"]
    torch.testing.assert_close(ys, loop(lambda h, x: (cell(x, h),) * 2, h, xs)[1])


@pytest.mark.parametrize("name", ["compiled", "cond"])
def test_what_it_reads_may_change_from_call_to_call(name: str) -> None:
    factor, h, xs = 2.0, torch.randn(3, 4), torch.randn(6, 3, 4)

    def scaled(h: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(h * factor + x)

    by_dynamo = torch.compile(scaled, backend="eager")

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = by_dynamo(h, x) if name == "compiled" else torch.cond(x.sum() > 0, scaled, lambda h, x: h - x, (h, x))
        return h, h * 1

    for factor in (2.0, 3.0, 3.0, 0.5):  # noqa: B007  the functions read it
        torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))


def test_outside_of_a_recording_it_is_compiled() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    cell = torch.compile(lambda h, x: torch.tanh(h + x), backend=backend)
    weft.scan(lambda h, x: (cell(h, x), h), torch.zeros(3), torch.ones(5, 3))
    assert not graphs
    cell(torch.zeros(3), torch.ones(3))
    assert len(graphs) == 1
