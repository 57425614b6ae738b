"""Sizes as a trace sees them: which are symbols, and the numbers that stand for these in its runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

# One small and one large, so that what depends on a size in steps (x[:10], n // 8) shows.
_PRIMES = ((3, 37), (5, 41), (7, 43), (11, 47), (13, 53), (17, 59), (19, 61), (23, 67))
# Where sums and divisions are told from them too: one odd and one even, so that n // 2 shows, and no two pairs equally
# far apart, so that n + 1 is of one symbol only.
_PAIRS = ((3, 74), (5, 82), (7, 86), (11, 94), (13, 106), (17, 118), (19, 122), (23, 134))
HINT = 2  #: the run with the sizes at hand


@dataclasses.dataclass(frozen=True)
class Key:
    """What a size that may be a symbol is told from others by."""

    hint: int | None
    symbol: str = ""  #: an outer trace's


class Symbols:
    """Which sizes are symbols: those of equal size are one, and have a number in each run."""

    MOST = len(_PRIMES)

    def __init__(self, keys: Sequence[Key], *, guesses: bool = False, larger: bool = False) -> None:
        """`guesses`: sizes may be sums and divisions of symbols. `larger`: the numbers are larger than the sizes at
        hand, as functions need that make sizes smaller."""
        self.keys = list(keys)[: self.MOST]
        self.guesses = guesses
        self.samples = list((_PAIRS if guesses else _PRIMES)[: len(self.keys)])
        if larger:
            self.samples = _larger_pairs([key.hint or 0 for key in self.keys])

    def size(self, key: Key, run: int) -> int:
        if run == HINT:
            assert key.hint is not None
            return key.hint
        return self.samples[self.keys.index(key)][run]

    def add(self, key: Key, sample: tuple[int, int]) -> None:
        """A further symbol, of which the numbers in the runs are known."""
        self.keys.append(key)
        self.samples.append(sample)

    def runs(self) -> list[int]:
        """Two runs with other sizes, and one that must bear out what they say of the sizes at hand."""
        if not self.keys:
            return [0]
        return [0, 1] if any(key.hint is None for key in self.keys) else [0, 1, HINT]

    def at_hand(self) -> list[int]:
        """The values in the run HINT, if there is one."""
        return [key.hint for key in self.keys if key.hint is not None] if HINT in self.runs() else []


def _larger_pairs(hints: Sequence[int]) -> list[tuple[int, int]]:
    """As _PAIRS, all larger than the hints."""
    primes = _primes(max(hints, default=0) + 1)
    firsts = list(itertools.islice(primes, len(hints)))
    seconds = (2 * prime for prime in primes)
    pairs: list[tuple[int, int]] = []
    apart: set[int] = set()
    for first in firsts:
        second = next(second for second in seconds if second - first not in apart)
        apart.add(second - first)
        pairs.append((first, second))
    return pairs


def _primes(least: int) -> Iterator[int]:
    """Odd primes."""
    for number in itertools.count(max(least, 3) | 1, 2):
        if all(number % divisor for divisor in range(3, int(number**0.5) + 1, 2)):
            yield number
