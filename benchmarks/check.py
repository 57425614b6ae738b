"""Checks every implementation's results against float64, eager PyTorch's too.

Eager is no judge. On Intel processors with AMX the gradients of its bfloat16 LSTM (oneDNN's) are off by 130 % of the
largest at B128 T32 H1024, where float64 and Weft agree within 0.4 %.
"""

from __future__ import annotations

from math import sqrt

from cases import Case, Data
from measure import distance
from peers import Result
from peers.pytorch import Eager

# Tolerance of rounding, relative to a tensor's largest entry: several times the largest error seen (Xeon with AMX; one
# layer of the default shapes and of up to 4,096 steps, three layers of few). It was 6.5e-6 for float32; for bfloat16
# 1.2e-2 where every operation rounds its result, and 8e-3 where a step rounds once. Broken results are off by more: a
# wrong gate, or gradients of another step, by tens of percent; inputs rounded to bfloat16 on their way into float32 by
# 3e-3.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 4e-3}
# A sum kept in a narrow type and rounded at each step is off by half a unit in the last place times the square root of
# the steps: eager's GRU and RNN sum the gradients of weights so (bfloat16: 2.8 % after 128 steps, 4.9 % after 512, 14 %
# after 4,096). PyTorch means to round so, and twice of it passes. Weft sums in float32 and has no such leave.
LAST_PLACE = {"float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}


def exact(case: Case, data: Data) -> Result:
    """The results in float64, by PyTorch's own layer on the very numbers that the peers get."""
    return Eager().prepare(case, data.double()).result()


def tolerance(case: Case, peer: str) -> float:
    """The error up to which a peer's result is right, relative to the largest entry of a tensor."""
    allowed = TOLERANCE[case.dtype]
    if case.mode == "training" and peer != "weft":
        allowed = max(allowed, LAST_PLACE[case.dtype] * sqrt(case.steps))
    return allowed


def judged(case: Case, peer: str, expected: Result, found: Result) -> dict[str, object]:
    """The fields of an entry about a result: its error against `expected`, and `wrong` if rounding doesn't explain the
    error."""
    error = distance(expected, found)
    return {"error": error} | ({} if error <= tolerance(case, peer) else {"wrong": True})
