"""A clock on which only sleeping takes time, so that a program's report has the same numbers on any machine.

known_times.py [WORD ...]     `weft explain WORD ...` by that clock
"""

from __future__ import annotations

import array
import sys
import time

from weft._command_line import main
from weft.explanation._watching import clock

#: Seconds. Sums and differences of its multiples are exact.
TICK = 2.0**-20


class Clock:
    """A clock that goes on by a tick when it is read, and by what is spent."""

    def __init__(self) -> None:
        self._reads = 0
        self._spent = array.array("d")
        #: Takes seconds, which count as whole ticks; never returns late. Dynamo breaks at it, as at time.sleep.
        self.spend = self._spent.append

    def __call__(self) -> float:
        self._reads += 1
        return TICK * (self._reads + sum(round(seconds / TICK) for seconds in self._spent))


if __name__ == "__main__":
    clock.now = known = Clock()
    time.sleep = known.spend
    sys.exit(main(["explain", *sys.argv[1:]]))
