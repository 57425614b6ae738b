"""Pairs of changes that explain why the gains of single changes don't add up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from weft.explanation._report.records import Action, Measured
from weft.explanation._report.text import seconds

_MOST = 6  #: pairs that are measured
_ALL_OF = 4  #: changes of which each pair is; of more those that follow one another


def sum_of(gains: Sequence[Measured]) -> Measured:
    """The gain of all changes if the measured single gains were independent."""
    middle = sum(gain.median for gain in gains)
    below = math.sqrt(sum((gain.median - gain.low) ** 2 for gain in gains))
    above = math.sqrt(sum((gain.high - gain.median) ** 2 for gain in gains))
    return Measured(middle, middle - below, middle + above)


def add_up(gains: Sequence[Measured], together: Measured) -> bool:
    """Whether the gain of changes together is the sum of their single gains, as far as the intervals tell."""
    whole = sum_of(gains)
    return together.low <= whole.high and whole.low <= together.high


def pairs_to_measure(gains: Sequence[Measured], together: Measured | None) -> list[tuple[int, int]]:
    """Numbers of two changes each; none where single gains add up, or where all changes are one pair."""
    if together is None or len(gains) < 3 or add_up(gains, together):
        return []
    numbers = range(len(gains))
    found = itertools.combinations(numbers, 2) if len(gains) <= _ALL_OF else itertools.pairwise(numbers)
    return list(found)[:_MOST]


def describe(action: Action, gains: Sequence[Measured]) -> None:
    """Adds the sum of the single gains to the outcome of an action of several changes, if it isn't the action's
    gain."""
    if action.gain and gains and not add_up(gains, action.gain):
        action.outcome += f"; by themselves they gain {seconds(sum_of(gains).median)} in sum"


def action_of(number: int, pair: tuple[Action, Action], change: str, gain: Measured, base: float) -> Action | None:
    """A row for two changes; None if their single gains add up to theirs. `base`: seconds of the unchanged step."""
    single = [each.gain for each in pair if each.gain]
    if len(single) < 2 or add_up(single, gain):
        return None
    title = f"two changes together: {pair[0].title}, and {pair[1].title}"
    breaks = sorted({number for each in pair for number in each.breaks})
    action = Action(number, breaks, title, change, "rewrite", True, pair[0].outcome, gain, gain.median / base)
    describe(action, single)
    return action
