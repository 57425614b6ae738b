"""What benchmarks/cells.py measures: the cells of examples/cells at sizes that they have in use."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import weft
from peers import Prepared, Result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from cells.layer_norm_gru import LayerNormGRU
from cells.min_rnn import Linear
from cells.sru import SRU
from cells.zoo import CELLS, Example, Size

LAYER = Size(steps=128, batch=32, width=256)
SIZES = {
    "layer_norm_gru": Size(steps=64, batch=16, width=1024),
    "peephole_lstm": LAYER,
    "mgu": LAYER,
    "zoneout_lstm": LAYER,
    "policy_resets": LAYER,
    "min_gru": LAYER,
    "min_lstm": LAYER,
    "sru": LAYER,
    "indrnn": LAYER,
    "selective_ssm": Size(steps=256, batch=8, width=256),
    "attention_decoder": Size(steps=64, batch=32, width=256, words=64),
    "conv_lstm": Size(steps=16, batch=4, width=32, image=32),
    "neural_ode": Size(steps=100, batch=64, width=64),
    "kalman": Size(steps=200, batch=64, width=4),
    "hmm": Size(steps=128, batch=32, width=64),
    "viterbi": Size(steps=128, batch=32, width=64),
    "crf": Size(steps=128, batch=32, width=32),
    "biquad": Size(steps=1_000_000, batch=2, width=1),
}
# A loop in Python is timed for at most this many steps; times for more are extrapolated.
LOOP_STEPS = 10_000


@dataclass(frozen=True)
class CellCase:
    name: str
    mode: str
    size: Size

    @property
    def shape(self) -> str:
        size, name = self.size, self.name
        if name == "biquad":
            return f"T{size.steps} C{size.batch}"
        extra = f" S{size.words}" if name == "attention_decoder" else ""
        extra = f" {size.image}x{size.image}" if name == "conv_lstm" else extra
        return f"B{size.batch} T{size.steps} H{size.width}{extra}"

    @property
    def random(self) -> bool:
        """Whether random numbers are drawn in the step: results are then compared in eval mode only."""
        return self.name == "zoneout_lstm" and self.mode == "training"

    def shortened(self) -> CellCase:
        return replace(self, size=replace(self.size, steps=min(self.size.steps, LOOP_STEPS)))

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.mode}"


def example_of(case: CellCase) -> Example:
    """The same weights and inputs in every process."""
    torch.manual_seed(0)
    example = CELLS[case.name](case.size)
    if example.module is not None:
        example.module.train(case.mode == "training")
    return example


def cotangents_of(example: Example) -> list[Tensor | None]:
    """A cotangent for each output; None for integer outputs. The shapes come from a call with the present weft.scan."""
    with torch.no_grad():
        outputs = pytree.tree_leaves(example())
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(v.shape, generator=generator) if v.is_floating_point() else None for v in outputs]


def hoisted(example: Example) -> Example:
    """The cell with whatever doesn't depend on the carry computed before the loop, for all steps at once, as one writes
    it for a loop in Python; weft.scan does that itself."""
    module = example.module
    if isinstance(module, Linear):
        return Example(linear_loop(module), example.inputs, module)
    if isinstance(module, SRU):
        return Example(sru_loop(module), example.inputs, module)
    if not isinstance(getattr(module, "input", None), nn.Linear):
        return example
    inner = copy.copy(module)
    inner._modules = {**module._modules, "input": nn.Identity()}
    if isinstance(module, LayerNormGRU):  # where each operation is a call, one of all blocks is faster
        inner.product = lambda h: torch.einsum(
            "bgi,gio->bgo", h.unflatten(1, (module.blocks, -1)), module.recurrent
        ).flatten(1)

    def run(x: Tensor, **state: Any) -> Any:
        inner.training = module.training
        return inner(module.input(x), **state)

    return Example(run, example.inputs, module)


def linear_loop(module: Linear) -> Callable[..., Any]:
    def step(h: Tensor, ab: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h = ab[0] * h + ab[1]
        return h, h

    def run(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h, y = weft.scan(step, h, module.coefficients(x))
        return y, h

    return run


def sru_loop(module: SRU) -> Callable[..., Any]:
    def step(c: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, new, f, r = inputs
        f, r = torch.sigmoid(f + module.v[0] * c), torch.sigmoid(r + module.v[1] * c)
        c = f * c + (1 - f) * new
        return c, r * c + (1 - r) * x

    def run(x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        new, f, r = module.input(x).chunk(3, dim=2)
        c, h = weft.scan(step, c, (module.alpha * x, new, f + module.bias[0], r + module.bias[1]))
        return h, c

    return run


def torch_call(case: CellCase, example: Example, cotangents: list[Tensor | None]) -> Prepared:
    """Forward: the outputs, no graph recorded. Training: the outputs, then the gradients of their product with the
    cotangents with respect to all parameters and floating inputs."""
    if case.mode == "forward":

        def forward() -> list[Tensor]:
            with torch.inference_mode():
                return pytree.tree_leaves(example())

        return Prepared(forward, lambda: numbered(forward()))
    example = example.mapped(lambda value: value.detach().requires_grad_())
    wanted = example.differentiable()

    def train() -> tuple[Tensor, ...]:
        outputs = pytree.tree_leaves(example())
        pairs = [(v, c) for v, c in zip(outputs, cotangents, strict=True) if c is not None]
        return torch.autograd.grad([v for v, _ in pairs], list(wanted.values()), [c for _, c in pairs])

    def result() -> Result:
        if case.random:
            example.module.eval()
        found = {f"d_{name}": value.numpy().copy() for name, value in zip(wanted, train(), strict=True)}
        if case.random:
            example.module.train()
        return found

    return Prepared(train, result)


def numbered(values: list[Any]) -> Result:
    return {f"output {k}": np.array(value) for k, value in enumerate(values)}


def multiply_adds(case: CellCase) -> tuple[str, float] | None:
    """The built-in layer that a cell is like, and the share of that layer's multiply-adds that it has; None for a cell
    whose loop isn't made of matrix products and elementwise work.

    The layer has the cell's batch, steps and width, as many inputs as units: G units (units + units) multiply-adds a
    row and step, G = 3 for GRU, 4 for LSTM. The loop also reads and writes in proportion to them, so that equal
    multiply-adds are about equal bytes.
    """
    h = float(case.size.width)
    gru, lstm = 6 * h * h, 8 * h * h
    hidden = 2 * h  # of the field's MLP
    counts: dict[str, tuple[str, Callable[[], float]]] = {
        "layer_norm_gru": ("gru", lambda: (3 * h * h + 3 * h * h / 8) / gru),
        "peephole_lstm": ("lstm", lambda: 1.0),
        "mgu": ("gru", lambda: 4 * h * h / gru),
        "zoneout_lstm": ("lstm", lambda: 1.0),
        "policy_resets": ("gru", lambda: (6 * h * h + 7 * h) / gru),
        "attention_decoder": ("lstm", lambda: (12 * h * h + 3 * h * h + 2 * case.size.words * h) / lstm),
        "neural_ode": ("gru", lambda: 4 * (2 * h * hidden + hidden * hidden) / gru),
    }
    found = counts.get(case.name)
    return (found[0], found[1]()) if found else None
