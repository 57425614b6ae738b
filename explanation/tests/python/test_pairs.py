"""Gains of changes that don't add up, and the pairs that say why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import known_times
import pytest
import torch

import weft
from weft.explanation._about import best_without
from weft.explanation._lazy.changes import LazyChange
from weft.explanation._lazy.investigation import LazyInvestigation
from weft.explanation._lazy.loops import Loop
from weft.explanation._measuring import pairs as _pairs
from weft.explanation._report.records import Action, Measured, Run, Subject
from weft.explanation._watching import clock


def gain(median: float, half: float = 0.0) -> Measured:
    return Measured(median, median - half, median + half)


def action(number: int, gained: Measured) -> Action:
    return Action(number, [number], f"change {number}", "", "rewrite", True, "tried", gained)


def test_independent_gains_add_up_within_their_intervals() -> None:
    whole = _pairs.sum_of([gain(3.0, 0.3), gain(4.0, 0.4)])
    assert (whole.median, whole.low, whole.high) == pytest.approx((7.0, 6.5, 7.5))
    assert _pairs.add_up([gain(3.0, 0.3), gain(4.0, 0.4)], gain(7.6, 0.2))
    assert not _pairs.add_up([gain(3.0, 0.3), gain(4.0, 0.4)], gain(8.0, 0.2))
    assert not _pairs.add_up([gain(3.0, 0.3), gain(4.0, 0.4)], gain(6.0, 0.2)), "less than the sum is no sum either"


@pytest.mark.parametrize(
    ("count", "together", "pairs"),
    [
        (2, 9.0, []),  # the pair is all there is
        (3, 3.0, []),
        (3, 9.0, [(0, 1), (0, 2), (1, 2)]),
        (5, 9.0, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (20, 90.0, [(n, n + 1) for n in range(6)]),
    ],
)
def test_pairs_are_measured_where_gains_dont_add_up(count: int, together: float, pairs: list[tuple[int, int]]) -> None:
    gains = [gain(1.0, 0.1)] * count
    assert _pairs.pairs_to_measure(gains, gain(together, 0.1)) == pairs
    assert _pairs.pairs_to_measure(gains, None) == []


def test_a_pair_has_a_row_if_it_is_more_or_less_than_its_parts() -> None:
    pair = action(0, gain(1e-3, 1e-5)), action(1, gain(2e-3, 1e-5))
    assert _pairs.action_of(7, pair, "diff", gain(3e-3, 1e-5), 1.0) is None
    row = _pairs.action_of(7, pair, "diff", gain(5e-3, 1e-5), 1e-2)
    assert row is not None and (row.id, row.breaks, row.share, row.change) == (7, [0, 1], pytest.approx(0.5), "diff")
    assert row.outcome == "tried; by themselves they gain 3.00 ms in sum"
    assert pair[0].outcome == "tried"


class _Trials:
    """Steps of 10, of which three changes save 1 each, the first two together 6."""

    def __init__(self) -> None:
        self.measured: list[list[list[int]]] = []

    def measure(self, changes: list[LazyChange], variants: list[list[int]], rounds: int) -> list[list[float]]:
        self.measured.append(variants)
        return [[10.0 - len(on) - 4 * ({0, 1} <= set(on))] * rounds for on in variants]


def test_the_pair_that_matters_stands_behind_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lazily traced program."""
    work: Any = object.__new__(LazyInvestigation)
    loop = Loop(("f.py", 9), "f", True, [[]] * 100)
    work.loop, work.trials, work.subject = loop, _Trials(), Subject("s", "f.py", 1, "lazy", False, 1)
    work.effort = SimpleNamespace(rounds=4, progress=lambda words, part: None)
    keys = [("f.py", line, "t") for line in range(3)]
    work.breaks = {key: SimpleNamespace(id=n, hidden=False, cost=None, type="t") for n, key in enumerate(keys)}
    work.subject.breaks = list(work.breaks.values())
    monkeypatch.setattr(LazyInvestigation, "_diff", lambda self, mend: f"{[change.id for change in mend.changes]}")
    from weft.explanation._lazy.investigation import _Mend

    mends = [_Mend([LazyChange(n, "f.py", n, "out", 9)], {key}) for n, key in enumerate(keys)]
    work._measure(mends, [SimpleNamespace(bytes=1)])
    assert [each.breaks for each in work.subject.actions] == [[0, 1, 2], [0, 1], [0], [1], [2]]
    assert [each.gain.median for each in work.subject.actions] == [7, 6, 1, 1, 1]
    assert len({each.id for each in work.subject.actions}) == 5
    assert work.trials.measured[1] == [[], [0, 1], [0, 2], [1, 2]]
    assert work.subject.actions[0].outcome.endswith("by themselves they gain 3.00 s in sum")
    assert [found.cost.median for found in work.subject.breaks] == [1, 1, 1]


def test_not_compiling_is_named_only_where_it_is_the_best() -> None:
    subject = Subject("s", "f.py", 1, "inductor", False, 1)
    subject.runs = [Run(name, gain(time, 0.01), 1, None, None, "") for name, time in (("eager", 2), ("compiled", 3))]
    assert "not compiling is the best there is" in best_without(subject)[0]
    subject.actions = [action(0, gain(1.5))]
    assert best_without(subject) == []


class _Slow:
    """The first of these that is printed in a step takes its time."""

    clock = known_times.Clock()
    seconds = 4096 * known_times.TICK
    was_printed = False

    def __str__(self) -> str:
        if not _Slow.was_printed:
            _Slow.clock.spend(_Slow.seconds)
        _Slow.was_printed = True
        return "a line"


_FIRST, _SECOND = _Slow(), _Slow()


def _step(x: torch.Tensor) -> torch.Tensor:
    _Slow.was_printed = False
    x = torch.relu(x) * 2
    print(_FIRST)
    x = torch.sin(x) + 1
    print(_SECOND)
    x = torch.cos(x) * 3
    print("nothing")
    return x.sum()


def test_two_breaks_of_dynamos_that_hide_each_others_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of the two calls mended, the other one takes its time: a step gains only if both are mended."""
    monkeypatch.setattr(clock, "now", _Slow.clock)
    torch.compiler.reset()
    (subject,) = weft.explain(_step, torch.ones(8), backend="eager", seconds=1, rounds=6, hlo=False).results.subjects
    lines = {found.id: found.source for found in subject.breaks}
    tried = [each for each in subject.actions if each.tried and each.kind != "device"]
    together, pair, *single = tried
    assert len(together.breaks) == len(single) == 3, [each.title for each in tried]
    assert sorted(lines[number] for number in pair.breaks) == ["print(_FIRST)", "print(_SECOND)"]
    gains = [each.gain.median for each in tried if each.gain]
    assert gains == [_Slow.seconds, _Slow.seconds, 0, 0, 0]
    assert "by themselves they gain" in pair.outcome and "by themselves they gain" in together.outcome
    assert pair.change.count("is_compiling") == 2
