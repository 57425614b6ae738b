"""Functions of a step that aren't sums and products: the time of weft.scan beside PyTorch's loop.

Usage: functions.py [--batch 16] [--hidden 256] [--steps 50] [--rounds 15] [--training] [--functions sin gelu ...]

The step is h = f(h * w + x). Prints a row a function: milliseconds of the loop and of weft.scan on one thread (medians,
taking turns in one process), their ratio, and the largest difference of the results by the largest of them. WEFT_ISA
chooses registers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import weft

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": lambda z: torch.exp(-z.abs()),
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "gelu": functional.gelu,
    "softplus": functional.softplus,
    "log1p": lambda z: torch.log1p(z.abs()),
    "log2": lambda z: torch.log2(z.abs() + 1),
    "pow": lambda z: torch.pow(z.abs() + 0.1, 0.7),
    "atan2": lambda z: torch.atan2(z, z + 1),
    "hypot": lambda z: torch.hypot(z, z + 1) * 0.5,
    "logaddexp": lambda z: torch.logaddexp(z, 1 - z) * 0.5,
}


def runs(f: Callable[[Tensor], Tensor], sizes: tuple[int, int, int], training: bool) -> dict[str, Callable[[], Tensor]]:
    steps, batch, hidden = sizes
    torch.manual_seed(0)
    x = torch.randn(sizes)
    w = torch.rand(hidden, requires_grad=training)
    h0 = torch.zeros(batch, hidden)

    def step(h: Tensor, xt: Tensor) -> tuple[Tensor, Tensor]:
        h = f(h * w + xt)
        return h, h

    def loop() -> Tensor:
        h, outputs = h0, []
        for t in range(steps):
            h, y = step(h, x[t])
            outputs.append(y)
        return torch.stack(outputs)

    def whole(forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def train() -> Tensor:
            (gradient,) = torch.autograd.grad(forward().sum(), w)
            return gradient

        def infer() -> Tensor:
            with torch.no_grad():
                return forward()

        return train if training else infer

    return {"loop": whole(loop), "scan": whole(lambda: weft.scan(step, h0, x)[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--functions", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'function':10}{'loop, ms':>10}{'scan, ms':>10}{'ratio':>8}{'difference':>12}")
    for name in args.functions:
        both = runs(FUNCTIONS[name], (args.steps, args.batch, args.hidden), args.training)
        results = {way: run() for way, run in both.items() for _ in range(3)}
        times: dict[str, list[float]] = {way: [] for way in both}
        for _ in range(args.rounds):
            for way, run in both.items():
                begin = time.perf_counter()
                run()
                times[way].append((time.perf_counter() - begin) * 1e3)
        loop, scan = (statistics.median(times[way]) for way in ("loop", "scan"))
        difference = ((results["loop"] - results["scan"]).abs().max() / results["loop"].abs().max()).item()
        print(f"{name:10}{loop:10.2f}{scan:10.2f}{loop / scan:7.1f}x{difference:12.1e}", flush=True)


if __name__ == "__main__":
    main()
