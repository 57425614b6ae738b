"""compare.py --grid: the cases from one step to 4,096, one row to 512, 32 units to 2,048.

Sizes are spread evenly over the powers of two, so that the corners are among them; what takes too long, or more memory
than a small machine has, is left out. Besides the plain layers there are calls of one step that carry the state
(streaming), and three layers in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from cases import Case

STEPS, BATCHES, HIDDEN = (1, 16, 256, 4096), (1, 8, 64, 512), (32, 128, 512, 2048)
DEEP_STEPS, DEEP_BATCHES, DEEP_HIDDEN = (1, 64, 4096), (1, 16, 512), (32, 256, 2048)
CALLS = 16  # of a streaming case
# Flops of the products, backward included: about half a second on one core with AVX-512.
MOST_FLOPS = 6e10
# Entries of all layers' outputs: float64 keeps about 150 bytes of each for the backward.
MOST_OUTPUTS = 2**24
# Steps times entries of weights in training: eager's GRU, and any layer in float64, makes and adds up a gradient of all
# weights at each step, ten seconds for 256 steps of 2,048 units.
MOST_SUMMED = 1e9
# Three turns of a twentieth of a second for each peer.
ROUNDS, SECONDS = 3, 0.05
# XLA compiles seven seconds a case, Inductor up to a minute.
PEERS = ("weft", "eager", "onnxruntime", "openvino", "onednn")


def is_affordable(case: Case) -> bool:
    outputs = case.steps * case.batch * case.hidden * case.layers * case.directions
    weights = case.gates * case.hidden * sum(inputs + case.hidden for inputs in case.inputs_of_layers)
    summed = case.steps * weights if case.mode == "training" else 0
    return case.flops <= MOST_FLOPS and outputs <= MOST_OUTPUTS and summed <= MOST_SUMMED


def wide_grid(cells: list[str], modes: list[str], dtypes: list[str]) -> Iterator[Case]:
    """Plain layers, streaming ones, deep ones, for each cell and type."""
    for cell, dtype, mode in product(cells, dtypes, modes):
        first = Case(cell, mode, 1, 1, 1, 1, dtype)
        found = [_sized(first, *sizes) for sizes in product(HIDDEN, BATCHES, STEPS)]
        if mode == "forward":
            streaming = replace(first, streaming=True)
            found += [_sized(streaming, hidden, batch, CALLS) for hidden, batch in product(HIDDEN, BATCHES)]
        deep = replace(first, layers=3, directions=2)
        found += [_sized(deep, *sizes) for sizes in product(DEEP_HIDDEN, DEEP_BATCHES, DEEP_STEPS)]
        yield from filter(is_affordable, found)


def _sized(case: Case, hidden: int, batch: int, steps: int) -> Case:
    return replace(case, hidden=hidden, inputs=hidden, batch=batch, steps=steps)
