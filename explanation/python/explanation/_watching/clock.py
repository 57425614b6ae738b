"""The clock by which steps are timed. Tests set another, on which only known parts of a program take time."""

from __future__ import annotations

import time

#: Seconds from some begin; called as clock.now().
now = time.perf_counter
