"""Known differences in words: what an implementation with these numbers does, and how to do the same here.

The names and their forms come from verification/verify/diagnosis/changes*.cpp; docs/verify.md lists them. This file has
differences in what a cell computes; `_rearrangements` those of parameters, steps, rows and directions, `_terms` those
of single gates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.formats import Activation
from weft.verification import _rearrangements, _terms
from weft.verification._results import Change
from weft.verification._where import Text, Where


def change(name: str, detail: str, who: str, where: Where) -> Change:
    """who: "the candidate" or "the reference"."""
    form, steps = _by_steps(detail)
    meaning, configuration = _TEXTS[name](form, where)
    if steps:
        meaning += f", {steps}"
        configuration += f"\n# so {steps}: {_STEPS[steps]}"
    return Change(name, detail, f"{who} {meaning}", configuration)


#: Steps to which a change may be limited, and how to run a module for these steps.
_STEPS = {
    "at step 0 only": "m(x[:1], h0), the others without it",
    "at the last step only": "m(x[-1:], h), the others without it",
    "at all steps but step 0": "m(x[1:], h), step 0 without it",
    "at all steps but the last": "m(x[:-1], h0), the last without it",
}


def _by_steps(detail: str) -> tuple[str, str]:
    """Splits a form into the form without its steps, and the steps to which it is limited."""
    for steps in _STEPS:
        if detail.endswith(steps):
            return detail.removesuffix(steps).removesuffix("; "), steps
    return detail, ""


def sentence(changes: Sequence[Change], who: str) -> str:
    """All of the changes as one sentence."""
    if not changes:
        return "none of the known differences, alone, in a pair or three at once, explains it"
    return "; and it ".join([changes[0].meaning, *(change.meaning.removeprefix(f"{who} ") for change in changes[1:])])


def _reset(after: bool) -> Text:
    where_it_is = "after the hidden product, not before it" if after else "before the hidden product, not after it"
    elsewhere = f"Keras: reset_after={after}; ONNX: linear_before_reset={int(after)}; Burn: reset_after {after}"

    def text(detail: str, where: Where) -> tuple[str, str]:
        constructor = where.constructor(reset_after=after)
        beside = "\n" if "\n" in constructor else "  "
        return f"applies the reset gate {where_it_is}", f"{constructor}{beside}# {elsewhere}"

    return text


def _stale(detail: str, where: Where) -> tuple[str, str]:
    lstm = where.layer.kind == "LSTM"
    state = detail if lstm else "hidden state"
    part = f" {detail}" if detail and not lstm else ""
    verb = "are" if " and " in state else "is"
    carry, initial = ("(h, c)", "(h0, c0)") if lstm else ("h", "h0")
    return (
        f"computes every step from the initial {state}{part}, not from the last step's: the {state} {verb} stale from "
        "step 1 on",
        f"for t in range(T): {carry} = cell(x[t], {carry})  # not cell(x[t], {initial})",
    )


def _stale_cell(detail: str, where: Where) -> tuple[str, str]:
    return (
        "computes every step from the initial cell state, not from the last step's: the cell state is stale from step "
        "1 on",
        "for t in range(T): h, c = cell(x[t], (h, c))  # not cell(x[t], (h, c0))",
    )


def _update_sense(detail: str, where: Where) -> tuple[str, str]:
    hidden = where.layer.hidden_size
    parameters = ", ".join(where.parameters("weight_ih", "weight_hh", *where.biases()))
    return (
        "has the update gate in the other sense: h' = z n + (1 - z) h, not (1 - z) n + z h",
        f"for p in ({parameters}): p.data[{hidden}:{2 * hidden}] *= -1  # sigmoid(-a) = 1 - sigmoid(a)",
    )


def _activation(field: str, what: str) -> Text:
    def text(detail: str, where: Where) -> tuple[str, str]:
        form, gates = _terms.gates_of(detail, where)
        if form != detail:
            meaning = f"has {form} for the activation{_terms.of_gates(gates, where)}, not {where.layer.gate_activation}"
            name = re.sub(r"\(.*", "", form)
            return (
                meaning,
                f"{gates[0]} = {name}(a)  # in a step for weft.scan: weft.nn has one activation for all gates",
            )
        meaning = f"has {detail} for {what}, not {getattr(where.layer, field)}"
        activation = _parsed(detail)
        fields = {field: activation}
        if field == "activation" and where.layer.kind == "LSTM":
            fields["output_activation"] = activation
        return meaning, where.constructor(**fields)

    return text


def _activation_of_lstm(field: str, what: str, line: str) -> Text:
    def text(detail: str, where: Where) -> tuple[str, str]:
        code = line.format(re.sub(r"\(.*", "", detail))
        meaning = f"has {detail} for {what}, not {getattr(where.layer, field)}"
        return meaning, f"{code}  # in a step for weft.scan: weft.nn.LSTM has one activation for both"

    return text


def _parsed(text: str) -> Activation:
    match = re.fullmatch(r"(\w+)(?:\(([^,]+)(?:, (.+))?\))?", text)
    assert match is not None, text
    numbers = [float(number) for number in match.groups()[1:] if number is not None]
    if numbers and abs(numbers[0] - 1 / 6) < 1e-8:  # numbers are printed with nine digits
        numbers[0] = 1 / 6
    return Activation(match[1], *numbers)


def _initial_state(detail: str, where: Where) -> tuple[str, str]:
    if "two directions" in detail:
        return "starts each direction from the other's initial state", "m(x, h0.flip(0))"
    if "exchanged" in detail:
        return "takes h0 for the cell state and c0 for the hidden state", "m(x, (c0, h0))"
    code = {"zeros instead of h0": "m(x, (0 * h0, c0))", "zeros instead of c0": "m(x, (h0, 0 * c0))"}
    return f"starts from {detail}", code.get(detail, "m(x)  # without an initial state")


def _epsilon(detail: str, where: Where) -> tuple[str, str]:
    return (
        f"normalises with epsilon {detail}, not {where.layer.norm_eps:g}",
        f"functional.layer_norm(a, a.shape[-1:], gain, eps={detail})  # in a step for weft.scan; weft.nn has 1e-5",
    )


def _dtype(detail: str, where: Where) -> tuple[str, str]:
    name = detail.split()[-1]
    if detail.startswith("weights"):
        return f"has the {detail}", f"for p in m.parameters(): p.data = p.to(torch.{name}).to(p.dtype)"
    if detail.startswith("operands"):
        bits = re.search(r"(\d+) bits", detail)
        dtype = "bfloat16" if bits and bits[1] == "8" else "float16"
        meaning = f"has the {detail}, and adds up what comes out in float32"
        return meaning, f"h = functional.linear(x.to(torch.{dtype}).float(), w.to(torch.{dtype}).float())  # and of h"
    return f"is {detail}", f"m.to(torch.{name})(x.to(torch.{name}))"


def _coupled(detail: str, where: Where) -> tuple[str, str]:
    if detail == "not coupled":
        return "computes input and forget gate each by itself", where.constructor(coupled="")
    kind = "input" if detail == "f = 1 - i" else "forget"
    return f"couples input and forget gate: {detail}", where.constructor(coupled=kind)


def _ignored(what: str, **without: object) -> Text:
    def text(detail: str, where: Where) -> tuple[str, str]:
        return f"has no {what}", where.constructor(**without)

    return text


_TEXTS: dict[str, Text] = {
    "reset_before": _reset(False),
    "reset_after": _reset(True),
    "stale_hidden_state": _stale,
    "stale_cell_state": _stale_cell,
    "update_gate_sense": _update_sense,
    "initial_state": _initial_state,
    "coupled_gates": _coupled,
    "epsilon": _epsilon,
    "layer_norm": _ignored("layer normalisation", norm_eps=None),
    "gate_activation": _activation("gate_activation", "the gates' activation"),
    "hard_sigmoid_slope": _activation("gate_activation", "the gates' activation"),
    "activation": _activation("activation", "the activation"),
    "output_activation": _activation_of_lstm(
        "output_activation", "the activation of the cell state in h' = o k(c')", "h = o * {}(c)"
    ),
    "cell_activation": _activation_of_lstm("activation", "the activation of the cell gate g", "c = f * c + i * {}(g)"),
    "dtype": _dtype,
    **_rearrangements.TEXTS,
    **_terms.TEXTS,
}

#: The stable names of all known differences.
NAMES = tuple(_TEXTS)
