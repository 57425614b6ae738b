"""Sizes as a trace sees them: which are symbols, and the primes that stand for these in its runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from weft._aten import UnsupportedError

# One small and one large, so that what depends on a size in steps (x[:10], n // 8) shows.
_PRIMES = ((3, 37), (5, 41), (7, 43), (11, 47), (13, 53), (17, 59), (19, 61), (23, 67))
LARGEST = 37  #: up to this size a trace has looked whatever the sizes at hand are
HINT = 2  #: the run with the sizes at hand


class MismatchError(UnsupportedError):
    """Two runs with other sizes did different things."""

    def __init__(self, message: str = "it does something else for other sizes") -> None:
        super().__init__(message)


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

    def at_hand(self, size: tuple[int, list[int]]) -> int:
        """A factor times symbols, with the sizes at hand."""
        return math.prod([size[0], *(self.size(self.keys[i], HINT) for i in size[1])])

    def runs(self) -> list[int]:
        """Two runs with other sizes, and one that must bear out what they say of the sizes at hand."""
        if not self.keys:
            return [0]
        return [0, 1] if any(key.hint is None for key in self.keys) else [0, 1, HINT]

    def hint(self, first: int) -> Any:
        """The size at hand that `first` of the first run stands for."""
        for key, (p, _) in zip(self.keys, _PRIMES, strict=False):
            if first == p:
                return key.hint
        return first

    def of(self, first: int, second: int) -> tuple[int, list[int]]:
        """The factor and the symbols that are `first` in the one run and `second` in the other."""
        if first == second:
            return first, []
        factors = []
        for index, (p, q) in enumerate(_PRIMES[: len(self.keys)]):
            while first and first % p == 0 and second % q == 0 and first != second:
                first, second = first // p, second // q
                factors.append(index)
        if first != second:
            raise MismatchError
        return first, factors
