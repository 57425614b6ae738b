"""When two results of a step are the same but for rounding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import tensor

from weft.explanation._measuring.steps import as_near, same

NAN = math.nan


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        (tensor([100.0, 0.001]), tensor([100.0, 0.0]), True),  # in proportion to the largest
        (tensor([100.0, 0.1]), tensor([100.0, 0.0]), False),
        (tensor([1e-3]), tensor([0.0]), False),
        (tensor([NAN, 1.0]), tensor([NAN, 1.0]), True),
        (tensor([math.inf]), tensor([1.0]), False),
        (tensor([1.0]), tensor([1.0, 1.0]), False),
        (tensor([True]), tensor([False]), False),
        (tensor([]), tensor([]), True),
        (1.0, 1.0 + 1e-6, True),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        ([1.0], [1.0, 2.0], False),
    ],
)
def test_results_are_the_same_in_proportion(left: Any, right: Any, is_same: bool) -> None:
    assert same(left, right) is is_same


def test_a_result_may_be_as_far_from_the_exact_one_as_the_reference_is() -> None:
    exact = torch.linspace(-1, 1, 50, dtype=torch.float64)
    reference = (exact + 0.003).float()
    assert as_near([exact + 0.02], [reference], [exact])
    assert not as_near([exact + 0.05], [reference], [exact]), "more than ten times as far"
    assert not as_near([exact + 0.02, exact + 0.02], [reference, exact], [exact, exact]), "each tensor by itself"
    assert not as_near([exact + 0.1], [exact + 0.1], [exact]), "the reference is no such result: it draws other numbers"
    noise = exact * 1e-6  # of a gradient that is 0
    assert as_near([exact, noise * 3], [exact, noise], [exact, 0 * exact])
    assert not as_near([exact, noise * 30], [exact, noise], [exact, 0 * exact])
    assert not as_near([exact * NAN], [reference], [exact])
    assert not as_near([exact[:-1]], [reference], [exact]) and not as_near([], [reference], [exact])
