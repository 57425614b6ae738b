"""What threads gain on scans of few rows, where they share rows, share columns and wait for each other, or leave the
work to one thread: milliseconds of one thread and of several in one run, and their ratio. Results are checked first:
all bits must be those of one thread.

    python benchmarks/threads.py --threads 2
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import weft
from measure import median_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from cells.layer_norm_gru import LayerNormGRU

Case = tuple[str, Callable[[], tuple[Tensor, ...]]]


def gate(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    e = torch.tanh(0.5 * h + x)
    return e, (e * x).sum(1)


def cases() -> list[Case]:
    found: list[Case] = []
    for steps, batch in ((5000, 1), (2000, 3), (1000, 7)):
        h, xs = torch.randn(batch, 256), torch.randn(steps, batch, 256)
        found.append((f"gate T{steps} B{batch} H256", lambda h=h, xs=xs: weft.scan(gate, h, xs)))
    for kind, steps, batch, width in (
        (nn.GRU, 1000, 1, 64),
        (nn.GRU, 500, 1, 128),
        (nn.GRU, 200, 7, 128),
        (nn.GRU, 100, 1, 512),
        (nn.LSTM, 300, 1, 256),
        (LayerNormGRU, 500, 1, 64),
        (LayerNormGRU, 300, 1, 256),
        (LayerNormGRU, 100, 7, 256),
    ):
        module, xs = kind(width, width).eval(), torch.randn(steps, batch, width)
        found.append((f"{kind.__name__} T{steps} B{batch} H{width}", lambda module=module, xs=xs: module(xs)))
    return found


def tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=40)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{'case':28} {'1 thread':>10} {f'{options.threads} threads':>10} {'ratio':>6}   (ms, medians)")
    with torch.inference_mode():
        for name, call in cases():
            torch.set_num_threads(1)
            expected = tensors(call())
            torch.set_num_threads(options.threads)
            for ours, theirs in zip(tensors(call()), expected, strict=True):
                assert torch.equal(ours, theirs), f"{name}: other bits on {options.threads} threads"
            rounds: list[tuple[float, float]] = []
            for _ in range(3):  # in turns, so that what else the machine does falls on both
                pair = []
                for threads in (1, options.threads):
                    torch.set_num_threads(threads)
                    pair.append(median_ms(call, options.repeat))
                rounds.append((pair[0], pair[1]))
            one, several = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{name:28} {one:10.3f} {several:10.3f} {one / several:6.2f}")


if __name__ == "__main__":
    main()
