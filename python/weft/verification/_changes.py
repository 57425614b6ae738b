"""Known differences in words: what somebody did who gets these numbers, and how to do the same here.

The names and their forms come from src/verify/changes*.cpp; docs/verify.md lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from weft.formats import GATES, Layer
from weft.verification._report import Change


def change(name: str, detail: str, who: str, layer: Layer, steps: int) -> Change:
    """who: "the candidate" or "the reference"; layer: one of those that it is about, as it was before the change."""
    meaning, configuration = _TEXTS[name](detail, layer, steps)
    return Change(name, detail, f"{who} {meaning}", configuration)


def sentence(changes: Sequence[Change], who: str) -> str:
    """All of the changes as one sentence."""
    if not changes:
        return "none of the known differences, alone or in a pair, explains it"
    texts = [change.meaning.removeprefix(f"{who} ") for change in changes]
    if len(texts) == 1:
        return changes[0].meaning
    return f"{who} {texts[0]}; and it {texts[1]}"


_Text = Callable[[str, Layer, int], tuple[str, str]]


def _module(layer: Layer, **options: str) -> str:
    words = [str(layer.input_size), str(layer.hidden_size)]
    words += ["bidirectional=True"] if len(layer.directions) == 2 else []
    if not layer.reset_after and "reset_after" not in options:
        words.append("reset_after=False")
    words += [f"{name}={value}" for name, value in options.items()]
    return f"weft.nn.{layer.kind}({', '.join(words)})"


def _reset(after: bool) -> _Text:
    def text(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
        where = ("after the hidden product, not before it", "before the hidden product, not after it")
        others = (
            f"Keras: reset_after={after}; ONNX: linear_before_reset={int(after)}; Burn: reset_after {after}".lower()
        )
        others = others.replace("keras", "Keras").replace("onnx", "ONNX").replace("burn", "Burn")
        others = others.replace("=true", "=True").replace("=false", "=False")
        return (
            f"applies the reset gate {where[0] if after else where[1]}",
            f"{_module(layer, reset_after=str(after))}  # {others}",
        )

    return text


def _stale(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    state = detail if layer.kind == "LSTM" else "hidden state"
    both = " and " in state
    where = "" if layer.kind == "LSTM" or not detail else f" {detail}"
    meaning = (
        f"computes every step from the initial {state}{where}, not from the last step's: the {state} "
        f"{'are' if both else 'is'} stale from step 1 on"
    )
    arguments = "(h, c)" if layer.kind == "LSTM" else "h"
    return meaning, f"for t in range(T): {arguments} = cell(x[t], {arguments})  # not cell(x[t], {_initial(layer)})"


def _initial(layer: Layer) -> str:
    return "(h0, c0)" if layer.kind == "LSTM" else "h0"


def _stale_cell(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    return (
        "computes every step from the initial cell state, not from the last step's: the cell state is stale from step "
        "1 on",
        "for t in range(T): h, c = cell(x[t], (h, c))  # not cell(x[t], (h, c0))",
    )


def _gate_order(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    match = re.match(r"rows of (.*?) used as", detail)
    gates = GATES[layer.kind]
    order = [gates.index(gate) for gate in match[1].split(", ")] if match else []
    of = detail.partition(", in the ")[2]
    names = {
        "": ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"),
        "recurrent weight and bias": ("weight_hh_l0", "bias_hh_l0"),
        "input weight and bias": ("weight_ih_l0", "bias_ih_l0"),
        "recurrent weight": ("weight_hh_l0",),
        "input weight": ("weight_ih_l0",),
        "weights, not the biases": ("weight_ih_l0", "weight_hh_l0"),
        "biases": ("bias_ih_l0", "bias_hh_l0"),
        "input bias": ("bias_ih_l0",),
        "recurrent bias": ("bias_hh_l0",),
    }[of]
    return (
        f"has the gates in another order: {detail}",
        f"for p in ({', '.join(f'm.{name}' for name in names)}{',' if len(names) == 1 else ''}): "
        f"p.data = p.data.view({len(gates)}, {layer.hidden_size}, *p.shape[1:])[{order}].flatten(0, 1)",
    )


_BIASES = {
    "without the recurrent bias": ("leaves out the recurrent bias", "m.bias_hh_l0.data.zero_()"),
    "without the input bias": ("leaves out the input bias", "m.bias_ih_l0.data.zero_()"),
    "without any bias": ("has no biases", ""),
    "the input bias twice": (
        "adds the input bias twice, and not the recurrent one",
        "m.bias_hh_l0.data.copy_(m.bias_ih_l0)",
    ),
    "the recurrent bias twice": (
        "adds the recurrent bias twice, and not the input one",
        "m.bias_ih_l0.data.copy_(m.bias_hh_l0)",
    ),
    "the bias twice": ("adds the bias twice", "m.bias_hh_l0.data.copy_(m.bias_ih_l0)"),
}


def _one_bias(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    meaning, code = _BIASES[detail]
    return meaning, code or _module(layer, bias="False")


def _bias_outside(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    rows = f"[{2 * layer.hidden_size}:]"
    return (
        "adds the recurrent bias of the candidate gate n outside the reset gate: n = g(X_n + b_hn + r W_hn h), not "
        "g(X_n + r (W_hn h + b_hn))",
        f"m.bias_ih_l0.data{rows} += m.bias_hh_l0.data{rows}; m.bias_hh_l0.data{rows} = 0",
    )


def _bias_inside(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    rows = f"[{2 * layer.hidden_size}:]"
    return (
        "adds the bias of the candidate gate n inside the reset gate: n = g(W_in x + r (W_hn h + b_n)), not "
        "g(W_in x + b_n + r W_hn h)",
        f"m.bias_hh_l0.data{rows} = m.bias_ih_l0.data{rows}; m.bias_ih_l0.data{rows} = 0",
    )


def _update_sense(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    rows = f"[{layer.hidden_size}:{2 * layer.hidden_size}]"
    return (
        "has the update gate in the other sense: h' = z n + (1 - z) h, not (1 - z) n + z h",
        f"for p in m.parameters(): p.data{rows} *= -1  # sigmoid(-a) = 1 - sigmoid(a)",
    )


def _activation(option: str, what: str) -> _Text:
    def text(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
        was = {"gate_activation": layer.gate_activation, "output_activation": layer.output_activation}
        before = was.get(option, layer.activation)
        if option in ("output_activation", "cell_activation"):
            return f"has {detail} for {what}, not {before}", _step_of_lstm(option, detail)
        return f"has {detail} for {what}, not {before}", _module(layer, **{option: _as_code(detail)})

    return text


def _step_of_lstm(option: str, activation: str) -> str:
    if option == "output_activation":
        return f"h = o * {activation}(c)  # in a step for weft.scan: weft.nn.LSTM has one activation for both"
    return f"c = f * c + i * {activation}(g)  # in a step for weft.scan: weft.nn.LSTM has one activation for both"


def _as_code(activation: str) -> str:
    match = re.fullmatch(r"hard_sigmoid\(([^,]+), ([^)]+)\)", activation)
    if match is None:
        return repr(re.sub(r"\(.*", "", activation))
    if abs(float(match[1]) - 1 / 6) < 1e-8:
        return "'hard_sigmoid'"
    return f"lambda x: ({match[1]} * x + {match[2]}).clamp(0, 1)"


def _time_order(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    flipped = "m(x.flip(0))[0]" + ("" if "processing" in detail else ".flip(0)")
    return f"processes the sequence from the last step to the first, with the {detail}", flipped


def _reverse_output(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    if detail:
        return "gives the results of a direction that runs forward in the reverse order of time", "y.flip(0)"
    part = f"[..., {layer.directions[0].output_size}:]" if len(layer.directions) == 2 else ""
    return (
        "doesn't turn the backward direction's results back to the order of time",
        f"y{part} = y{part}.flip(0)",
    )


def _batch_axis(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    return (
        "takes the first axis for the batch and the second for time",
        f"{_module(layer, batch_first='True')}  # or x.transpose(0, 1)",
    )


def _direction_order(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    if detail == "results exchanged":
        half = layer.directions[0].output_size
        return (
            "concatenates the two directions the other way round",
            f"torch.cat([y[..., {half}:], y[..., :{half}]], -1)",
        )
    return (
        "has the weights of the two directions exchanged",
        "for name, p in state.items(): other[name.removesuffix('_reverse') if name.endswith('_reverse') else "
        "name + '_reverse'] = p",
    )


def _weights(detail: str) -> list[str]:
    which = {"recurrent weight": ["weight_hh_l0"], "input weight": ["weight_ih_l0"]}
    return which.get(detail.split(",")[0], ["weight_ih_l0", "weight_hh_l0"])


def _transposed(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    gates, hidden = len(GATES[layer.kind]), layer.hidden_size
    names = ", ".join(f"m.{name}" for name in _weights(detail))
    of = detail.split(",")[0]
    return (
        f"has the {of} transposed, gate by gate" if gates > 1 else f"has the {of} transposed",
        f"for p in ({names},): p.data = p.data.view({gates}, {hidden}, {hidden}).mT.reshape(p.shape)",
    )


def _column_major(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    names = ", ".join(f"m.{name}" for name in _weights(detail))
    blocks = f"{len(GATES[layer.kind])}, " if "gate by gate" in detail else ""
    rows = layer.hidden_size if blocks else layer.hidden_size * len(GATES[layer.kind])
    if "the other way" in detail:
        code = f"p.data.view({blocks}{rows}, -1).mT.reshape(p.shape)"
    elif blocks:
        code = f"p.data.view({blocks}-1, {rows}).mT.reshape(p.shape)"
    else:
        code = f"p.data.view(-1, {rows}).mT.contiguous()"
    of = detail.replace(", the other way", "")
    verb = "wrote" if "the other way" in detail else "reads"
    return f"{verb} the elements of the {of} by columns, not by rows", f"for p in ({names},): p.data = {code}"


def _initial_state(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    if "two directions" in detail:
        return "starts each direction from the other's initial state", "m(x, h0.flip(0))"
    if "exchanged" in detail:
        return "takes h0 for the cell state and c0 for the hidden state", "m(x, (c0, h0))"
    code = {"zeros instead of h0": "m(x, (torch.zeros_like(h0), c0))", "zeros instead of c0": "m(x, (h0, 0 * c0))"}
    return f"starts from {detail}", code.get(detail, "m(x)  # without an initial state")


def _epsilon(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    return (
        f"normalises with epsilon {detail}, not {layer.norm_eps:g}",
        f"functional.layer_norm(a, a.shape[-1:], gain, eps={detail})  # in a step for weft.scan; weft.nn has 1e-5",
    )


def _dtype(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    name = detail.split()[-1]
    if detail.startswith("weights"):
        return f"has the {detail}", f"for p in m.parameters(): p.data = p.to(torch.{name}).to(p.dtype)"
    return f"is {detail}", f"m.to(torch.{name})(x.to(torch.{name}))"


def _forget_bias(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    rows = f"[{layer.hidden_size}:{2 * layer.hidden_size}]"
    verb, sign = ("adds 1 to", "+=") if "more" in detail else ("takes 1 from", "-=")
    return f"{verb} what goes into the forget gate", f"m.bias_ih_l0.data{rows} {sign} 1"


def _coupled(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
    if detail == "not coupled":
        return "computes input and forget gate each by itself", _module(layer)
    value = "'input'" if detail == "f = 1 - i" else "'forget'"
    return f"couples input and forget gate: {detail}", _module(layer, coupled_input_forget=value)


def _ignored(what: str, option: str) -> _Text:
    def text(detail: str, layer: Layer, steps: int) -> tuple[str, str]:
        return f"has no {what}", _module(layer) + f"  # without {option}"

    return text


_TEXTS: dict[str, _Text] = {
    "reset_before": _reset(False),
    "reset_after": _reset(True),
    "stale_hidden_state": _stale,
    "stale_cell_state": _stale_cell,
    "update_gate_sense": _update_sense,
    "bias_outside_reset": _bias_outside,
    "bias_inside_reset": _bias_inside,
    "initial_state": _initial_state,
    "forget_bias": _forget_bias,
    "coupled_gates": _coupled,
    "clip": _ignored("clipping of what goes into the activations", "clip"),
    "cell_clip": _ignored("clipping of the state", "cell_clip"),
    "zoneout": _ignored("zoneout's mixing in of the old state", "zoneout"),
    "epsilon": _epsilon,
    "layer_norm": _ignored("layer normalisation", "layer_norm"),
    "gate_order": _gate_order,
    "one_bias": _one_bias,
    "transposed_weights": _transposed,
    "column_major": _column_major,
    "peepholes": _ignored("peepholes", "peepholes"),
    "gate_activation": _activation("gate_activation", "the gates' activation"),
    "hard_sigmoid_slope": _activation("gate_activation", "the gates' activation"),
    "activation": _activation("activation", "the activation"),
    "output_activation": _activation("output_activation", "the activation of the cell state in h' = o k(c')"),
    "cell_activation": _activation("cell_activation", "the activation of the cell gate g"),
    "time_order": _time_order,
    "reverse_output_order": _reverse_output,
    "direction_order": _direction_order,
    "batch_axis": _batch_axis,
    "dtype": _dtype,
}

#: The stable names of all known differences.
NAMES = tuple(_TEXTS)
