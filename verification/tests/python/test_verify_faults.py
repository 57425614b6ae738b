"""`weft.verify` against an implementation that makes mistakes on purpose, and ones that only round otherwise."""

from __future__ import annotations

import collections
import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest
import torch
from agreeing_cases import KINDS, agreeing_pair, changed, joined_biases
from fault_cases import FAULTS, Case, pair_case, random_case

import weft

#: The number of each fault's cases: 26 faults make 520.
SEEDS = 20
AGREEING = 200


def named(case: Case, report) -> bool:
    """Whether the first diagnosis is the fault, or the fault explains as much as the diagnosis."""
    if report.agrees or not report.diagnoses:
        return False
    first = report.diagnoses[0]
    return any([change.name for change in changes] == [case.fault] for changes in (first.changes, *first.also))


def said(report) -> str:
    if report.agrees:
        return "agrees"
    return "; ".join(
        f"{each.scope}: " + (" + ".join(f"{c.name} ({c.detail})" for c in each.changes) or "unexplained")
        for each in report.diagnoses
    )


def check(cases: list[Case], candidate) -> None:
    """At least 95 of 100 faults are named; the failure says how often each fault is not."""
    all_of, missed = collections.Counter(case.fault for case in cases), collections.Counter()
    lines = []
    for case in cases:
        report = weft.verify(case.layers, candidate(case))
        if not named(case, report):
            missed[case.fault] += 1
            lines.append(f"  {case}: {said(report)}")
    rates = [f"{fault} {count - missed[fault]} of {count}" for fault, count in all_of.items() if missed[fault]]
    assert missed.total() <= 0.05 * len(cases), "\n".join([", ".join(rates), *lines])
    assert all(missed[fault] <= all_of[fault] // 2 for fault in all_of), "\n".join([", ".join(rates), *lines])


def test_single_faults_are_found_and_named_in_what_was_recorded() -> None:
    check([random_case(seed, fault) for fault in FAULTS for seed in range(SEEDS)], lambda case: case.trace)


def test_single_faults_are_found_and_named_between_two_models() -> None:
    cases = [random_case(1000 + seed, fault) for fault in FAULTS for seed in range(SEEDS // 2)]
    cases = [case for case in cases if case.model is not None]
    assert len(cases) > 100
    check(cases, lambda case: case.model)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_only_rounds_otherwise_agrees(kind) -> None:
    for seed in range(KINDS.index(kind), AGREEING, len(KINDS)):
        pair = agreeing_pair(seed)
        report = weft.verify(pair.reference, pair.candidate)
        assert report.agrees and not report.diagnoses, f"{pair.name}\n{report}"
        assert report.own_dtype is None or report.own_dtype.agrees, f"{pair.name}\n{report}"


def test_a_bias_that_is_off_by_more_than_its_sums_rounding_differs() -> None:
    """Changes that converters make to biases don't excuse other changes."""
    for seed in range(KINDS.index(joined_biases), 120, len(KINDS)):
        pair = agreeing_pair(seed)
        candidate = [*pair.candidate]
        first = candidate[0].directions[0]
        step = 4 * torch.finfo(first.bias_x.dtype).eps
        bias = first.bias_x.clone()
        bias[0] += step * (1 + bias[0].abs())
        directions = [dataclasses.replace(first, bias_x=bias), *candidate[0].directions[1:]]
        candidate[0] = dataclasses.replace(candidate[0], directions=directions)
        report = weft.verify(pair.reference, candidate, budget=0.1)  # where they differ, not why
        assert not report.agrees and report.first.unit == 0, pair.name


def test_two_faults_at_once_are_named() -> None:
    """Except for pairs where one fault alone explains everything, because the other changes no more than rounding
    does."""
    cases = [case for seed in range(400) if (case := pair_case(seed)) is not None][:50]
    missed = []
    for case, faults in cases:
        report = weft.verify(case.layers, case.trace)
        sets = [changes for each in report.diagnoses[:1] for changes in (each.changes, *each.also)]
        if not any({change.name for change in changes} == faults for changes in sets):
            missed.append(f"  {case}: {said(report)}")
    assert len(cases) == 50 and len(missed) <= 5, "\n".join(missed)


def test_the_sides_may_be_exchanged() -> None:
    """The recording may be the reference."""
    for fault in ("reset_before", "gate_order", "stale_hidden_state", "one_bias"):
        case = random_case(7, fault)
        report = weft.verify(case.trace, case.layers)
        assert named(case, report), f"{case}\n{report}"
        other = weft.verify(case.layers, case.trace)
        assert (report.first.reference, report.first.candidate) == (other.first.candidate, other.first.reference)


def test_other_weights_are_no_known_fault() -> None:
    """A difference that no known difference explains isn't explained."""
    for seed in range(30):
        case = random_case(seed, "reset_before")
        if len(case.layers) > 1:
            continue
        noise = 0.3 if seed % 2 else 0.1
        others = changed(case.layers, lambda value, noise=noise: value + noise * torch.randn(value.shape))
        report = weft.verify(others, dataclasses.replace(case.trace, y=case.right, hn=None, gates={}))
        assert not report.agrees
        assert all(not each.changes for each in report.diagnoses), f"{case}\n{report}"


def test_what_is_found_can_be_written_in_every_form() -> None:
    """With real reports, not those of report_cases.py."""
    schema = json.loads((Path(__file__).resolve().parents[3] / "docs/verify.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for fault in FAULTS:
        case = random_case(3, fault)
        report = weft.verify(case.layers, case.trace)
        written = json.loads(report.json())
        validator.validate(written)
        assert written["diagnoses"][0]["changes"][0]["name"] == report.diagnoses[0].changes[0].name
        text = report.text(width=90)
        assert fault in text and text.startswith("differ") and len(text.splitlines()) < 60, text
        page = report.html()
        assert fault in page and "<script" not in page
