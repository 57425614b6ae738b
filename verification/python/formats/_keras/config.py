"""The recurrent layers in a Keras model's config, and which layer feeds which. The config is data; Keras isn't
asked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from weft.formats._layers import SIGMOID, TANH, Activation, FormatError
from weft.formats._options import activation

KINDS = {"GRU": "GRU", "LSTM": "LSTM", "SimpleRNN": "RNN", "GRUCell": "GRU", "LSTMCell": "LSTM", "SimpleRNNCell": "RNN"}
MERGES = ("concat", "sum", "mul", "ave")
#: Layers whose output sequence is their input, when nothing is trained.
_TRANSPARENT = {
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "Identity",
    "InputLayer",
    "SpatialDropout1D",
}
#: Activations whose names in Keras differ from those here, with the parameters that Keras uses.
_ACTIVATIONS = {
    "celu": ("elu", 1.0),
    "exponential": ("exp",),
    "hard_swish": ("hard_silu",),
    "leaky_relu": ("leaky_relu", 0.2),
    "linear": ("identity",),
    "swish": ("silu",),
}
#: Activations with the same name here.
SAME = ("tanh", "sigmoid", "relu", "hard_tanh", "softsign", "softplus", "selu", "silu", "gelu", "mish", "relu6")
SAME = (*SAME, "hard_silu", "log_sigmoid")


@dataclasses.dataclass(frozen=True)
class Flow:
    """A tensor of the model: the sequence that a recurrent layer made, in either order of time."""

    layer: int  #: index into Walk.found
    flipped: bool  #: its first step is the last of the model's input


@dataclasses.dataclass
class Cell:
    """One direction of a recurrent layer, and the place of its weights."""

    config: dict[str, Any]
    path: str  #: the group with `vars`, in Keras 3's layout
    top: str  #: in Keras 2's layout: the layer of the outermost model that the cell belongs to,
    number: int  #: and the cell's number among that layer's
    reverse: bool


@dataclasses.dataclass
class Found:
    """A recurrent layer."""

    name: str
    kind: str
    cells: list[Cell]
    merge: str = "concat"
    source: int | None = None  #: the layer whose output is its input


def read_activation(value: Any, keras2: bool) -> Activation:
    """Reads an activation of a config: a name, None, a function or a layer as Keras serialises them.

    Raises:
        FormatError: layers here have no such activation.
    """
    if value is None:
        return activation("identity")
    config = value.get("config") if isinstance(value, dict) else value
    if isinstance(config, dict):
        name = str(value.get("class_name"))
        slope = config.get("negative_slope", config.get("alpha"))
        if name == "LeakyReLU":
            return activation("leaky_relu", 0.3 if slope is None else float(slope))
        if name == "ELU":
            return activation("elu", 1.0 if config.get("alpha") is None else float(config["alpha"]))
        if name == "ReLU" and not slope and not config.get("threshold") and config.get("max_value") in (None, 6):
            return activation("relu" if config.get("max_value") is None else "relu6")
        config = config.get("activation") if name == "Activation" else name
    name = str(config)
    if name == "hard_sigmoid":
        return activation(name, 0.2, 0.5) if keras2 else activation(name, 1 / 6, 0.5)
    if name in _ACTIVATIONS:
        return activation(*_ACTIVATIONS[name])
    if name in SAME or name == "elu":
        return activation(name)
    raise FormatError(f"activation {name!r} is none of {', '.join([*SAME, 'elu', *_ACTIVATIONS])}")


def activations(found: Found, keras2: bool) -> tuple[Activation, Activation]:
    """The cell's gate activation and its other activation.

    Raises:
        FormatError: an activation that isn't known, or the directions differ.
    """
    both = []
    for cell in found.cells:
        gate = SIGMOID if found.kind == "RNN" else cell.config.get("recurrent_activation", "sigmoid")
        inner = cell.config.get("activation", "tanh")
        try:
            gate = gate if isinstance(gate, Activation) else read_activation(gate, keras2)
            both.append((gate, read_activation(inner, keras2) if inner != "tanh" else TANH))
        except FormatError as error:
            raise FormatError(f"layer {found.name!r}: {error}") from None
    if len(set(both)) > 1:
        raise FormatError(f"layer {found.name!r}: its directions have different activations")
    return both[0]


class Walk:
    """Collects the recurrent layers of a model in the order in which data passes them."""

    def __init__(self, config: dict[str, Any], keras2: bool) -> None:
        self.found: list[Found] = []
        self.notes: list[str] = []
        self._keras2 = keras2
        self._cells_of: dict[str, int] = {}
        inner = config.get("config")
        # Keras 1's Sequential was a bare list.
        self._model(inner if isinstance(inner, dict) else {"layers": inner}, "", "", [])

    def _model(self, config: dict[str, Any], path: str, top: str, inputs: list[Flow | None]) -> list[Flow | None]:
        if "input_layers" in config:
            return self._functional(config, path, top, inputs)
        flows = inputs[:1] or [None]
        for entry, below in _entries(config, path):
            flows = self._layer(entry, below, top or _name(entry), flows)
        return flows

    def _functional(self, config: dict[str, Any], path: str, top: str, inputs: list[Flow | None]) -> list[Flow | None]:
        names = [name for name, _ in _histories(config["input_layers"])]
        given = dict(zip(names, inputs, strict=False))
        made: dict[str, list[Flow | None]] = {}
        for entry, below in _entries(config, path):
            name = _name(entry)
            nodes = entry.get("inbound_nodes") or []
            sources = [(made.get(source) or [None])[:1] for source, _ in _histories(nodes[0])] if nodes else []
            for i, (source, output) in enumerate(_histories(nodes[0]) if nodes else ()):
                outputs = made.get(source, [])
                sources[i] = [outputs[output]] if output < len(outputs) else [None]
            flows = [given.get(name)] if not nodes else [flow for (flow,) in sources]
            made[name] = self._layer(entry, below, top or name, flows)
            if _is_recurrent(entry) and _has_mask(nodes):
                self.notes.append(f"layer {name!r} is called with a mask; here no step is skipped")
            if len(nodes) > 1 and _is_recurrent(entry):
                self.notes.append(f"layer {name!r} is called {len(nodes)} times; it is read once, with its first input")
        return [
            (made.get(name, []) + [None] * (output + 1))[output] for name, output in _histories(config["output_layers"])
        ]

    def _layer(self, entry: dict[str, Any], path: str, top: str, inputs: list[Flow | None]) -> list[Flow | None]:
        name, kind, config = _name(entry), entry.get("class_name"), entry["config"]
        if isinstance(config, list) or "layers" in config:
            return self._model(config if isinstance(config, dict) else {"layers": config}, path, top, inputs)
        self._note_behaviour(name, kind, config)
        if kind == "Bidirectional":
            return self._bidirectional(name, config, path, top, inputs)
        if kind in KINDS or kind == "RNN":
            if len(inputs) > 1:
                self.notes.append(
                    f"layer {name!r} begins with a state that another layer makes; here it begins with zeros"
                )
            return self._single(name, entry, path, top, inputs[0] if inputs else None)
        if kind in ("CuDNNGRU", "CuDNNLSTM"):
            raise FormatError(
                f"layer {name!r} is a {kind}, of Keras before 2.4; Keras itself turns it into a {kind[5:]}"
            )
        if kind in _TRANSPARENT or (kind == "Activation" and config.get("activation") == "linear"):
            return inputs
        if re.search(r"LSTM|GRU|RNN", str(kind)):
            self.notes.append(f"layer {name!r} is a {kind}, which isn't read")
        return [None]

    def _note_behaviour(self, name: str, kind: Any, config: dict[str, Any]) -> None:
        """Notes masks and `stateful`, which change the results of recurrent layers and aren't in their weights."""
        if kind == "Masking" or (kind == "Embedding" and config.get("mask_zero")):
            self.notes.append(
                f"layer {name!r} ({kind}) makes a mask, by which Keras's recurrent layers behind it skip steps; here "
                "no step is skipped"
            )
        inner = config.get("layer") if kind == "Bidirectional" else None
        own = inner["config"] if isinstance(inner, dict) else config
        if (kind in KINDS or kind in ("RNN", "Bidirectional")) and own.get("stateful"):
            self.notes.append(
                f"layer {name!r} is stateful: Keras begins a batch with the last one's state; here it begins with zeros"
            )

    def _single(self, name: str, entry: dict[str, Any], path: str, top: str, flow: Flow | None) -> list[Flow | None]:
        config = entry["config"]
        flipped = bool(flow and flow.flipped)
        reverse = bool(config.get("go_backwards")) != flipped
        inner = _cells(entry, f"{path}/cell")
        if inner is None:
            self.notes.append(f"layer {name!r} has a cell of its own, which isn't read")
            return [None]
        for i, (cell, below) in enumerate(inner):
            full = name if len(inner) == 1 else f"{name}.cells.{i}"
            found = Found(full, KINDS[cell["class_name"]], [self._cell(cell["config"], below, top, reverse)])
            found.source = None if flow is None else flow.layer
            self.found.append(found)
            flow = Flow(len(self.found) - 1, reverse)
        if reverse:
            why = "runs backwards" if config.get("go_backwards") else "gets its input backwards in time"
            self.notes.append(
                f"layer {name!r} {why} and Keras returns its results in the order of its work; "
                "here they are in the order of the input"
            )
        return [flow if config.get("return_sequences") else None]

    def _bidirectional(
        self, name: str, config: dict[str, Any], path: str, top: str, inputs: list[Flow | None]
    ) -> list[Flow | None]:
        forward = config["layer"]
        backward = config.get("backward_layer") or forward
        parts = [_cells(forward, f"{path}/forward_layer/cell"), _cells(backward, f"{path}/backward_layer/cell")]
        if parts[0] is None or parts[1] is None:
            self.notes.append(f"layer {name!r} has a cell of its own, which isn't read")
            return [None]
        merge = config.get("merge_mode")
        if merge not in (*MERGES, None):
            raise FormatError(f"layer {name!r}: merge_mode {merge!r} is none of {', '.join(MERGES)}")
        if forward["config"].get("go_backwards"):
            raise FormatError(f"layer {name!r}: its forward layer has go_backwards=True, which can't be expressed here")
        if len(parts[0]) != 1 or len(parts[1]) != 1:
            raise FormatError(f"layer {name!r}: stacked cells inside Bidirectional can't be expressed here")
        kinds = {KINDS[part[0][0]["class_name"]] for part in parts if part}
        units = {part[0][0]["config"].get("units") for part in parts if part}
        if len(kinds) > 1 or len(units) > 1:
            raise FormatError(f"layer {name!r}: its directions are of different kinds or sizes")
        cells = [self._cell(part[0][0]["config"], part[0][1], top, i == 1) for i, part in enumerate(parts) if part]
        found = Found(name, kinds.pop(), cells, merge or "concat")
        flow = inputs[0] if inputs else None
        if flow is not None and flow.flipped:
            self.notes.append(f"layer {name!r} gets its input backwards in time; here it is a layer of its own")
        elif flow is not None:
            found.source = flow.layer
        self.found.append(found)
        if merge is None:
            self.notes.append(
                f"layer {name!r} returns its directions apart (merge_mode=None); here they are concatenated"
            )
        goes_on = merge is not None and forward["config"].get("return_sequences")
        return [Flow(len(self.found) - 1, False) if goes_on else None]

    def _cell(self, config: dict[str, Any], path: str, top: str, reverse: bool) -> Cell:
        number = self._cells_of.get(top, 0)
        self._cells_of[top] = number + 1
        return Cell(config, path, top, number, reverse)


def in_chains(found: list[Found]) -> list[Found]:
    """The layers, each after the layer that feeds it if that layer feeds no other before; `source` is None or i - 1."""
    order: list[int] = []
    for first in range(len(found)):
        index: int | None = first
        while index is not None and index not in order:
            order.append(index)
            last = index
            index = next((i for i, other in enumerate(found) if other.source == last and i not in order), None)
    placed = []
    for position, index in enumerate(order):
        fed = position > 0 and found[index].source == order[position - 1]
        placed.append(dataclasses.replace(found[index], source=position - 1 if fed else None))
    return placed


def snake(name: str) -> str:
    """A class name as Keras makes a group's name from it: SimpleRNN is simple_rnn."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def unique(name: str, used: dict[str, int]) -> str:
    """name, name_1, name_2, ..."""
    used[name] = used.get(name, -1) + 1
    return f"{name}_{used[name]}" if used[name] else name


def _entries(config: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The layers of a model, and the group of each."""
    used: dict[str, int] = {}
    for entry in config["layers"]:
        yield entry, f"{path}/layers/{unique(snake(str(entry['class_name'])), used)}".lstrip("/")


def _cells(entry: dict[str, Any], path: str) -> list[tuple[dict[str, Any], str]] | None:
    """The cells of a recurrent layer and their groups; None: a cell that isn't Keras' own."""
    kind, config = entry["class_name"], entry["config"]
    if kind in KINDS:
        return [(entry, path)]
    cell = config.get("cell")
    if kind != "RNN" or not isinstance(cell, dict):
        return None
    if cell["class_name"] != "StackedRNNCells":
        return [(cell, path)] if cell["class_name"] in KINDS else None
    used: dict[str, int] = {}
    below = [(inner, f"{path}/cells/{unique(snake(inner['class_name']), used)}") for inner in cell["config"]["cells"]]
    return below if below and all(inner["class_name"] in KINDS for inner, _ in below) else None


def _name(entry: dict[str, Any]) -> str:
    config = entry.get("config")
    name = entry.get("name") or (config.get("name") if isinstance(config, dict) else None)
    return str(name or entry["class_name"])


def _is_recurrent(entry: dict[str, Any]) -> bool:
    return entry.get("class_name") in {"Bidirectional", "RNN", *KINDS}


def _has_mask(value: Any) -> bool:
    """Whether inbound nodes, of Keras 2 or 3, pass a tensor as a mask among a call's keywords."""
    if isinstance(value, dict):
        return value.get("mask") is not None or any(map(_has_mask, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_mask, value))


def _histories(value: Any) -> list[tuple[str, int]]:
    """(layer, output) of every tensor in inbound nodes, input_layers or output_layers, of Keras 2 and 3."""
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            name, _, output = value["config"]["keras_history"]
            return [(str(name), int(output))]
        if "args" in value and "kwargs" in value:  # a call; a mask among its keywords is no input
            return _histories(value["args"]) + _histories(value["kwargs"].get("initial_state"))
        return [pair for below in value.values() for pair in _histories(below)]
    if isinstance(value, list | tuple):
        if len(value) in (3, 4) and isinstance(value[0], str) and all(isinstance(word, int) for word in value[1:3]):
            return [(value[0], int(value[2]))]
        return [pair for below in value for pair in _histories(below)]
    return []
