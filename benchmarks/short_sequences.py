"""Single steps and short sequences: time of a call beside eager's, and beside the time that reading the weights takes.

Usage: short_sequences.py [--threads 1 2] [--hidden 64 256 512] [--steps 1 2 4 8] [--batch 1 2 4] [--kinds GRU LSTM]
       [--training] [--dtype float32] [--rounds 15]

Prints a row a case: microseconds of weft and of eager, eager over weft, and GB/s at which the weights' bytes, times
the steps, pass by. Weft and eager take turns in one process; medians.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import torch
from torch import nn

import weft


def time_of(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls * 1e6


def interleaved(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Medians of weft's and eager's microseconds a call."""

    def eager() -> object:
        weft._C.enter_disabled()
        try:
            return run()
        finally:
            weft._C.exit_disabled()

    for each in (run, eager, run, eager):
        each()
    calls = max(1, int(3000 / time_of(eager, 2)))
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(time_of(run, calls))
        theirs.append(time_of(eager, calls))
    return sorted(ours)[rounds // 2], sorted(theirs)[rounds // 2]


def case(kind: str, steps: int, batch: int, hidden: int, dtype: torch.dtype, training: bool) -> Callable[[], object]:
    module = getattr(nn, kind)(hidden, hidden).to(dtype)
    shape = (batch, hidden) if kind.endswith("Cell") else (steps, batch, hidden)
    x = torch.randn(shape, dtype=dtype)

    def forward() -> object:
        with torch.inference_mode():
            return module(x)

    def train() -> None:
        outputs = module(x)
        while isinstance(outputs, tuple):
            outputs = outputs[0]
        outputs.backward(torch.ones_like(outputs))

    return train if training else forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kinds", nargs="+", default=["GRU", "LSTM", "GRUCell", "LSTMCell"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    print(f"{'':34}{'weft':>9}{'eager':>9}{'ratio':>7}{'GB/s':>7}")
    cases = itertools.product(args.threads, args.kinds, args.hidden, args.steps, args.batch)
    for threads, kind, hidden, steps, batch in cases:
        if kind.endswith("Cell") and steps > 1:
            continue
        torch.set_num_threads(threads)
        run = case(kind, steps, batch, hidden, dtype, args.training)
        ours, eager = interleaved(run, args.rounds)
        gates = 4 if kind.startswith("LSTM") else 3
        read = gates * hidden * 2 * hidden * dtype.itemsize * steps
        name = f"{threads} threads {kind} H{hidden} T{steps} B{batch}"
        print(f"{name:34}{ours:9.1f}{eager:9.1f}{eager / ours:7.2f}{read / ours / 1e3:7.1f}", flush=True)


if __name__ == "__main__":
    main()
