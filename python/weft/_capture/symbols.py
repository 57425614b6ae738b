"""Sizes in a trace: which sizes are symbols, and which numbers the symbols have in each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft import _C

HINT = 2  #: the run with the sizes at hand


@dataclasses.dataclass(frozen=True)
class Key:
    """Identifies a size that may be a symbol."""

    hint: int | None
    symbol: str = ""  #: an outer trace's symbol; or another text that tells it from a size that is equal at hand


class Symbols:
    """Which sizes are symbols. Sizes of one key are one symbol, which has a number in each run (sample_sizes.h)."""

    MOST = _C.MOST_SYMBOLS

    def __init__(self, keys: Sequence[Key], samples: Sequence[tuple[int, int]], *, guesses: bool = False) -> None:
        """`guesses`: sizes may be sums and divisions of symbols."""
        self.keys, self.samples, self.guesses = list(keys), list(samples), guesses

    @classmethod
    def small(cls, keys: Sequence[Key], *, guesses: bool) -> Symbols:
        keys = keys[: cls.MOST]
        return cls(keys, _C.small_samples(len(keys), guesses), guesses=guesses)

    @classmethod
    def larger(cls, keys: Sequence[Key], *, guesses: bool) -> Symbols:
        """Samples with numbers larger than the sizes at hand, for functions that shrink sizes."""
        keys = keys[: cls.MOST]
        return cls(keys, _C.larger_samples([key.hint or 0 for key in keys]), guesses=guesses)

    def size(self, key: Key, run: int) -> int:
        if run == HINT:
            assert key.hint is not None
            return key.hint
        return self.samples[self.keys.index(key)][run]

    def add(self, key: Key, sample: tuple[int, int]) -> None:
        """Adds a symbol whose numbers in the runs are known."""
        self.keys.append(key)
        self.samples.append(sample)

    def runs(self) -> list[int]:
        """Two runs with other sizes, and a third with the sizes at hand, which must confirm the expressions found from
        the two."""
        if not self.keys:
            return [0]
        return [0, 1] if any(key.hint is None for key in self.keys) else [0, 1, HINT]

    def at_hand(self) -> list[int]:
        """The symbols' values in the run HINT, if there is one."""
        return [key.hint for key in self.keys if key.hint is not None] if HINT in self.runs() else []
