"""The cases to measure: cells, shapes, data, and the least time that the machine allows for a case."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

CELLS = {"gru": 3, "lstm": 4, "rnn": 1}
MODES = ("forward", "training")
DTYPES = ("float32", "bfloat16", "float16")
SHAPES = (
    "B1 T128 H128",
    "B1 T256 H512",
    "B16 T128 H256",
    "B64 T64 H512",
    "B128 T32 H1024",
    "B32 T512 H64",
    "B256 T100 H128",
)
WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh")
QUICK_SHAPES = ("B1 T128 H128", "B16 T128 H256", "B32 T512 H64")


@dataclass(frozen=True)
class Case:
    """Layers over x [steps, batch, inputs] -> y [steps, batch, directions * hidden]. `streaming`: a call for each step,
    with the state that the call before returned."""

    cell: str
    mode: str
    batch: int
    steps: int
    inputs: int
    hidden: int
    dtype: str = "float32"  # of x, states, weights and results
    layers: int = 1
    directions: int = 1
    streaming: bool = False

    @property
    def gates(self) -> int:
        return CELLS[self.cell]

    @property
    def is_one_layer(self) -> bool:
        """Whether the case has one layer and one direction."""
        return self.layers == self.directions == 1

    @property
    def shape(self) -> str:
        inputs = "" if self.inputs == self.hidden else f" I{self.inputs}"
        sizes = f"B{self.batch} T{self.steps}{inputs} H{self.hidden}"
        return sizes + self._layers() + (" in calls of T1" if self.streaming else "")

    def _layers(self) -> str:
        return (f" {self.layers} layers" if self.layers > 1 else "") + (" both ways" if self.directions > 1 else "")

    @property
    def inputs_of_layers(self) -> list[int]:
        """The input size of each layer, once for each direction."""
        later = self.directions * self.hidden
        return [later if layer else self.inputs for layer in range(self.layers) for _ in range(self.directions)]

    @property
    def weight_names(self) -> list[str]:
        """The names of Data.weights: w_ih, w_hh, b_ih, b_hh; with several layers or directions each has PyTorch's
        suffix."""
        ways = ("", "_reverse")[: self.directions]
        ends = [""] if self.is_one_layer else [f"_l{layer}{way}" for layer in range(self.layers) for way in ways]
        return [f"{name}{end}" for end in ends for name in WEIGHTS]

    def __str__(self) -> str:
        narrow = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{self.cell} {self.shape} {self.mode}{narrow}"

    @property
    def flops(self) -> float:
        """The flops of the matrix products; the backward has twice those of the forward."""
        inner = sum(inputs + self.hidden for inputs in self.inputs_of_layers)
        forward = 2.0 * self.steps * self.batch * self.gates * self.hidden * inner
        return forward if self.mode == "forward" else 3 * forward


def parse_shape(text: str) -> tuple[int, int, int, int]:
    """`B16 T128 H256` or `B16T128I64H256` as (batch, steps, inputs, hidden); inputs = hidden when it isn't given."""
    match = re.fullmatch(r"B(\d+)\s*T(\d+)\s*(?:I(\d+)\s*)?H(\d+)", text.strip())
    if not match:
        raise ValueError(f"'{text}' is not a shape; write it as B16T128H256 or B16T128I64H256")
    batch, steps, inputs, hidden = match.groups()
    return int(batch), int(steps), int(inputs or hidden), int(hidden)


def grid(cells: list[str], modes: list[str], shapes: list[str], dtypes: list[str]) -> Iterator[Case]:
    """All cases, cell by cell."""
    for cell, dtype, shape, mode in product(cells, dtypes, shapes, modes):
        yield Case(cell, mode, *parse_shape(shape), dtype)


class Data:
    """Tensors of a case, the same for every peer. `states` is (h0,) or (h0, c0), each [layers * directions, batch,
    hidden]; `weights` are w_ih, w_hh, b_ih, b_hh of each layer and direction in PyTorch's layout, order and gate order;
    `cotangent` is what the backward starts from, like y."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*sizes: int, scale: float = 1.0) -> torch.Tensor:
            return (torch.randn(*sizes, generator=generator) * scale).to(getattr(torch, case.dtype))

        rows, hidden = case.gates * case.hidden, case.hidden
        self.x = normal(case.steps, case.batch, case.inputs)
        state = (case.layers * case.directions, case.batch, hidden)
        self.states = tuple(normal(*state, scale=0.5) for _ in range(2 if case.cell == "lstm" else 1))
        scale = hidden**-0.5 / 3**0.5
        self.weights: list[torch.Tensor] = []
        for inputs in case.inputs_of_layers:
            self.weights += [normal(rows, inputs, scale=scale), normal(rows, hidden, scale=scale)]
            self.weights += [normal(rows, scale=scale), normal(rows, scale=scale)]
        self.cotangent = normal(case.steps, case.batch, case.directions * hidden)

    def double(self) -> Data:
        """The same numbers in float64."""
        other = copy.copy(self)
        other.x, other.cotangent = self.x.double(), self.cotangent.double()
        other.states = tuple(state.double() for state in self.states)
        other.weights = [weight.double() for weight in self.weights]
        return other


def limit(case: Case, machine: dict, threads: int) -> float:
    """Seconds that no implementation on this machine gets under, the chain's latency and the epilogue left out.

    The products of a step take their flops at FMA peak or their weights through the caches that hold them, whichever is
    longer, and one barrier where units are split; the better of the split over batch and the split over units counts.
    What doesn't depend on the carry runs at FMA peak.
    """
    peak = machine["fma_f32_flops"] * threads
    weights = 4.0 * case.gates * case.hidden**2
    step_flops = 2.0 * case.gates * case.hidden**2 * case.batch

    def step(over_batch: int, over_units: int) -> float:
        share = weights / over_units
        compute = step_flops / (machine["fma_f32_flops"] * over_batch * over_units)
        barrier = machine["barrier_seconds"] if over_units > 1 else 0.0
        return max(compute, read_seconds(share, machine)) + barrier

    serial_steps = case.steps * (1 if case.mode == "forward" else 2)
    best = min(step(min(threads, case.batch), 1), step(1, threads))
    parallel_flops = case.flops - serial_steps * step_flops
    return serial_steps * best + parallel_flops / peak


def read_seconds(size: float, machine: dict) -> float:
    """The least time in which one core reads `size` bytes that it also read a step ago.

    The bytes come from the smallest cache that holds them. If they are more than L2 holds, a part as large as L2 may
    still be there, and only the rest must come from L3.
    """
    for level in ("l1", "l2"):
        if size <= machine[f"{level}_bytes"]:
            return size / machine[f"{level}_bandwidth"]
    kept = machine["l2_bytes"]
    return kept / machine["l2_bandwidth"] + (size - kept) / machine["l3_bandwidth"]
