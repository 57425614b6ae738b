"""Known differences in the sums of single gates, and in numbers that were read off a recording, in words; see
`_changes`."""

from __future__ import annotations

import re

from weft.formats import GATES
from weft.verification._where import Text, Where

#: A term in words, and its parameter in a module: for a layer that normalises, the gain of the product.
_TERMS = {
    "input_bias": ("input bias", "bias_ih", "bias_ih"),
    "recurrent_bias": ("recurrent bias", "bias_hh", "bias_hh"),
    "input_product": ("product of the input, W_ih x,", "weight_ih", "weight_ln_ih"),
    "recurrent_product": ("product of the hidden state, W_hh h,", "weight_hh", "weight_ln_hh"),
}


def gates_of(detail: str, where: Where) -> tuple[str, tuple[str, ...]]:
    """A form without ", in gates r, z", and these gates: all gates of a kind where the form names none."""
    form, _, names = re.sub(r", in gates? ", "\0", detail).partition("\0")
    return form, tuple(names.split(", ")) if names else tuple(GATES[where.layer.kind])


def of_gates(gates: tuple[str, ...], where: Where) -> str:
    """The gates in words: " of gate n"; "" for all gates."""
    if len(gates) == len(GATES[where.layer.kind]):
        return ""
    return f" of gate{'s' * (len(gates) > 1)} {', '.join(gates)}"


def rows_of(gates: tuple[str, ...], where: Where) -> list[str]:
    """Slices of a parameter's rows."""
    names, hidden = GATES[where.layer.kind], where.layer.hidden_size
    if len(gates) == len(names):
        return ["[:]"]
    return [f"[{names.index(gate) * hidden}:{(names.index(gate) + 1) * hidden}]" for gate in gates]


def _term(name: str) -> Text:
    what, plain, normalised = _TERMS[name]

    def text(detail: str, where: Where) -> tuple[str, str]:
        form, gates = gates_of(detail, where)
        parameter = plain if where.layer.norm_eps is None else normalised
        number = form.removeprefix("times ")
        change = "= 0" if form == "missing" else f"*= {number}"
        code = "; ".join(where.each(f"{{{parameter}}}.data{rows} {change}") for rows in rows_of(gates, where))
        of = of_gates(gates, where)
        if form == "missing":
            return f"leaves out the {what}{of}".rstrip(","), code
        return f"multiplies the {what}{of} by {number}", code

    return text


def _peepholes(detail: str, where: Where) -> tuple[str, str]:
    if detail == "ignored":
        code = "; ".join(f"{{weight_c{gate}}}.data.zero_()" for gate in "ifo")
        return "has no peepholes", where.each(code)
    form, gates = gates_of(detail, where)
    gates = tuple(gate for gate in gates if gate != "g")
    number = "0" if form == "missing" else form.removeprefix("times ")
    code = "; ".join(where.each(f"{{weight_c{gate}}}.data *= {number}") for gate in gates)
    of = "" if len(gates) == 3 else of_gates(gates, where)
    return f"leaves out the peepholes{of}" if form == "missing" else f"multiplies the peepholes{of} by {number}", code


def _biases_exchanged(detail: str, where: Where) -> tuple[str, str]:
    rows = f"[{2 * where.layer.hidden_size}:]"
    a, b = f"{{bias_ih}}.data{rows}", f"{{bias_hh}}.data{rows}"
    if not detail:
        meaning = "has the two biases of the candidate gate n exchanged: n = g(W_in x + b_hn + r (W_hn h + b_in))"
        return meaning, where.each(f"{a}, {b} = {b}.clone(), {a}.clone()")
    source, target = (a, b) if "input" in detail else (b, a)
    name = "b_in" if "input" in detail else "b_hn"
    meaning = f"has {name} for both biases of the candidate gate n: n = g(W_in x + {name} + r (W_hn h + {name}))"
    return meaning, where.each(f"{target} = {source}")


def _offset(detail: str, where: Where) -> tuple[str, str]:
    form, gates = gates_of(detail, where)
    number, sense = form.split()
    verb, preposition, sign = ("adds", "to", "+=") if sense == "more" else ("takes", "from", "-=")
    gate = gates[0] if len(gates) == 1 else "f"  # forget_bias names no gate
    name = "the forget gate" if len(gates) > 1 else f"gate {gate}"
    code = where.each(f"{{bias_ih}}.data{rows_of((gate,), where)[0]} {sign} {number}")
    return f"{verb} {number} {preposition} what goes into {name}", code


def _clip(detail: str, where: Where) -> tuple[str, str]:
    form, gates = gates_of(detail, where)
    of = of_gates(gates, where)
    where_it_is = f"what goes into the activation{of}" if of else "what goes into the activations"
    limit = None if form == "ignored" else float(form)
    code = where.constructor(clip=limit) if not of else f"a = a.clamp(-{form}, {form})  # in a step for weft.scan"
    if limit is None:
        code = f"# nothing clamps it{of}: a step for weft.scan" if of else code
        return f"has no clipping of {where_it_is}", code
    return f"clamps {where_it_is} to [-{form}, {form}]", code


def _cell_clip(detail: str, where: Where) -> tuple[str, str]:
    state = "the cell state c" if where.layer.kind == "LSTM" else "the state h"
    if detail == "ignored":
        return "has no clipping of the state", where.constructor(cell_clip=None)
    return f"clamps {state} to [-{detail}, {detail}]", where.constructor(cell_clip=float(detail))


def _output_clip(detail: str, where: Where) -> tuple[str, str]:
    line = f"h = h.clamp(-{detail}, {detail})  # in a step for weft.scan, of what it gives and carries on"
    return f"clamps the hidden state h to [-{detail}, {detail}]", line


def _zoneout(detail: str, where: Where) -> tuple[str, str]:
    if detail == "ignored":
        return "has no zoneout's mixing in of the old state", where.constructor(zoneout=(0.0, 0.0))
    number, _, state = detail.partition(" of the old ")
    part, name = (0, "h") if state == "hidden state" else (1, "c")
    both = list(where.layer.zoneout)
    both[part] = float(number)
    meaning = f"mixes in the old {state}: {name}' = {number} {name} + {1 - float(number):g} new {name}"
    return f"{meaning} (zoneout in evaluation, or a leaky unit)", where.constructor(zoneout=tuple(both))


TEXTS: dict[str, Text] = {
    **{name: _term(name) for name in _TERMS},
    "peepholes": _peepholes,
    "biases_exchanged": _biases_exchanged,
    "gate_offset": _offset,
    "forget_bias": _offset,
    "clip": _clip,
    "cell_clip": _cell_clip,
    "output_clip": _output_clip,
    "zoneout": _zoneout,
}
