"""Known differences in words: what somebody did who gets these numbers, and how to do the same here.

The names and their forms come from verification/verify/changes*.cpp; docs/verify.md lists them. Here are those of what
a cell computes; `_rearrangements` has those of parameters, steps, rows and directions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.formats import Activation
from weft.verification import _rearrangements
from weft.verification._results import Change
from weft.verification._where import Text, Where


def change(name: str, detail: str, who: str, where: Where) -> Change:
    """who: "the candidate" or "the reference"."""
    meaning, configuration = _TEXTS[name](detail, where)
    return Change(name, detail, f"{who} {meaning}", configuration)


def sentence(changes: Sequence[Change], who: str) -> str:
    """All of the changes as one sentence."""
    if not changes:
        return "none of the known differences, alone or in a pair, explains it"
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
    if numbers and abs(numbers[0] - 1 / 6) < 1e-8:  # which is printed with nine digits
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


def _forget_bias(detail: str, where: Where) -> tuple[str, str]:
    hidden = where.layer.hidden_size
    verb, sign = ("adds 1 to", "+=") if "more" in detail else ("takes 1 from", "-=")
    code = where.each(f"{{bias_ih}}.data[{hidden}:{2 * hidden}] {sign} 1")
    return f"{verb} what goes into the forget gate", code


def _coupled(detail: str, where: Where) -> tuple[str, str]:
    if detail == "not coupled":
        return "computes input and forget gate each by itself", where.constructor(coupled="")
    kind = "input" if detail == "f = 1 - i" else "forget"
    return f"couples input and forget gate: {detail}", where.constructor(coupled=kind)


def _ignored(what: str, **without: object) -> Text:
    def text(detail: str, where: Where) -> tuple[str, str]:
        return f"has no {what}", where.constructor(**without)

    return text


def _no_peepholes(detail: str, where: Where) -> tuple[str, str]:
    return "has no peepholes", where.each(
        "{weight_ci}.data.zero_(); {weight_cf}.data.zero_(); {weight_co}.data.zero_()"
    )


_TEXTS: dict[str, Text] = {
    "reset_before": _reset(False),
    "reset_after": _reset(True),
    "stale_hidden_state": _stale,
    "stale_cell_state": _stale_cell,
    "update_gate_sense": _update_sense,
    "initial_state": _initial_state,
    "forget_bias": _forget_bias,
    "coupled_gates": _coupled,
    "clip": _ignored("clipping of what goes into the activations", clip=None),
    "cell_clip": _ignored("clipping of the state", cell_clip=None),
    "zoneout": _ignored("zoneout's mixing in of the old state", zoneout=(0.0, 0.0)),
    "epsilon": _epsilon,
    "layer_norm": _ignored("layer normalisation", norm_eps=None),
    "peepholes": _no_peepholes,
    "gate_activation": _activation("gate_activation", "the gates' activation"),
    "hard_sigmoid_slope": _activation("gate_activation", "the gates' activation"),
    "activation": _activation("activation", "the activation"),
    "output_activation": _activation_of_lstm(
        "output_activation", "the activation of the cell state in h' = o k(c')", "h = o * {}(c)"
    ),
    "cell_activation": _activation_of_lstm("activation", "the activation of the cell gate g", "c = f * c + i * {}(g)"),
    "dtype": _dtype,
    **_rearrangements.TEXTS,
}

#: The stable names of all known differences.
NAMES = tuple(_TEXTS)
