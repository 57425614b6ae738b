"""ONNX models: their GRU, LSTM and RNN nodes, in subgraphs and functions too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.formats._files.tensors import parameter
from weft.formats._layers import GATES, Activation, Direction, FormatError, Layer, Source
from weft.formats._onnx.graph import Graph, attributes, load
from weft.formats._onnx.tensors import Files
from weft.formats._options import Options

OPTIONS: tuple[str, ...] = ()

#: The places of our gates among ONNX's blocks, in our order.
ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1), "RNN": (0,)}
PEEPHOLES = (0, 2, 1)  #: ONNX has i, o, f
_DEFAULTS = {"GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "RNN": ("Tanh",)}
#: By ONNX's name of an activation: our name, and the defaults of alpha and beta where it has them.
ACTIVATIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "Sigmoid": ("sigmoid", ()),
    "Tanh": ("tanh", ()),
    "Relu": ("relu", ()),
    "Affine": ("affine", (1.0, 0.0)),
    "LeakyRelu": ("leaky_relu", (0.01,)),
    "ThresholdedRelu": ("thresholded_relu", (1.0,)),
    "ScaledTanh": ("scaled_tanh", (1.0, 1.0)),
    "HardSigmoid": ("hard_sigmoid", (0.2, 0.5)),
    "Elu": ("elu", (1.0,)),
    "Softsign": ("softsign", ()),
    "Softplus": ("softplus", ()),
}
#: Activations whose defaults differ in ONNX Runtime.
_DISPUTED = ("affine", "scaledtanh", "thresholdedrelu")
#: Nodes that may lie between a layer's output and the next layer.
_BETWEEN = ("Squeeze", "Transpose", "Reshape", "Identity", "Cast", "Dropout", "Unsqueeze")
_SPLITS = ("Split", "Slice", "Gather")


def read(path: Path, options: Options) -> Source:
    """The recurrent nodes of a model, in the order in which they run.

    Raises:
        FormatError: the file is damaged; a node has weights that aren't constant, or doesn't do what ONNX defines.
    """
    model = load(path)
    graph = Graph(model, model.graph, Files(path))
    layers: list[Layer] = []
    notes: list[str] = []
    places: dict[tuple[int, int], Layer] = {}  # by the identities of graph and node, which `alive` keeps unique
    alive: list[Any] = []
    shared: dict[tuple[Any, ...], Layer] = {}  # by the names of the weights
    again: dict[str, int] = {}
    before: list[Layer | None] = []
    for where, node in graph.nodes([0]):
        if node.op_type in GATES and node.domain in ("", "ai.onnx"):
            label = node.name or f"{node.op_type}_{len(layers)}"
            key = id(where), node.op_type, *node.input[1:4], *node.input[7:8]
            first = shared.get(key)
            if first is not None and _comes_from(where, node.input[0], places, first) is None:
                places[id(where), id(node)] = first  # a step of a loop that is written out, or a second call
                alive.append((where, node))
                again[first.name] = again.get(first.name, 0) + 1
                continue
            try:
                layers.append(_layer(label, where, node, notes))
            except FormatError as error:
                raise FormatError(f"{path}: node {label!r}: {error}") from None
            alive.append((where, node))
            places[id(where), id(node)] = layers[-1]
            shared.setdefault(key, layers[-1])
            before.append(_comes_from(where, node.input[0], places, layers[-1]))
    notes += [f"{name}: {count} more nodes have the same weights; it is read once" for name, count in again.items()]
    if not layers:
        raise FormatError(
            f"{path}: has no GRU, LSTM or RNN node; it has {_kinds(model)}. Some exporters write out the steps; "
            "torch.onnx.export(..., dynamo=False) keeps the node"
        )
    return Source(str(path), "onnx", _in_chains(layers, before), notes=notes)


def _kinds(model: Any) -> str:
    kinds = list(dict.fromkeys(node.op_type for node in model.graph.node))
    return ", ".join(kinds[:6]) + (", ..." if len(kinds) > 6 else "")


def _in_chains(layers: list[Layer], before: list[Layer | None]) -> list[Layer]:
    """Puts each layer right after the layer that feeds it, if that layer has no follower yet."""
    ordered: list[Layer] = []
    for layer, source in zip(layers, before, strict=True):
        at = next((i for i, other in enumerate(ordered) if other is source), None)
        if at is not None and (at + 1 == len(ordered) or not ordered[at + 1].continues):
            layer.continues = True
            ordered.insert(at + 1, layer)
        else:
            ordered.append(layer)
    return ordered


def _comes_from(graph: Graph, name: str, places: dict[tuple[int, int], Layer], layer: Layer) -> Layer | None:
    """The layer, among those read so far, whose whole output is this one's input."""
    crossed = False
    for _ in range(32):
        made = graph.producer(name)
        if made is None:
            return None
        graph, node = made
        if (id(graph), id(node)) in places:
            source = places[id(graph), id(node)]
            # With the batch first, the directions are beside the units already.
            crossed = crossed or attributes(node, graph.references).get("layout", 0) == 1
            fits = source.output_size == layer.input_size and name == node.output[0]
            return source if fits and (crossed or len(source.directions) == 1) else None
        if node.op_type == "Concat":  # joins the two directions, each by itself
            parts = [graph.producer(part) for part in node.input]
            heads = {_head(*part) for part in parts if part is not None}
            if len(heads) != 1 or None in parts or len(node.input) != 2:
                return None
            crossed, name = True, heads.pop()
        elif node.op_type in _BETWEEN:
            crossed = crossed or (node.op_type == "Transpose" and len(attributes(node).get("perm", ())) == 4)
            name = node.input[0]
        else:
            return None
    return None


def _head(graph: Graph, node: Any) -> str:
    """The output of a recurrent node that this name is a part of; the name itself if there is none."""
    for _ in range(4):
        if node.op_type not in (*_SPLITS, "Squeeze") or not node.input:
            break
        made = graph.producer(node.input[0])
        if node.op_type in _SPLITS:
            return node.input[0]
        if made is None:
            break
        graph, node = made
    return node.output[0]


def _layer(label: str, graph: Graph, node: Any, notes: list[str]) -> Layer:
    kind, own = node.op_type, attributes(node, graph.references)
    inputs = [*node.input, *[""] * 8][:8]
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(own.get("direction", "forward"))
    if count is None:
        raise FormatError(f"direction {own['direction']!r}; there are forward, reverse and bidirectional")
    gates = len(GATES[kind])
    weight_x = _weight(graph, inputs[1], "W", (count, None, None))
    units = weight_x.shape[1] // gates
    if weight_x.shape[1] != gates * units or own.get("hidden_size", units) != units:
        raise FormatError(
            f"W has shape {list(weight_x.shape)} and hidden_size is {own.get('hidden_size', 'missing')}; [{count}, "
            f"{gates} * hidden_size, input_size] is expected"
        )
    weight_h = _weight(graph, inputs[2], "R", (count, gates * units, units), weight_x)
    bias = _weight(graph, inputs[3], "B", (count, 2 * gates * units), weight_x) if inputs[3] else None
    peepholes = _weight(graph, inputs[7], "P", (count, 3 * units), weight_x) if inputs[7] and kind == "LSTM" else None
    batch_first = own.get("layout", 0) == 1
    h0 = _state(graph, inputs[5], "initial_h", count, units, batch_first, label, notes)
    c0 = _state(graph, inputs[6], "initial_c", count, units, batch_first, label, notes) if kind == "LSTM" else None
    if inputs[4]:
        _check_lengths(graph, inputs[4], graph.size(inputs[0], 1 if batch_first else 0), label, notes)
    graph.files.spend(2 * sum(w.numel() * w.itemsize for w in (weight_x, weight_h)), label)
    directions = []
    for i in range(count):
        both = None if bias is None else bias[i].reshape(2, -1)
        directions.append(
            Direction(
                reorder(weight_x[i], ORDER[kind]),
                reorder(weight_h[i], ORDER[kind]),
                None if both is None else reorder(both[0], ORDER[kind]),
                None if both is None else reorder(both[1], ORDER[kind]),
                peepholes=None if peepholes is None else peepholes[i].reshape(3, -1)[list(PEEPHOLES)],
                h0=None if h0 is None else h0[i],
                c0=None if c0 is None else c0[i],
                reverse=i == 1 or own.get("direction") == "reverse",
            )
        )
    activations = _activations(kind, count, own, label, notes)
    clip = own.get("clip")
    if clip is not None and not (math.isfinite(clip) and clip > 0):
        raise FormatError(f"clip is {clip:g}, which should be positive")
    return Layer(
        label,
        kind,
        directions,
        reset_after=kind != "GRU" or own.get("linear_before_reset", 0) != 0,
        **activations,
        clip=None if clip is None else _decimal(clip),
        coupled="input" if kind == "LSTM" and own.get("input_forget", 0) else "",
    )


def _check_lengths(graph: Graph, name: str, steps: int | None, label: str, notes: list[str]) -> None:
    """sequence_lens: if it is constant it must say that every row has all steps, as layers here compute.

    Raises:
        FormatError: it says otherwise, or the file doesn't say how many steps there are.
    """
    constant = graph.constant(name)
    if constant is None:
        notes.append(f"{label}: sequence_lens isn't taken into account: every row is run for all steps")
        return
    lengths = [int(length) for length in constant.value.flatten().tolist()]
    if steps is not None and all(length == steps for length in lengths):
        return
    shown = ", ".join(map(str, lengths[:8])) + (", ..." if len(lengths) > 8 else "")
    of = "whose steps the file doesn't say" if steps is None else f"of {steps} steps"
    raise FormatError(
        f"sequence_lens is the constant [{shown}] beside an input {of}; rows that end earlier can't be expressed here. "
        "Without that input of the node every row is run for all steps"
    )


def reorder(rows: Tensor, order: tuple[int, ...]) -> Tensor:
    """Blocks of rows in the given order."""
    blocks = rows.chunk(len(order), 0)
    return torch.cat([blocks[i] for i in order]).contiguous()


def _weight(graph: Graph, name: str, what: str, shape: tuple[int | None, ...], like: Tensor | None = None) -> Tensor:
    if not name:
        raise FormatError(f"{what} is missing")
    constant = graph.constant(name)
    if constant is None or not constant.is_shaped:
        made = graph.producer(name)
        by = f"made by a {made[1].op_type} node" if made else "an input of the model"
        raise FormatError(f"{what} ({name}) is {by}; weights that are constants are read")
    return parameter({f"{what} ({name})": constant.value}, f"{what} ({name})", shape, like)


def _state(
    graph: Graph, name: str, what: str, count: int, units: int, batch_first: bool, label: str, notes: list[str]
) -> Tensor | None:
    """[directions, B, H], or [directions, H] where all rows are the same; None for zeros."""
    if not name:
        return None
    constant = graph.constant(name)
    if constant is None:
        notes.append(f"{label}: {what} is computed or given when the model runs: zeros are taken for it")
        return None
    value = parameter({what: constant.value}, what)
    if not value.any():
        return None
    # Broadcasting gives the same as ONNX's Expand would.
    shape = (1,) * (3 - value.dim()) + tuple(value.shape)
    if len(shape) != 3 or shape[2] not in (1, units) or shape[1 if batch_first else 0] not in (1, count):
        wanted = f"[B, {count}, {units}]" if batch_first else f"[{count}, B, {units}]"
        raise FormatError(f"{what} has shape {list(value.shape)}, expected {wanted}")
    value = value.reshape(shape)
    value = value.transpose(0, 1) if batch_first else value
    value = value.expand(count, -1, units).contiguous()
    return value[:, 0].clone() if bool((value == value[:, :1]).all()) else value


def _decimal(value: float) -> float:
    """The decimal number from which a float32 attribute was rounded: 0.2, not the float32 nearest to it."""
    return float(str(np.float32(value)))


def _activations(kind: str, count: int, own: dict[str, Any], label: str, notes: list[str]) -> dict[str, Activation]:
    names = own.get("activations") or list(_DEFAULTS[kind]) * count
    each = len(_DEFAULTS[kind])
    if len(names) != each * count:
        raise FormatError(f"has {len(names)} activations, expected {each * count}: {each} of each direction")
    alphas, betas = list(own.get("activation_alpha", [])), list(own.get("activation_beta", []))
    found = []
    for name in names:
        known = {other.lower(): other for other in ACTIVATIONS}
        if name.lower() not in known:
            raise FormatError(f"has activation {name!r}; ONNX has {', '.join(ACTIVATIONS)}")
        ours, defaults = ACTIVATIONS[known[name.lower()]]
        if defaults and name.lower() in _DISPUTED and min(len(alphas), len(betas) + 2 - len(defaults)) < 1:
            wanted = " and ".join(f"{word} {v:g}" for word, v in zip(("alpha", "beta"), defaults, strict=False))
            notes.append(
                f"{label}: its {name} has ONNX's default where the node gives none, {wanted}; some runtimes take 0"
            )
        # As in ONNX Runtime, each activation takes the next number of a list only if it has that parameter.
        values = [
            _decimal(given.pop(0)) if given else default
            for given, default in zip((alphas, betas), defaults, strict=False)
        ]
        found.append(Activation(ours, *values))
    if count == 2 and found[:each] != found[each:]:
        raise FormatError(
            f"its directions have different activations: {', '.join(map(str, found[:each]))} and "
            f"{', '.join(map(str, found[each:]))}"
        )
    keys = {"GRU": ("gate_activation", "activation"), "RNN": ("activation",)}
    return dict(zip(keys.get(kind, ("gate_activation", "activation", "output_activation")), found, strict=False))
