"""`--fail-on breaks>0,cost>5%`: conditions on a report."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable

from weft.explanation._report.records import Measured, Results, Subject

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FORM = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|!=|>|<)\s*([0-9.]+)\s*(%|ms|us|s)?\s*")
_UNITS = {None: 1.0, "%": 0.01, "s": 1.0, "ms": 1e-3, "us": 1e-6}
#: The quantities of conditions: in words, and whether the unit is a share, a time or none.
_QUANTITIES = {
    "breaks": ("distinct graph breaks", ""),
    "graphs": ("FX graphs", ""),
    "recompiles": ("recompilations", ""),
    "fallbacks": ("fallbacks of Weft's engine", ""),
    "cost": ("what a change of the list would gain, the largest", "%s"),
}


class ConditionError(ValueError):
    """A condition isn't one."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """`quantity comparison bound`."""

    text: str
    quantity: str
    comparison: str
    bound: float
    unit: str | None

    def holds(self, results: Results) -> bool:
        """Whether the report fulfils the condition. A cost counts as far as it is certain: by the low end of its
        interval where the condition asks for more, by the high end where it asks for less."""
        return any(_COMPARISONS[self.comparison](value, self.bound) for value in self._values(results))

    def _values(self, results: Results) -> list[float]:
        subjects = results.subjects
        if self.quantity == "breaks":
            return [float(results.breaks)]
        if self.quantity == "graphs":
            return [float(sum(len(subject.graphs) for subject in subjects))]
        if self.quantity == "recompiles":
            return [float(sum(again.times for subject in subjects for again in subject.recompiles))]
        if self.quantity == "fallbacks":
            return [float(sum(sum(subject.weft.get("fallbacks", {}).values()) for subject in subjects))]
        return [self._cost(subject) for subject in subjects]

    def _cost(self, subject: Subject) -> float:
        def end(gain: Measured) -> float:
            return gain.low if self.comparison in (">", ">=") else gain.high

        step = subject.base
        whole = step.seconds.median if step and step.seconds else 0.0
        gains = [end(action.gain) for action in subject.actions if action.gain and action.kind != "device"]
        most = max(gains, default=0.0)
        return most if self.unit != "%" else (most / whole if whole else 0.0)


def parse(text: str) -> list[Condition]:
    """Parses conditions separated by commas.

    Raises:
        ConditionError: a condition isn't understood; the message lists the possible ones.
    """
    return [_parse_one(part) for part in text.split(",")]


def _parse_one(text: str) -> Condition:
    match = _FORM.fullmatch(text)
    if not match or match[1] not in _QUANTITIES:
        known = ", ".join(_QUANTITIES)
        raise ConditionError(f"--fail-on: {text.strip()!r} is no condition such as breaks>0 or cost>5% (of: {known})")
    quantity, comparison, number, unit = match[1], match[2], match[3], match[4]
    wants_unit = bool(_QUANTITIES[quantity][1])
    if wants_unit != (unit is not None):
        raise ConditionError(
            f"--fail-on: {text.strip()!r}: {quantity} is "
            + ("a share or a time, such as 5%, 2ms" if wants_unit else "a number without a unit")
        )
    try:
        value = float(number)
    except ValueError:
        raise ConditionError(f"--fail-on: {number!r} is not a number") from None
    return Condition(text.strip(), quantity, comparison, value * _UNITS[unit], unit)
