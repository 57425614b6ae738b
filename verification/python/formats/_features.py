"""Features of layers besides weights and biases, and the error that names the features that a format can't express."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from weft.formats._layers import SIGMOID, TANH, FormatError, Layer

#: Features that a layer may have beside weights and biases: their words in messages, by the name that `refuse` takes.
FEATURES = {
    "reset_before": "reset_after=False",
    "reset_after": "reset_after=True",
    "gate_activation": "another gate activation than sigmoid",
    "activation": "another activation than tanh",
    "output_activation": "an output activation of its own",
    "clip": "clip of what goes into the activations",
    "cell_clip": "clip of the state",
    "coupled": "coupled input and forget gates",
    "norm": "layer normalisation",
    "projection": "a projection of the output",
    "peepholes": "peepholes",
    "state": "an initial state",
    "zoneout": "zoneout",
    "merge": "two directions that are merged other than by concatenation",
    "reverse": "one direction alone that runs backwards",
    "bidirectional": "two directions",
    "order": "two directions of which the first runs backwards, or the second doesn't",
    "sizes": "two directions of different sizes",
    "no_bias": "no bias",
    "one_bias": "one bias for both products",
    "two_biases": "a bias for each product",
}


def features(layer: Layer) -> set[str]:
    """The names in FEATURES of the features that a layer has."""
    first = layer.directions[0]
    is_gru = layer.kind == "GRU"
    found = {
        "reset_before": is_gru and not layer.reset_after,
        "reset_after": is_gru and layer.reset_after,
        "gate_activation": layer.kind != "RNN" and layer.gate_activation != SIGMOID,
        "activation": layer.activation != TANH,
        "output_activation": layer.kind == "LSTM" and layer.output_activation != layer.activation,
        "clip": layer.clip is not None,
        "cell_clip": layer.cell_clip is not None,
        "coupled": bool(layer.coupled),
        "norm": layer.norm_eps is not None,
        "projection": any(d.projection is not None for d in layer.directions),
        "peepholes": any(d.peepholes is not None for d in layer.directions),
        "state": any(d.h0 is not None or d.c0 is not None for d in layer.directions),
        "zoneout": any(layer.zoneout),
        "merge": len(layer.directions) == 2 and layer.merge != "concat",
        "reverse": len(layer.directions) == 1 and first.reverse,
        "bidirectional": len(layer.directions) == 2,
        "order": len(layer.directions) == 2 and [d.reverse for d in layer.directions] != [False, True],
        "sizes": len({(d.weight_x.shape, d.weight_h.shape) for d in layer.directions}) > 1,
        "no_bias": first.bias_x is None and first.bias_h is None,
        "one_bias": first.bias_x is not None and first.bias_h is None,
        "two_biases": first.bias_x is not None and first.bias_h is not None,
    }
    return {name for name, present in found.items() if present}


def refuse(format: str, layers: Iterable[Layer], supported: Collection[str], more: Iterable[str] = ()) -> None:
    """Raises FormatError that names all features of the layers that aren't in `supported`, followed by the texts in
    `more`."""
    problems = []
    for layer in layers:
        missing = sorted(features(layer) - set(supported), key=list(FEATURES).index)
        problems += [f"{FEATURES[name]} ({layer.name})" for name in missing]
    problems += more
    if problems:
        raise FormatError(f"{format} can't express {'; '.join(problems)}")
