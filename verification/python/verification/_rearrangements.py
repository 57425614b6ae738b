"""Known differences of parameters, steps, rows and directions in words; see `_changes`."""

from __future__ import annotations

import re

from weft.formats import GATES
from weft.verification._where import Text, Where

_PARTS = {
    "": ["weight_ih", "weight_hh", "bias_ih", "bias_hh"],
    "recurrent weight and bias": ["weight_hh", "bias_hh"],
    "input weight and bias": ["weight_ih", "bias_ih"],
    "recurrent weight": ["weight_hh"],
    "input weight": ["weight_ih"],
    "weights, not the biases": ["weight_ih", "weight_hh"],
    "biases": ["bias_ih", "bias_hh"],
    "input bias": ["bias_ih"],
    "recurrent bias": ["bias_hh"],
    "both weights": ["weight_ih", "weight_hh"],
}


def _gate_order(detail: str, where: Where) -> tuple[str, str]:
    match = re.fullmatch(r"rows of (.*?) used as .*?(?:, in the (.*))?", detail)
    assert match is not None, detail
    gates = GATES[where.layer.kind]
    order = [gates.index(gate) for gate in match[1].split(", ")]
    parts = [name for name in _PARTS[match[2] or ""] if name.startswith("weight") or name in where.biases()]
    shape = f"{len(gates)}, {where.layer.hidden_size}, *p.shape[1:]"
    return (
        f"has the gates in another order: {detail}",
        where.loop(parts, f"p.data.view({shape})[{order}].flatten(0, 1)"),
    )


_BIASES = {
    "without the recurrent bias": ("leaves out the recurrent bias", "{bias_hh}.data.zero_()"),
    "without the input bias": ("leaves out the input bias", "{bias_ih}.data.zero_()"),
    "without any bias": ("has no biases", "{bias_ih}.data.zero_(); {bias_hh}.data.zero_()"),
    "the input bias twice": (
        "adds the input bias twice, and not the recurrent one",
        "{bias_hh}.data.copy_({bias_ih})",
    ),
    "the recurrent bias twice": (
        "adds the recurrent bias twice, and not the input one",
        "{bias_ih}.data.copy_({bias_hh})",
    ),
    "the bias twice": ("adds the bias twice", "{bias_hh}.data.copy_({bias_ih})"),
}


def _one_bias(detail: str, where: Where) -> tuple[str, str]:
    meaning, code = _BIASES[detail]
    return meaning, where.each(code)


def _bias_outside(detail: str, where: Where) -> tuple[str, str]:
    rows = f"[{2 * where.layer.hidden_size}:]"
    return (
        "adds the recurrent bias of the candidate gate n outside the reset gate: n = g(X_n + b_hn + r W_hn h), not "
        "g(X_n + r (W_hn h + b_hn))",
        where.each(f"{{bias_ih}}.data{rows} += {{bias_hh}}.data{rows}; {{bias_hh}}.data{rows} = 0"),
    )


def _bias_inside(detail: str, where: Where) -> tuple[str, str]:
    rows = f"[{2 * where.layer.hidden_size}:]"
    if detail == "both biases":
        return (
            "adds both biases of the candidate gate n inside the reset gate: n = g(W_in x + r (W_hn h + b_in + b_hn))",
            where.each(f"{{bias_hh}}.data{rows} += {{bias_ih}}.data{rows}; {{bias_ih}}.data{rows} = 0"),
        )
    return (
        "adds the bias of the candidate gate n inside the reset gate: n = g(W_in x + r (W_hn h + b_n)), not "
        "g(W_in x + b_n + r W_hn h)",
        where.each(f"{{bias_hh}}.data{rows} = {{bias_ih}}.data{rows}; {{bias_ih}}.data{rows} = 0"),
    )


def _transposed(detail: str, where: Where) -> tuple[str, str]:
    gates, hidden = len(GATES[where.layer.kind]), where.layer.hidden_size
    of = detail.removesuffix(", gate by gate")
    return (
        f"has the {of} transposed" + (", gate by gate" if gates > 1 else ""),
        where.loop(_PARTS[of], f"p.data.view({gates}, {hidden}, {hidden}).mT.reshape(p.shape)"),
    )


def _weights_exchanged(detail: str, where: Where) -> tuple[str, str]:
    return (
        "has the input weight and the recurrent weight exchanged",
        where.each("{weight_ih}.data, {weight_hh}.data = {weight_hh}.data, {weight_ih}.data"),
    )


def _column_major(detail: str, where: Where) -> tuple[str, str]:
    written = detail.endswith(", the other way")
    rest = detail.removesuffix(", the other way")
    of = rest.removesuffix(", gate by gate")
    gates, hidden = len(GATES[where.layer.kind]), where.layer.hidden_size
    blocks, rows = (f"{gates}, ", hidden) if of != rest else ("", gates * hidden)
    shape = f"{blocks}{rows}, -1" if written else f"{blocks}-1, {rows}"
    return (
        f"{'wrote' if written else 'reads'} the elements of the {rest} by columns, not by rows",
        where.loop(_PARTS[of], f"p.data.view({shape}).mT.reshape(p.shape)"),
    )


def _time_order(detail: str, where: Where) -> tuple[str, str]:
    flipped = "m(x.flip(0))[0]" + ("" if "processing" in detail else ".flip(0)")
    return f"processes the sequence from the last step to the first, with the {detail}", flipped


def _reverse_output(detail: str, where: Where) -> tuple[str, str]:
    if detail:
        return "gives the results of a direction that runs forward in the reverse order of time", "y.flip(0)"
    directions = where.layer.directions
    part = f"[..., {directions[0].output_size}:]" if len(directions) == 2 else ""
    return "doesn't turn the backward direction's results back to the order of time", f"y{part} = y{part}.flip(0)"


def _batch_axis(detail: str, where: Where) -> tuple[str, str]:
    return (
        "takes the first axis for the batch and the second for time",
        "m(x.transpose(0, 1))[0].transpose(0, 1)  # or batch_first=True",
    )


def _direction_order(detail: str, where: Where) -> tuple[str, str]:
    if detail == "results exchanged":
        half = where.layer.directions[0].output_size
        code = f"torch.cat([y[..., {half}:], y[..., :{half}]], -1)"
        return "concatenates the two directions the other way round", code
    return (
        "has the weights of the two directions exchanged",
        "m.load_state_dict({k.removesuffix('_reverse') if k.endswith('_reverse') else k + '_reverse': v.clone() "
        "for k, v in m.state_dict().items()})",
    )


TEXTS: dict[str, Text] = {
    "gate_order": _gate_order,
    "one_bias": _one_bias,
    "bias_outside_reset": _bias_outside,
    "bias_inside_reset": _bias_inside,
    "transposed_weights": _transposed,
    "column_major": _column_major,
    "weights_exchanged": _weights_exchanged,
    "time_order": _time_order,
    "reverse_output_order": _reverse_output,
    "batch_axis": _batch_axis,
    "direction_order": _direction_order,
}
