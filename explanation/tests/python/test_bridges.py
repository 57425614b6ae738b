"""Breaks whose value is needed: the statement as an operator, marks taken away, loops in functions of their own."""

from __future__ import annotations

import ast
import zlib
from typing import Any

import pytest
import torch
from torch import nn

import weft
from weft.explanation._changes import bridges
from weft.explanation._changes.regions import region_at
from weft.explanation._report.records import Action, Subject


def explain(function: Any, *args: Any, **options: Any) -> Subject:
    """Quickly, since nothing here is about times."""
    results = weft.explain(
        function, *args, **{"backend": "eager", "seconds": 0.2, "rounds": 3, "hlo": False} | options
    ).results
    return results.subjects[0]


def only_action(subject: Subject) -> Action:
    action, *more = [each for each in subject.actions if each.kind != "device"]
    assert not more, [(each.title, each.breaks, each.outcome) for each in (action, *more)]
    return action


def checksum(x: torch.Tensor) -> int:
    return zlib.crc32(x.detach().numpy().tobytes()) % 7


@torch.compiler.disable
def left_alone(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(1))

    @torch.compiler.disable
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        x = self.method(x)
        return torch.tanh(x)


def test_a_statement_becomes_an_operator() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        n = torch.tensor([zlib.crc32(row.numpy().tobytes()) % 7 for row in y.detach()]) * 0.5
        return torch.tanh(y + n[:, None])

    action = only_action(explain(step, torch.randn(3, 4)))
    assert (action.kind, action.tried, action.graphs, action.title) == ("bridge", True, 1, bridges.OPERATOR)
    assert action.gain is not None
    for line in (
        '+@torch.library.custom_op("test_bridges::region_',
        "(y: torch.Tensor) -> torch.Tensor:",
        "y.new_empty((3,), dtype=torch.float32)",
        "+        n = _region_",
    ):
        assert line in action.change, action.change


def test_a_gradient_through_it_is_no_operators() -> None:
    """An operator has no derivative: the break stays, with an estimate that is marked as one."""
    linear = nn.Linear(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = linear(x)
        y = y * (2 + checksum(x))
        return torch.tanh(y)

    subject = explain(step, torch.randn(3, 4), train=True)
    bridged = [action for action in subject.actions if action.title == bridges.OPERATOR]
    for action in subject.actions:
        assert action.tried or action.kind == "advice"
    assert not bridged or "-        y = y *" not in bridged[0].change


def test_results_whose_sizes_change_are_no_operators() -> None:
    calls = []

    def varying(x: torch.Tensor) -> torch.Tensor:
        calls.append(checksum(x))
        return x[: 1 + len(calls) % 2].sum()[None].expand(1 + len(calls) % 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = varying(x)
        return x.sum() + y.sum()

    text = "def step(x):\n    y = varying(x)\n    return x.sum() + y.sum()\n"
    region = region_at(ast.parse(text), 2)
    assert region is not None and (region.parameters, region.results) == (["x"], ["y"])
    seen = bridges.Seen()
    for _ in range(2):
        seen.watching(varying)(torch.ones(3))
    with pytest.raises(ValueError, match="change from call to call"):
        bridges.operator_text(region, seen, "program")
    assert step(torch.ones(3)).shape == ()


@pytest.mark.parametrize("name", ["function", "method"])
def test_a_mark_is_taken_away(name: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(left_alone(torch.relu(x)))

    subject = explain(Model() if name == "method" else step, torch.randn(3, 4))
    action = only_action(subject)
    assert (action.kind, action.tried, action.graphs) == ("rewrite", True, 1)
    assert "-    @torch.compiler.disable\n" in action.change.replace("-@", "-    @")
    assert left_alone._torchdynamo_disable and Model.method._torchdynamo_disable, "put back"


def test_a_loop_that_cannot_be_compiled_leaves_what_is_around_it() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x) + 1
        for i in range(3):
            x = torch.sin(x) + i
            if float(x.sum()) > 1e9:
                break
        return torch.tanh(x) * 2

    subject = explain(step, torch.randn(3, 4))
    assert len(subject.graphs) == 0, "the whole function is left to Python"
    action = only_action(subject)
    assert action.title in (bridges.BOUNDARY, bridges.DEVICE) and action.kind == "bridge"
    assert (action.tried, action.graphs) == (True, 2)
    assert "+@torch.compiler.disable\n+def _region_" in action.change


# Regions


@pytest.mark.parametrize(
    ("code", "line", "loop", "expected"),
    [
        ("def f(x, n):\n    y = g(x)\n    return y\n", 2, False, "y = R(x)"),
        ("def f(x, n):\n    x += g(n)\n    return x\n", 2, False, "x = R(n, x)"),
        ("def f(x):\n    return g(x)\n", 2, False, "return R(x)"),
        ("def f(x):\n    a, b = g(x)\n    return a + b\n", 2, False, "a, b = R(x)"),
        ("def f(x):\n    if g(x):\n        x = x + 1\n    return x\n", 2, False, "x = R(x)"),
        ("def f(x):\n    g([y for y in x])\n    return x\n", 2, False, "R(x)"),
        ("def f(x):\n    for i in x:\n        y = i\n        if g(y):\n            break\n    return y\n", 4, True,
         "y = R(x)"),
        ("def f(x):\n    def h(y):\n        z = g(x, y)\n        return z\n    return h(x)\n", 3, False, "z = R(x, y)"),
    ],
)  # fmt: skip
def test_what_a_region_takes_and_gives(code: str, line: int, loop: bool, expected: str) -> None:
    region = region_at(ast.parse(code), line, loop)
    assert region is not None
    assert ast.unparse(ast.fix_missing_locations(region.call())).replace(region.name, "R") == expected


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f(x):\n    for i in x:\n        if g(i):\n            break\n", 3),
        ("def f(x):\n    if g(x):\n        return 1\n    return 2\n", 2),
        ("def f(x):\n    y = yield g(x)\n", 2),
        ("def f(x):\n    y = super().f(x)\n    return y\n", 2),
        ("async def f(x):\n    y = g(x)\n    return y\n", 2),
        ("y = g(x)\n", 1),
    ],
)
def test_what_cannot_leave_its_place(code: str, line: int) -> None:
    assert region_at(ast.parse(code), line) is None


def test_attributes_of_self_become_parameters() -> None:
    code = "class M:\n    def f(self, x):\n        y = g(self.a.b.c(x), self.scale)\n        return y\n"
    region = region_at(ast.parse(code), 3, lift=True)
    assert region is not None and region.parameters == ["x", "self_a_b", "self_scale"]
    assert [ast.unparse(each) for each in region.arguments] == ["x", "self.a.b", "self.scale"]
