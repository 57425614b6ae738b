"""Time and memory of a call, and how far two results are apart."""

from __future__ import annotations

import ctypes
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np


def summary(samples: list[float]) -> dict[str, float]:
    """Median, quartiles and minimum, in milliseconds."""
    ordered = sorted(1e3 * sample for sample in samples)
    quarter = len(ordered) // 4
    return {
        "median_ms": statistics.median(ordered),
        "q1_ms": ordered[quarter],
        "q3_ms": ordered[-1 - quarter],
        "min_ms": ordered[0],
        "samples": len(ordered),
    }


def clock() -> float:
    """The clock, in seconds. With BENCH_CPU_CLOCK in the environment it counts the processor time of this process, for
    one thread on a machine that is used by others at the same time."""
    return time.process_time() if "BENCH_CPU_CLOCK" in os.environ else time.perf_counter()


def timed_calls(run: Callable[[], object], seconds: float, warm_up: int = 1, most: int = 200) -> list[float]:
    """Seconds of each call: after `warm_up` calls that don't count, as many as fit in `seconds`, at least one."""
    for _ in range(warm_up):
        run()
    samples: list[float] = []
    deadline = time.perf_counter() + seconds
    while not samples or (time.perf_counter() < deadline and len(samples) < most):
        start = clock()
        run()
        samples.append(clock() - start)
    return samples


def median_ms(run: Callable[[], object], calls: int, warm_up: int = 0) -> float:
    """The median milliseconds of `calls` calls, after `warm_up` that don't count."""
    return 1e3 * statistics.median(timed_calls(run, seconds=math.inf, warm_up=warm_up, most=calls))


def _status_bytes(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def resident_bytes() -> int:
    """The bytes that this process occupies now. Free memory first goes back to the system, with the memory that Weft
    keeps for later calls: otherwise a case would seem to take less because of the cases before it."""
    if "weft" in sys.modules:
        sys.modules["weft"]._C.trim_arena()
    ctypes.CDLL(None).malloc_trim(0)
    return _status_bytes("VmRSS")


def peak_bytes(run: Callable[[], object]) -> int | None:
    """The peak of this process's memory during one call, after free memory was given back to the system; None if the
    kernel doesn't let the peak be reset."""
    ctypes.CDLL(None).malloc_trim(0)  # what the first call left free: the state that the base was measured in
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        return None
    run()
    return _status_bytes("VmHWM")


def distance(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """The largest difference of any tensor, relative to the largest magnitude in it; inf when shapes or names differ or
    something is not finite."""
    worst = 0.0
    for name, reference in expected.items():
        other = found.get(name)
        if other is None or other.shape != reference.shape or not np.isfinite(other).all():
            return float("inf")
        scale = float(np.abs(reference).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(reference - other).max(initial=0.0)) / scale)
    return worst


def distance_of_norms(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """The largest norm of the difference of any tensor, relative to the tensor's; inf as in `distance`."""
    worst = 0.0
    for name, reference in expected.items():
        other = found.get(name)
        if other is None or other.shape != reference.shape or not np.isfinite(other).all():
            return float("inf")
        difference = np.linalg.norm((reference.astype(np.float64) - other).ravel())
        worst = max(worst, float(difference / (np.linalg.norm(reference.astype(np.float64).ravel()) or 1.0)))
    return worst
