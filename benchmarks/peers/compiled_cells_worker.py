"""The process behind cells.Compiled: one cell, through torch.compile.

Usage: compiled_cells_worker.py loop|step
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch

import weft
from cell_cases import CellCase, Example, example_of, hoisted, torch_call
from measure import timed_calls
from peers import Prepared, Result
from peers.serve import serve


def compiled_step(step: Any, init: Any, xs: Any, **options: Any) -> Any:
    from cells.python_loop import python_loop

    return python_loop(torch.compile(step), init, xs, **options)


class Cell:
    prepared: Prepared

    def prepare(self, case: CellCase, cotangents: list[torch.Tensor | None]) -> float:
        """Seconds that the first call took."""
        from cells.python_loop import python_loop

        example = hoisted(example_of(case))
        if sys.argv[1] == "loop":
            weft.scan = python_loop
            example = Example(torch.compile(example.function), example.inputs, example.module)
        else:
            weft.scan = compiled_step
        self.prepared = torch_call(case, example, cotangents)
        start = time.perf_counter()
        self.prepared.run()
        return time.perf_counter() - start

    def result(self) -> Result:
        return self.prepared.result()

    def time(self, seconds: float) -> list[float]:
        return timed_calls(self.prepared.run, seconds)


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    torch.set_flush_denormal(True)
    serve(Cell())
