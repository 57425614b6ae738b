"""What Weft costs where there is nothing to gain: its import, and a call of one step.

Usage: overhead.py     prints a table; nothing here is asserted, since the times are a few microseconds
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import weft

HIDDEN = 32
IMPORT = """
import time, torch
start = time.perf_counter()
import weft
print(1e3 * (time.perf_counter() - start))
"""


def import_milliseconds(runs: int = 7) -> float:
    """The median time of `import weft` in a process that has imported torch."""
    outputs = (subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True) for _ in range(runs))
    return statistics.median(float(output.stdout) for output in outputs)


def microseconds(*candidates: Callable[[], object], rounds: int = 41, calls: int = 100) -> list[float]:
    """The median time of a call, by candidate; the rounds take turns, so that what disturbs one disturbs all."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for run, measured in zip(candidates, times, strict=True):
            run()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            measured.append((time.perf_counter() - start) / calls * 1e6)
    return [statistics.median(measured) for measured in times]


def calls_of(kind: str) -> dict[str, Callable[[], object]]:
    """A forward call and a training step at T = 1, B = 1."""
    module = getattr(nn, kind)(HIDDEN, HIDDEN)
    x = torch.randn(1, HIDDEN) if kind.endswith("Cell") else torch.randn(1, 1, HIDDEN)

    def forward() -> object:
        with torch.no_grad():
            return module(x)

    def training() -> None:
        outputs = module(x)
        while isinstance(outputs, tuple):
            outputs = outputs[0]
        outputs.sum().backward()

    return {"forward": forward, "training": training}


def on_pytorch(run: Callable[[], object]) -> Callable[[], object]:
    def disabled() -> object:
        weft._C.enter_disabled()
        try:
            return run()
        finally:
            weft._C.exit_disabled()

    return disabled


def main() -> None:
    print(f"import weft: {import_milliseconds():.0f} ms beyond import torch")
    print(f"\nT = 1, B = 1, H = {HIDDEN}, {torch.get_num_threads()} threads, microseconds a call")
    print(f"{'':20}{'weft':>8}{'eager':>8}{'weft/eager':>12}")
    for kind in ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"):
        for mode, run in calls_of(kind).items():
            ours, eager = microseconds(run, on_pytorch(run))
            print(f"{kind + ' ' + mode:20}{ours:8.1f}{eager:8.1f}{ours / eager:12.2f}")


if __name__ == "__main__":
    main()
