"""Whether a run is slower than an earlier one, as ratios to eager PyTorch in the same run.

Two runs are minutes or machines apart, so times don't compare; what each run says of Weft beside eager does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reports.report import median, ratio

# How far apart the middle halves of two such ratios are on a quiet machine.
NOISE = 0.08


@dataclass(frozen=True)
class Change:
    """For one case: Weft's speed relative to eager's, in the earlier run and in this one."""

    case: str
    before: float
    now: float

    @property
    def factor(self) -> float:
        return self.now / self.before

    @property
    def is_slower(self) -> bool:
        return self.factor < 1 - NOISE

    def __str__(self) -> str:
        return f"{self.case}: {self.before:.2f}x eager before, {self.now:.2f}x now ({100 * (self.factor - 1):+.0f} %)"


def ratios(report: dict[str, Any]) -> dict[str, float]:
    """Eager's time over Weft's, by case; without the cases that one of them didn't run, or got wrong."""
    found = {
        f"{case['cell']} {case['shape']} {case['mode']} {case.get('dtype', 'float32')}": ratio(
            median(case, "eager"), median(case, "weft")
        )
        for case in report["cases"]
    }
    return {case: value for case, value in found.items() if value is not None}


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """The cases of both runs, the one that lost most first. ValueError if there are none, or if the runs had different
    numbers of threads."""
    threads = [report["machine"]["threads"] for report in (before, now)]
    if threads[0] != threads[1]:
        raise ValueError(f"the earlier run had {threads[0]} threads, this one has {threads[1]}")
    old, new = ratios(before), ratios(now)
    found = [Change(case, old[case], new[case]) for case in new if case in old]
    if not found:
        raise ValueError("the earlier run has none of this run's cases with both Weft and eager")
    return sorted(found, key=lambda change: change.factor)
