"""The budget of the search for known differences: work that is counted, and what the report says of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import weft
from weft.formats import FormatError


def two(units: int = 5) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.GRU(3, units), nn.GRU(3, units)


def test_a_budget_that_is_enough_leaves_nothing_out() -> None:
    report = weft.verify(*two())
    assert report.budget == 10
    assert [list(each.untried) for each in report.diagnoses] == [[]]
    assert "budget" not in str(report)


def test_what_a_small_budget_leaves_out_is_said_in_every_form(tmp_path: Path) -> None:
    report = weft.verify(*two(), budget=0.02)
    (found,) = report.diagnoses
    assert not found.changes
    assert {each.changes for each in found.untried} <= {1, 2, 3} and found.untried
    for each in found.untried:
        assert 0 < each.left <= each.all and each.names
    text = " ".join(str(report).split())
    assert "the search ended at its budget of 0.02 s; not tried: " in text
    assert f"{found.untried[0].left} of {found.untried[0].all} " in text
    assert "a larger --budget goes on" in text
    assert json.loads(report.json())["diagnoses"][0]["untried"][0]["names"]
    assert "Not tried" in report.html() or "not tried" in report.html()


def test_the_likeliest_come_first() -> None:
    """A budget for a part of the pairs is enough for all single differences."""
    reference, candidate = two()
    candidate.load_state_dict(reference.state_dict())
    with torch.no_grad():
        candidate.bias_hh_l0[2 * 5 :] = 0
    report = weft.verify(reference, candidate, budget=0.05)
    assert [change.name for change in report.diagnoses[0].changes] == ["recurrent_bias"]
    assert all(each.changes > 1 for each in weft.verify(*two(), budget=0.5).diagnoses[0].untried)


def test_the_same_answer_each_time() -> None:
    first, second = (weft.verify(*two(), budget=0.05).diagnoses[0].untried for _ in range(2))
    assert first == second


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf")])
def test_a_budget_is_a_positive_number(budget: float) -> None:
    with pytest.raises(FormatError, match="budget should be a positive number of seconds"):
        weft.verify(*two(), budget=budget)
