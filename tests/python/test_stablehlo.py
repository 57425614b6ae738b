"""Programs as StableHLO, run by jaxlib's CPU client, against the same programs run by Weft."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rnn_cases import KINDS, make
from stablehlo_cases import GROUPS, Case
from torch import Tensor
from torch.utils import _pytree as pytree

import weft
from weft import _C
from weft._stablehlo.xla import Executable

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


#: Of dtypes: how far XLA's functions are from PyTorch's, relative to the number.
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 5e-6, torch.float64: 1e-13}


def run_plainly(case: Case) -> list[Tensor]:
    """By XLA, as the program is written: no pass has simplified an op away."""
    text = _C.write_stablehlo(case.text, [list(tensor.shape) for tensor in case.inputs], None, False)
    return Executable(text, "cpu")(case.inputs)


@pytest.mark.parametrize("group", GROUPS)
def test_ops(group: str) -> None:
    torch.manual_seed(5)
    for case in GROUPS[group]():
        found, expected = run_plainly(case), weft.call(case.text, case.inputs)
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            bound = BOUNDS.get(other.dtype, 0.0)
            name = lambda text, case=case, i=i: f"{case.name}, result {i}: {text}"  # noqa: E731
            torch.testing.assert_close(one, other, rtol=bound, atol=bound / 100, equal_nan=True, msg=name)


def test_every_op_with_a_lowering_has_a_case() -> None:
    texts = "\n".join(case.text for group in GROUPS.values() for case in group())
    present = set(re.findall(r"= (\w+)", texts))
    assert {op for op, becomes in _C.stablehlo_ops() if becomes} - present == {"extern"}
