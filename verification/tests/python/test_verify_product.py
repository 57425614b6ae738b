"""Samples of the product of known differences: part, gates, steps, which way. PyTorch's own cells compute the wrong
side, one step at a time, with other parameters in the wrong steps."""

from __future__ import annotations

import copy
import itertools
import random

import pytest
import torch
from torch import Tensor, nn

import weft

CELLS = {"GRU": nn.GRUCell, "LSTM": nn.LSTMCell, "RNN": nn.RNNCell}
GATES = {"GRU": "rzn", "LSTM": "ifgo", "RNN": "h"}
TERMS = {
    "recurrent_bias": "bias_hh", "input_bias": "bias_ih", "recurrent_product": "weight_hh",
    "input_product": "weight_ih",
}  # fmt: skip
WHOLE = {"recurrent_bias": "without the recurrent bias", "input_bias": "without the input bias"}
STEPS = {
    "": lambda t, last: True,
    "at step 0 only": lambda t, last: t == 0,
    "at all steps but step 0": lambda t, last: t > 0,
    "at the last step only": lambda t, last: t == last,
    "at all steps but the last": lambda t, last: t < last,
}
INPUTS, UNITS, COUNT, ROWS = 3, 5, 6, 2


def seeded(cell: nn.Module, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return cell.double()


def traced(cell: nn.Module, wrong: nn.Module, at, dtype: torch.dtype, seed: int, clamp: float = 0.0) -> dict:
    """The answer of a loop over the cell that uses `wrong` instead in some steps; h is clamped where clamp isn't 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(COUNT, ROWS, INPUTS, generator=generator).to(dtype)
    lstm = isinstance(cell, nn.LSTMCell)
    states = [torch.randn(ROWS, UNITS, generator=generator).to(dtype) * 0.5 for _ in range(1 + lstm)]
    h: Tensor | tuple[Tensor, ...] = tuple(states) if lstm else states[0]
    ys = []
    with torch.no_grad():
        for t in range(COUNT):
            h = (wrong if at(t, COUNT - 1) else cell).to(dtype)(x[t], h)
            if clamp:
                h = (h[0].clamp(-clamp, clamp), h[1]) if lstm else h.clamp(-clamp, clamp)
            ys.append(h[0] if lstm else h)
    return {"x": x, "y": torch.stack(ys), "h0": states[0]} | ({"c0": states[1]} if lstm else {})


def names(report) -> list[tuple[str, str]]:
    """The names of all single differences in the diagnosis."""
    assert not report.agrees and report.diagnoses, report
    sets = [changes for each in report.diagnoses for changes in (each.changes, *each.also)]
    return [(changes[0].name, changes[0].detail) for changes in sets if len(changes) == 1]


def of_gates(kind: str, gates: tuple[str, ...]) -> str:
    if len(gates) == len(GATES[kind]):
        return ""
    return f", in gate{'s' * (len(gates) > 1)} {', '.join(gates)}"


def scaled(cell: nn.Module, parameter: str, kind: str, gates: tuple[str, ...], factor: float) -> nn.Module:
    wrong = copy.deepcopy(cell)
    with torch.no_grad():
        for gate in gates:
            getattr(wrong, parameter).chunk(len(GATES[kind]))[GATES[kind].index(gate)].mul_(factor)
    return wrong


@pytest.mark.parametrize("seed", range(48))
def test_terms_of_gates_in_steps(seed: int) -> None:
    draw = random.Random(seed)
    kind, term = draw.choice(list(CELLS)), draw.choice(list(TERMS))
    cell = seeded(CELLS[kind](INPUTS, UNITS), seed)
    sets = [s for n in range(1, len(GATES[kind]) + 1) for s in itertools.combinations(GATES[kind], n)]
    gates = draw.choice(sets)
    factor = draw.choice([0.0, 0.0, 0.0, 2.0, -1.0, 0.75])
    whole = len(gates) == len(GATES[kind])
    if factor and len(gates) > 1 and not whole:
        gates = gates[:1]
    steps = "" if factor else draw.choice(list(STEPS))
    wrong = scaled(cell, TERMS[term], kind, gates, factor)
    trace = traced(cell, wrong, STEPS[steps], draw.choice([torch.float32, torch.float64]), seed)
    name, detail = term, f"times {factor:g}" if factor else "missing"
    detail += of_gates(kind, gates)
    if not factor and whole and term in WHOLE:
        name, detail = "one_bias", WHOLE[term]
    detail += f"; {steps}" if steps else ""
    report = weft.verify(cell, trace)
    assert (name, detail) in names(report), f"{kind} {name} {detail}\n{report}"
    assert all(what in str(report) for what in (name, report.diagnoses[0].changes[0].meaning[:30]))


def test_what_reports_were_about() -> None:
    """Known reports: b_hn alone, which flax.nnx's GRU lacks; b_hn at step 0 only, as in MLX before 0.31.2; the two
    biases exchanged."""
    cell = seeded(nn.GRUCell(INPUTS, UNITS), 1)
    without, exchanged = scaled(cell, "bias_hh", "GRU", ("n",), 0.0), copy.deepcopy(cell)
    rows = slice(2 * UNITS, None)
    exchanged.bias_hh.data[rows], exchanged.bias_ih.data[rows] = cell.bias_ih.data[rows], cell.bias_hh.data[rows]
    for wrong, steps, said, words in (
        (without, "", ("recurrent_bias", "missing, in gate n"), "leaves out the recurrent bias of gate n"),
        (without, "at step 0 only", ("recurrent_bias", "missing, in gate n; at step 0 only"), "gate n, at step 0 only"),
        (exchanged, "", ("biases_exchanged", ""), "has the two biases of the candidate gate n exchanged"),
    ):
        report = weft.verify(cell, traced(cell, wrong, STEPS[steps], torch.float32, 2))
        assert names(report) == [said] and words in report.diagnoses[0].sentence, report
    report = weft.verify(without, traced(without, cell, STEPS[""], torch.float32, 2))
    assert not names(report), "what only the other side has no change of these weights can show"
    models = [weft.formats.layers_of_module(each).layers for each in (without, cell)]
    report = weft.verify(*models)
    assert names(report) == [("recurrent_bias", "missing, in gate n")]
    assert report.diagnoses[0].sentence.startswith("the reference leaves out the recurrent bias of gate n")


@pytest.mark.parametrize(("kind", "name"), [("GRU", "cell_clip"), ("RNN", "cell_clip"), ("LSTM", "output_clip")])
@pytest.mark.parametrize("limit", [0.25, 0.3125])
def test_a_bound_that_only_the_candidate_has(kind: str, name: str, limit: float) -> None:
    cell = seeded(CELLS[kind](INPUTS, UNITS), 3)
    report = weft.verify(cell, traced(cell, cell, STEPS[""], torch.float32, 3, clamp=limit))
    assert (name, f"{limit:g}") in names(report), report
