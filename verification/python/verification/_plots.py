"""Parts of the text's and the page's plots: a logarithmic axis with room for 0, NaN and infinities, long sequences in
few columns, and numbers and places in words."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from weft._base.report import printable
from weft.verification._results import Place, Results, Spot, Track

#: Decades further than these below the largest value tell nothing.
_DECADES = 20

_QUANTITIES = {
    "r": "reset gate r",
    "z": "update gate z",
    "n": "new value n",
    "i": "input gate i",
    "f": "forget gate f",
    "g": "cell input g",
    "o": "output gate o",
    "c": "cell state c",
    "h": "hidden state h",
    "hn": "last hidden state hn",
    "cn": "last cell state cn",
    "y": "merged result y",
}


@dataclasses.dataclass(frozen=True)
class Scale:
    """A logarithmic axis from 10^low to 10^high."""

    low: int
    high: int
    has_zeros: bool  #: whether it needs a place below for 0
    has_odd: bool  #: whether it needs a place above for NaN and infinities

    def position(self, value: float) -> float:
        """A value's place, 0 to 1, for finite values above 0; values below the axis are at its lower end."""
        return min(1.0, max(0.0, (math.log10(value) - self.low) / (self.high - self.low)))

    def ticks(self, most: int) -> list[int]:
        """Exponents to label: at most so many, evenly spaced, the lowest among them."""
        stride = next(s for n in range(4) for s in (10**n, 2 * 10**n, 5 * 10**n) if (self.high - self.low) // s < most)
        return list(range(self.low, self.high + 1, stride))


@dataclasses.dataclass(frozen=True)
class Column:
    """Consecutive steps, first to last, in one column: the largest of each track."""

    first: int
    last: int
    difference: float | None
    defect: float | None
    bound: float | None

    @property
    def values(self) -> tuple[float | None, float | None, float | None]:
        return self.difference, self.defect, self.bound


def largest(values: Iterable[float | None]) -> float | None:
    """The largest value, of which NaN is the largest; None if there is no value."""
    present = [value for value in values if value is not None]
    if any(math.isnan(value) for value in present):
        return math.nan
    return max(present, default=None)


def steps_of(track: Track) -> int:
    return max(len(track.difference), len(track.defect), len(track.bound))


def columns(track: Track, most: int) -> list[Column]:
    """The steps of a track in at most so many columns of even width."""
    steps = steps_of(track)
    count = min(steps, most)

    def part(values: Sequence[float | None], begin: int, end: int) -> float | None:
        found = largest(values[begin:end])
        return None if found is None else abs(found)

    edges = [steps * index // count for index in range(count + 1)] if count else [0]
    return [
        Column(begin, end - 1, *(part(v, begin, end) for v in (track.difference, track.defect, track.bound)))
        for begin, end in itertools.pairwise(edges)
    ]


def scale_of(shown: Sequence[Column]) -> Scale:
    """An axis for all values of these columns."""
    values = [value for column in shown for value in column.values if value is not None]
    positive = [value for value in values if 0 < value < math.inf]
    low = math.floor(math.log10(min(positive))) if positive else -17
    high = math.ceil(math.log10(max(positive))) if positive else 0
    high = max(high, low + 2)
    return Scale(max(low, high - _DECADES), high, 0 in values, not all(math.isfinite(value) for value in values))


def step_ticks(steps: int, most: int) -> list[int]:
    """Steps to label: 0 and round numbers, at most so many."""
    stride = next(s for n in range(19) for s in (10**n, 2 * 10**n, 5 * 10**n) if (steps - 1) // s < most)
    return list(range(0, steps, stride))


def differing_first(report: Results) -> list[Track]:
    return sorted(report.tracks, key=lambda track: track.first is None)


def number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "none"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.{digits}g}"


def pair(first: float, second: float) -> tuple[str, str]:
    """Two numbers with enough digits to tell them apart."""
    for digits in (6, 9, 12):
        texts = number(first, digits), number(second, digits)
        if texts[0] != texts[1] and abs(first - second) > 10 ** (2 - digits) * max(abs(first), abs(second)):
            return texts
    return number(first, 17), number(second, 17)


def quantity(name: str) -> str:
    return _QUANTITIES.get(name, printable(name))


def track_name(track: Track | Place) -> str:
    named = f" ({printable(track.layer_name)})" if track.layer_name else ""
    direction = "both directions" if track.direction == "both" else track.direction
    return f"layer {track.layer}{named}, {direction}"


def capitalised(sentence: str) -> str:
    """The sentence with a capital letter and a full stop."""
    return sentence[:1].upper() + sentence[1:] + ("" if sentence.endswith((".", "!", "?")) else ".")


def step_name(place: Place) -> str:
    """The step's name. For a direction that runs backwards it includes the turn, by which steps count there."""
    return f"step {place.step}" + (f" (turn {place.turn})" if place.turn != place.step else "")


def times_bound(place: Place) -> str:
    """The ratio in words, "1.2e+09 times what rounding explains"; "" where the bound is 0, or a number is infinite."""
    if not (math.isfinite(place.difference) and 0 < place.bound < math.inf):
        return ""
    return f"{number(place.difference / place.bound, 2)} times what rounding explains"


def spot(place: Spot) -> str:
    return f"step {place.step}, row {place.row}, unit {place.unit}"


def allowed(report: Results) -> str:
    """For two sides that agree: their largest distance, and the bound at that place."""
    parts = []
    steps = [
        (defect, bound)
        for track in report.tracks
        for defect, bound in zip(track.defect, track.bound, strict=True)
        if defect is not None and bound is not None and not math.isnan(defect)
    ]
    if steps:
        defect, bound = max(steps, key=lambda step: (step[0], -step[1]))
        size = f"at most {number(defect)} apart, where {number(bound)} is allowed" if defect else "equal bit for bit"
        parts.append(f"one step by itself is {size}")
    apart = [(track.largest.difference, track) for track in report.tracks if track.largest]
    if apart:
        difference, track = max(apart, key=lambda each: each[0])
        assert track.largest is not None
        where = f"{track_name(track)}, {spot(track.largest)}" if len(report.tracks) > 1 else spot(track.largest)
        parts.append(f"h, each side run on by itself, {number(difference)} ({where})")
    return "; ".join(parts)


def own_dtype(report: Results) -> str:
    """A sentence about the run in the stored dtype; "" if there was none."""
    own = report.own_dtype
    if own is None:
        return ""
    verdict = "agree" if own.agrees else "differ"
    explained = f"rounding explains {number(own.bound)}"
    bound = "rounding is amplified without limit" if math.isinf(own.bound) else explained
    return f"computed in {own.dtype}, their own: outputs {number(own.difference)} apart at most, {bound}: {verdict}"
