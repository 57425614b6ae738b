"""What a new cell's first call costs: a fresh process, the object cache off. Prints JSON.

Usage: cell_first_call.py CELL   (cells.py runs it)

`process`: the first call of weft.scan in the process, on another cell, which pays for what is set up once. `forward`
and `training`: this cell's first call less its later ones. `compiled_again`: programs compiled by calls with another
number of steps and another batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace

os.environ["WEFT_CACHE"] = "0"

import torch

import weft
from cell_cases import SIZES, CellCase, cotangents_of, example_of, torch_call
from measure import clock
from peers.cells import in_python

# So few elements that later calls are short compared with the first; what is compiled doesn't depend on the sizes.
STEPS, BATCH = 8, 4


def call_of(case: CellCase) -> Callable[[], object]:
    with in_python():
        cotangents = cotangents_of(example_of(case))
    return torch_call(case, example_of(case), cotangents).run


def beyond_later_ones(run: Callable[[], object]) -> float:
    """Milliseconds of the first call less the least of the next five."""
    times = []
    for _ in range(6):
        start = clock()
        run()
        times.append(clock() - start)
    return 1e3 * (times[0] - min(times[1:]))


def main() -> None:
    name = sys.argv[1]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    # PyTorch's own first product and derivative are not ours.
    torch.nn.Linear(64, 64)(torch.randn(64, 64)).sum().backward()
    size = replace(SIZES[name], steps=STEPS, batch=BATCH)
    other = "mgu" if name != "mgu" else "indrnn"
    answer = {"process_ms": beyond_later_ones(call_of(CellCase(other, "training", replace(SIZES[other], steps=4))))}
    for mode in ("forward", "training"):
        before = weft.stats()
        answer[f"{mode}_ms"] = beyond_later_ones(call_of(CellCase(name, mode, size)))
        after = weft.stats()
        answer[f"{mode}_compile_ms"] = 1e3 * (after["compile_seconds"] - before["compile_seconds"])
        answer[f"{mode}_programs"] = after["compiled"] - before["compiled"]
        for other_size in (replace(size, steps=STEPS + 3), replace(size, batch=BATCH + 3)):
            call_of(CellCase(name, mode, other_size))()
        answer[f"{mode}_compiled_again"] = weft.stats()["compiled"] - after["compiled"]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
