"""Sizes as a trace sees them: which are symbols, and the primes that stand for these in its runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

# One small and one large, so that what depends on a size in steps (x[:10], n // 8) shows.
_PRIMES = ((3, 37), (5, 41), (7, 43), (11, 47), (13, 53), (17, 59), (19, 61), (23, 67))
HINT = 2  #: the run with the sizes at hand


@dataclasses.dataclass(frozen=True)
class Key:
    """What a size that may be a symbol is told from others by."""

    hint: int | None
    symbol: str = ""  #: an outer trace's


class Symbols:
    """Which sizes are symbols: those of equal size are one, and have a prime in each run."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = list(keys)[: len(_PRIMES)]

    def size(self, key: Key, run: int) -> int:
        if run == HINT:
            assert key.hint is not None
            return key.hint
        return _PRIMES[self.keys.index(key)][run]

    def primes(self) -> list[tuple[int, int]]:
        return list(_PRIMES[: len(self.keys)])

    def runs(self) -> list[int]:
        """Two runs with other sizes, and one that must bear out what they say of the sizes at hand."""
        if not self.keys:
            return [0]
        return [0, 1] if any(key.hint is None for key in self.keys) else [0, 1, HINT]
