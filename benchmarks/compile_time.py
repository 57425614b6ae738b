"""Cold compile time of a one-layer cell: a fresh process, the object cache off. Prints JSON.

Usage: compile_time.py CELL STEPS   (compare.py runs it)
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

os.environ["WEFT_CACHE"] = "0"

import torch

import weft
from cases import Case, Data
from peers.pytorch import call, module_of


def first_and_warm(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the first call, and the least of the next five."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])


def main() -> None:
    cell, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    # PyTorch's own first calls are not ours: the first torch.autograd.grad of a process imports SymPy.
    w = torch.randn(64, 64, requires_grad=True)
    torch.autograd.grad(w @ torch.randn(64, 64), [w], torch.ones(64, 64))
    answer = {}
    for mode in ("forward", "training"):
        before = weft.stats()["compile_seconds"]
        case = Case(cell, mode, batch=4, steps=steps, inputs=256, hidden=256)
        data = Data(case)
        first, warm = first_and_warm(call(case, data, module_of(case, data)).run)
        answer[mode] = {
            "compile_ms": 1e3 * (weft.stats()["compile_seconds"] - before),
            "first_call_ms": 1e3 * first,
            "warm_call_ms": 1e3 * warm,
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
