"""The implementations that compare.py runs side by side.

Each is a Peer; prepare() returns an object that can be called, timed and asked for its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cases import Case, Data
from measure import peak_bytes, resident_bytes, timed_calls

# The results of one call, by name: y, h_n, c_n after a forward; d_x, d_h0, d_c0, d_w_ih, d_w_hh, d_b_ih, d_b_hh after
# training.
Result = dict[str, np.ndarray]


class SkipCase(Exception):
    """Why a peer doesn't run a case."""


@dataclass
class Prepared:
    """A peer made ready for one case, in this process."""

    run: Callable[[], object]  # one call; everything is computed when it returns
    result: Callable[[], Result]
    variant: str = ""  # which of several settings this is
    note: str = ""

    def time(self, seconds: float) -> list[float]:
        """The seconds of each of as many calls as fit in `seconds`, after one that doesn't count."""
        return timed_calls(self.run, seconds)

    def peak(self, base: int) -> int | None:
        """The bytes that the process takes during a call beyond `base`, its size before the peer was prepared."""
        self.run()
        peak = peak_bytes(self.run)
        return None if peak is None else max(0, peak - base)

    def close(self) -> None:
        """Frees what the garbage collector doesn't."""


def float32_only(case: Case) -> None:
    """SkipCase for another type."""
    if case.dtype != "float32":
        raise SkipCase("runs float32 only")


def one_layer_only(case: Case) -> None:
    """Raises SkipCase for a case with several layers, directions or calls."""
    if not case.is_one_layer or case.streaming:
        raise SkipCase("runs one layer, direction and call here")


class Peer(Protocol):
    name: str

    def prepare(self, case: Case, data: Data) -> Prepared:
        """Raises SkipCase if this peer can't run the case, ImportError if it isn't installed."""
        ...


def fastest(variants: dict[str, Callable[[], Prepared]], seconds: float = 0.1) -> Prepared:
    """Prepares every variant, times each briefly, and keeps the fastest; its note has the times of all."""
    times: dict[str, float] = {}
    best: Prepared | None = None
    for name, prepare in variants.items():
        candidate = prepare()
        candidate.variant = name
        times[name] = min(candidate.time(seconds))
        if best is None or times[name] < times[best.variant]:
            if best is not None:
                best.close()
            best = candidate
        else:
            candidate.close()
    assert best is not None
    best.note = ", ".join(f"{name} {1e3 * took:.3g} ms" for name, took in times.items())
    return best


__all__ = ["Peer", "Prepared", "Result", "SkipCase", "fastest", "float32_only", "one_layer_only", "resident_bytes"]
