"""`weft.formats.write`: layers or a trace to a file, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from weft.formats._layers import SIGMOID, TANH, FormatError, Layer, Source, Trace
from weft.formats._registry import by_extension, by_name
from weft.formats._sniff import first_line


def write(
    layers: Source | Trace | Layer | Sequence[Layer], path: str | os.PathLike[str], format: str | None = None
) -> list[str]:
    """Writes layers, or a trace, to a file.

    It is written beside its place and renamed, so that there is all of it or what was there before.

    Args:
        layers: what `read` returned, or layers.
        path: the file; its extension says the format.
        format: pytorch, torch.export, onnx, keras, burn, flax or trace, where the extension leaves several
            (.safetensors is PyTorch's otherwise).

    Returns:
        Notes: what was merged, assumed or lost, a line each.

    Raises:
        FormatError: the format can't express the layers, with all that it can't; nothing is written then. Or the file
            can't be written.
    """
    path = Path(path)
    content: list[Layer] | Trace
    if isinstance(layers, Source):
        content = layers.trace if layers.trace is not None else list(layers.layers)
    elif isinstance(layers, Trace):
        content = layers
    else:
        content = [layers] if isinstance(layers, Layer) else list(layers)
    if isinstance(content, Trace) and format is None:
        format = "trace"
    target = by_extension(path) if format is None else by_name(format)
    if isinstance(content, Trace) != (target.name == "trace"):
        what = "a trace" if isinstance(content, Trace) else "layers"
        raise FormatError(f"{path}: format {target.name} can't hold {what}")
    if not content:
        raise FormatError(f"{path}: there are no layers to write")
    if not path.name.lower().endswith(target.extensions):
        raise FormatError(f"{path}: {target.name} files are named {', '.join(target.extensions)}")
    try:
        with tempfile.TemporaryDirectory(prefix=".weft-", dir=path.parent) as folder:
            new = Path(folder) / path.name
            notes = target.write(content, new)  # type: ignore[arg-type]
            os.replace(new, path)
    except OSError as error:
        raise FormatError(f"{path}: can't be written: {error.strerror or first_line(error)}") from None
    except FormatError as error:
        text = str(error).replace(str(new), str(path))
        raise FormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    return notes


#: What a layer may have beside weights and biases, by the name that `refuse` takes: what it is called.
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
    "no_bias": "no bias",
    "one_bias": "one bias for both products",
    "two_biases": "a bias for each product",
}


def features(layer: Layer) -> set[str]:
    """Which of FEATURES a layer has."""
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
        "no_bias": first.bias_x is None and first.bias_h is None,
        "one_bias": first.bias_x is not None and first.bias_h is None,
        "two_biases": first.bias_x is not None and first.bias_h is not None,
    }
    return {name for name, present in found.items() if present}


def refuse(format: str, layers: Iterable[Layer], supported: Collection[str], more: Iterable[str] = ()) -> None:
    """Raises FormatError that names every feature of the layers that isn't in `supported`, and what `more` says."""
    problems = []
    for layer in layers:
        missing = sorted(features(layer) - set(supported), key=list(FEATURES).index)
        problems += [f"{FEATURES[name]} ({layer.name})" for name in missing]
    problems += more
    if problems:
        raise FormatError(f"{format} can't express {'; '.join(problems)}")
