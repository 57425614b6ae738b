"""Scans whose columns are shared by more threads than there are cores give the bits that one thread gives.

WEFT_RANDOM_STEPS says how many random relatives of the gate are tried (24)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from threads_cases import (
    assert_same_on_all_teams,
    check_gate,
    check_relatives,
    gate,
    is_the_same_on_all_teams_in_pytorch,
    relative,
    threads,
)
from torch import nn

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.python_loop import python_loop
from cells.zoo import CELLS, Size

RELATIVES = int(os.environ.get("WEFT_RANDOM_STEPS", "24"))


@pytest.mark.parametrize("training", [False, True])
def test_the_gate(training: bool) -> None:
    check_gate(1000 if training else 5000, training)


def test_the_gate_is_the_loop() -> None:
    xs, h0 = torch.randn(300, 3, 256), torch.randn(3, 256)
    with threads(3):
        found = weft.scan(gate, h0, xs)
    for ours, theirs in zip(found, python_loop(gate, h0, xs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("part", range(4))
def test_relatives_of_the_gate(part: int) -> None:
    check_relatives(part * RELATIVES // 4, (part + 1) * RELATIVES // 4, 400)


@pytest.mark.parametrize(("contention", "stream"), [("0", "1"), ("4", "0")])
def test_threads_that_drift_apart(contention: str, stream: str, run_warm_python: Callable[..., str]) -> None:
    """They also store past the caches, and part within a scan, where others use the cores."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from threads_cases import check_gate, check_relatives\n"
        "check_gate(500, False); check_gate(200, True); check_relatives(0, 8, 150); print('done')"
    )
    settings = {"WEFT_CONTENTION": contention, "WEFT_STREAM": stream, "WEFT_SHARE_ALL": "1", "WEFT_DELAYS": "1"}
    assert run_warm_python(script, **settings).strip() == "done"


@pytest.mark.parametrize(("delays", "choice"), [("0", ""), ("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")])
def test_both_ways(run_warm_python: Callable[..., str], delays: str, choice: str) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from threads_cases import check_both_ways\ncheck_both_ways({20 if delays == '1' else 60}); print('done')"
    )
    assert run_warm_python(script, WEFT_DELAYS=delays, WEFT_SIDE_BY_SIDE=choice).strip() == "done"


class Scanned(nn.Module):
    """A layer of a relative of the gate between two of PyTorch's own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.step = relative(seed)
        self.before, self.after = nn.Linear(8, 256), nn.Linear(256, 8)

    def forward(self, xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = self.before(xs)
        (h, s), ys = weft.scan(self.step, (torch.zeros_like(rows[0]), rows[0].mean(-1)), rows)
        return (self.after(h), s, *ys)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", [1, 3])
def test_compiled(seed: int, training: bool) -> None:
    # The threads of the layers around it are PyTorch's business: what they compute may differ in the last bit.
    torch._dynamo.reset()
    torch.manual_seed(seed)
    model, xs = Scanned(seed), torch.randn(400, 3, 8)
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    results = []
    for function, count in ((model, 1), (compiled, 1), (compiled, 2), (compiled, 3), (compiled, 7)):
        with threads(count):
            model.zero_grad()
            outputs = function(xs)
            found = [value.detach() for value in outputs]
            if training:
                sum(value.square().mean() for value in outputs).backward()
                found += [parameter.grad.clone() for parameter in model.parameters()]
            results.append(found)
    for found in results[1:]:
        for ours, theirs in zip(found, results[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", CELLS)
def test_the_cells(name: str) -> None:
    torch.manual_seed(1)
    example = CELLS[name](Size(steps=60, batch=2, width=96, image=4))
    if example.module is not None:
        example.module.eval()
    wanted = list(example.inputs)

    def call(*leaves: torch.Tensor) -> object:
        return example.function(**dict(zip(wanted, leaves, strict=True)))

    if any(not isinstance(value, torch.Tensor) for value in example.inputs.values()):
        assert_same_on_all_teams(lambda: example(), [], False, name, 1)
        return
    floating = all(value.is_floating_point() for value in example.inputs.values())
    # The layers around the scan are PyTorch's: on some processors its products differ in the last bit by threads.
    exactly = is_the_same_on_all_teams_in_pytorch(call, list(example.inputs.values()))
    assert_same_on_all_teams(call, list(example.inputs.values()), floating, name, 1, exactly=exactly)
