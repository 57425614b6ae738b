"""Programs as StableHLO, run by jaxlib's CPU client, against the same programs run by Weft."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rnn_cases import KINDS, make
from torch import Tensor
from torch.utils import _pytree as pytree

import weft

pytest.importorskip("jaxlib")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from cells.zoo import CELLS, Size


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative to the largest entry; dtype and shape must agree, and whole numbers be equal."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    scale = expected.abs().max().item() if expected.numel() else 0.0
    return (found.double() - expected.double()).abs().max().item() / (scale or 1.0) if expected.numel() else 0.0


def check_module(function: Callable[..., Any], *arguments: Any, bound: float) -> None:
    """Results and the gradients of what requires grad, by XLA and by PyTorch with Weft's kernels."""
    hlo = weft.stablehlo(function, *arguments, gradients=True)
    outputs = pytree.tree_leaves(function(*arguments))
    cotangents = [torch.randn_like(v) if v.is_floating_point() else torch.zeros_like(v) for v in outputs]
    found = hlo.compile()([*hlo.inputs, *cotangents])
    smooth = [i for i, value in enumerate(outputs) if value.is_floating_point()]
    wanted = [hlo.inputs[i] for i in hlo.gradients]
    gradients = torch.autograd.grad(
        [outputs[i] for i in smooth], wanted, [cotangents[i] for i in smooth], allow_unused=True, materialize_grads=True
    )
    expected = [*(value.detach() for value in outputs), *gradients]
    assert len(found) == len(expected)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert distance(one, other) <= bound, f"result {i}"


@pytest.mark.parametrize("name", CELLS)
def test_cell(name: str) -> None:
    torch.manual_seed(3)
    example = CELLS[name](Size(5, 3, 6)).to(torch.float64)
    if example.module is not None:
        example.module.eval()
    example = example.mapped(lambda value: value.detach().requires_grad_())
    keys = list(example.inputs)
    check_module(lambda *a: example.function(**dict(zip(keys, a, strict=True))), *example.inputs.values(), bound=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_module(kind: str) -> None:
    torch.manual_seed(4)
    case = make(kind, layers=2, bidirectional=True, dtype=torch.float64)
    assert case.h0 is not None
    check_module(case.module, case.x, case.h0, bound=1e-12)
