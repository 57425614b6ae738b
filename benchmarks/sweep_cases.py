"""What sweep.py measures: random recurrent modules and single cells, and how they are called."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

KINDS = ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell")
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "f16": torch.float16}
FORMS = ("padded", "packed", "stepwise")
# Multiply-adds of a case at most, so that a turn of eager's takes less than about a second on one core.
MOST_FLOPS = 2.5e10
# For the wide cases, which are about short calls.
MOST_WIDE_FLOPS = 2e9


@dataclass(frozen=True)
class Case:
    """A module, its input [steps, batch, inputs] (a cell's: [batch, inputs]) and how it is called."""

    kind: str
    mode: str
    dtype: str
    threads: int
    batch: int
    steps: int
    inputs: int
    hidden: int
    layers: int = 1
    directions: int = 1
    projection: int = 0  #: proj_size of an LSTM
    form: str = "padded"  #: how a sequence is passed: whole, as a PackedSequence, or a step a call
    batch_first: bool = False
    bias: bool = True
    states: bool = False  #: whether first states are passed
    last: bool = False  #: whether the last states alone are used, not y
    input_gradient: bool = True

    @property
    def is_cell(self) -> bool:
        return self.kind.endswith("Cell")

    @property
    def flops(self) -> float:
        weights = self.hidden * (self.inputs + self.hidden)
        weights += (self.layers - 1) * self.hidden * (self.directions + 1) * self.hidden
        gates = GATES[self.kind.removesuffix("Cell")]
        forward = 2.0 * self.steps * self.batch * self.directions * gates * weights
        return forward if self.mode == "forward" else 3 * forward

    def __str__(self) -> str:
        more = {
            f"{self.layers} layers": self.layers > 1,
            "both ways": self.directions > 1,
            f"projected to {self.projection}": self.projection > 0,
            self.form: self.form != "padded",
            "batch first": self.batch_first,
            "no bias": not self.bias,
            "states": self.states,
            "last": self.last,
            "weights' gradients": self.mode == "training" and not self.input_gradient,
        }
        inputs = f" I{self.inputs}" if self.inputs != self.hidden else ""
        words = [f"{self.kind} B{self.batch} T{self.steps}{inputs} H{self.hidden}"]
        return " ".join(words + [name for name, holds in more.items() if holds])


def draw(generator: random.Random, threads: list[int]) -> Case:
    """A random case. Sizes are spread evenly over powers of two, but most are no power of two."""

    def size(low: int, high: int) -> int:
        power = generator.uniform(low, high) if generator.random() < 0.6 else generator.randint(low, high)
        return round(2**power)

    kind = generator.choices(KINDS, (6, 6, 2, 2, 2, 1))[0]
    cell = kind.endswith("Cell")
    hidden = size(5, 11)
    return Case(
        kind=kind,
        mode=generator.choice(("forward", "training")),
        dtype=generator.choice(("f32", "f32", "bf16")),
        threads=generator.choice(threads),
        batch=size(0, 9),
        steps=1 if cell else size(0, 12),
        inputs=hidden if generator.random() < 0.5 else size(0, 10),
        hidden=hidden,
        layers=1 if cell else generator.choice((1, 1, 1, 2)),
        directions=1 if cell else generator.choice((1, 1, 1, 2)),
    )


def draw_wide(generator: random.Random, threads: list[int]) -> Case:
    """A case of what `draw` leaves out too: units from one on, packed sequences, a call a step, projections, float64
    and float16, and whatever else nn.GRU and nn.LSTM may be called with."""

    def chance(probability: float) -> bool:
        return generator.random() < probability

    def size(high: float) -> int:
        return max(1, round(2 ** generator.uniform(0, high)))

    hidden = size(10.5)
    case = Case(
        kind=generator.choices(KINDS, (6, 6, 2, 3, 3, 1))[0],
        mode=generator.choice(("forward", "training")),
        dtype=generator.choices(tuple(DTYPES), (4, 2, 1, 1))[0],
        threads=generator.choice(threads),
        batch=size(8),
        steps=1,
        inputs=hidden if chance(0.4) else size(9),
        hidden=hidden,
        bias=chance(0.85),
        input_gradient=chance(0.5),
    )
    if case.is_cell:
        return replace(case, states=True)
    return replace(
        case,
        steps=size(8),
        layers=generator.choice((1, 1, 1, 2, 3)),
        directions=2 if chance(0.25) else 1,
        projection=hidden // generator.choice((2, 3, 4)) if case.kind == "LSTM" and chance(0.2) else 0,
        form=generator.choices(FORMS, (6, 2, 1))[0],
        batch_first=chance(0.4),
        states=chance(0.5),
        last=chance(0.3),
    )


def drawn(count: int, seed: int, threads: list[int], wide: bool = False) -> list[Case]:
    generator = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        case = (draw_wide if wide else draw)(generator, threads)
        if case.flops <= (MOST_WIDE_FLOPS if wide else MOST_FLOPS):
            cases.append(case)
    return cases


def leaves(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [leaf for part in found for leaf in leaves(part)]


class Subject:
    """A case's module, input and cotangents."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case = case
        dtype = DTYPES[case.dtype]
        self.module = _module(case, dtype)
        shape = [case.batch] if case.is_cell else [case.steps, case.batch]
        x = torch.randn([*shape, case.inputs]).to(dtype)
        if case.batch_first:
            x = x.transpose(0, 1).contiguous()
        self.x = x.requires_grad_(case.mode == "training" and case.input_gradient)
        self.states = [torch.randn(sizes).to(dtype) for sizes in _state_sizes(case)] if case.states else []
        self.lengths = torch.randint(1, case.steps + 1, [case.batch]).sort(descending=True).values
        self.lengths[0] = case.steps
        self.cotangents = [torch.randn_like(leaf) for leaf in self.results()]

    def results(self) -> list[Tensor]:
        """The results of a call: y and the last states, or these alone."""
        module, case = self.module, self.case
        if case.is_cell:
            return leaves(module(self.x, self._given(self.states)))
        if case.form == "stepwise":
            return self._stepwise()
        x: Any = self.x
        if case.form == "packed":
            x = nn.utils.rnn.pack_padded_sequence(x, self.lengths, batch_first=case.batch_first)
        y, state = module(x, self._given(self.states))
        y = y.data if case.form == "packed" else y
        return leaves(state) if case.last else [y, *leaves(state)]

    def _stepwise(self) -> list[Tensor]:
        ys, state = [], self._given(self.states)
        for x in self.x.split(1, 1 if self.case.batch_first else 0):
            y, state = self.module(x, state)
            ys.append(y)
        return leaves(state) if self.case.last else [*ys, *leaves(state)]

    def _given(self, states: list[Tensor]) -> Any:
        """The states as the module takes them."""
        if not states:
            return None
        return tuple(states) if self.case.kind.startswith("LSTM") else states[0]

    def run(self) -> list[Tensor]:
        """The results of a forward, or the gradients of the input and of all parameters."""
        if self.case.mode == "forward":
            with torch.inference_mode():
                return self.results()
        wanted = [leaf for leaf in (self.x, *self.module.parameters()) if leaf.requires_grad]
        return list(torch.autograd.grad(self.results(), wanted, self.cotangents))

    def exact(self) -> list[Tensor]:
        """The same in float64, by PyTorch."""
        other = copy.copy(self)
        other.module = _module(self.case, torch.float64)
        other.module.load_state_dict(self.module.state_dict())
        other.x = self.x.detach().double().requires_grad_(self.x.requires_grad)
        other.states = [state.double() for state in self.states]
        other.cotangents = [cotangent.double() for cotangent in self.cotangents]
        return other.run()


def _module(case: Case, dtype: torch.dtype) -> nn.Module:
    options: dict[str, Any] = {"bias": case.bias, "dtype": dtype}
    if not case.is_cell:
        options |= {"num_layers": case.layers, "bidirectional": case.directions > 1, "batch_first": case.batch_first}
    if case.projection:
        options["proj_size"] = case.projection
    make: Callable[..., nn.Module] = getattr(nn, case.kind)
    return make(case.inputs, case.hidden, **options)


def _state_sizes(case: Case) -> list[list[int]]:
    """The sizes of h, and of c if there is one."""
    lead = [case.batch] if case.is_cell else [case.layers * case.directions, case.batch]
    h, c = [*lead, case.projection or case.hidden], [*lead, case.hidden]
    return [h, c] if case.kind.startswith("LSTM") else [h]


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference of any result, relative to the largest magnitude in it."""
    worst = 0.0
    for ours, reference in zip(found, exact, strict=True):
        if not ours.isfinite().all():
            return float("inf")
        scale = reference.abs().max().item() or 1.0
        worst = max(worst, (ours.double() - reference).abs().max().item() / scale)
    return worst
