"""torch.export programs: the recurrent operators of their graphs, or the parameters where these operators are written
out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats import _pytorch
from weft.formats._export.archive import Archive, Scope, arguments, names_in
from weft.formats._export.programs import activation_of, variant_of
from weft.formats._files.sniff import first_line
from weft.formats._layers import Activation, FormatError, Layer, Source
from weft.formats._options import Options

OPTIONS = _pytorch.OPTIONS

_MODULES = {"gru": "GRU", "lstm": "LSTM", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_CELLS = {"gru_cell": "GRU", "lstm_cell": "LSTM", "rnn_tanh_cell": "RNN", "rnn_relu_cell": "RNN"}
_ZEROS = ("zeros", "new_zeros", "zeros_like")
#: Operators that return a value unchanged, or only move its axes.
_VIEWS = (
    "transpose", "permute", "contiguous", "clone", "alias", "detach", "detach_", "dropout", "_to_copy", "to",
    "unsqueeze", "squeeze", "expand", "lift_fresh_copy", "view", "reshape", "t",
)  # fmt: skip


def read(path: Path, options: Options) -> Source:
    """The layers of every recurrent operator, in the order in which they run.

    aten.gru, lstm, rnn_tanh, rnn_relu and their cells say all that there is to say, and so do `weft.nn`'s operator and
    Weft's programs of these. Where run_decompositions has written the steps out, the parameters' names do.

    Raises:
        FormatError: the file is damaged; or an operator's weights are computed in the graph.
    """
    archive = Archive(path)
    try:
        return _Reader(archive, options).read()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"its graph isn't as torch.export writes it: {first_line(error)}") from None


class _Reader:
    def __init__(self, archive: Archive, options: Options) -> None:
        self._archive = archive
        self._options = options
        self._layers: list[Layer] = []
        self._notes: list[str] = []
        self._used: set[str] = set()
        self._seen: set[tuple[Any, ...]] = set()
        self._scopes: list[Scope] = []  # keeps the scopes alive, since below they are known by identity
        self._last: dict[tuple[int, str], Layer] = {}  # layers by graph and name of their output

    def read(self) -> Source:
        written_out: dict[str, set[str]] = {}
        for scope, node in Scope(self._archive.graph).walk([0]):
            self._scopes.append(scope)
            target = node["target"].removeprefix("torch.ops.")
            library, _, op = target.partition(".")
            op = op.partition(".")[0]
            if library == "aten" and op in _MODULES:
                self._module(scope, node, _plain(op, arguments(node)))
            elif library == "weft" and op == "_rnn_variant":
                self._module(scope, node, arguments(node))
            elif library == "aten" and op in _CELLS:
                self._cell(scope, node, op)
            elif library == "weft" and op == "call":
                self._program(scope, node)
            elif library == "aten" and op in ("relu", "tanh", "sigmoid"):
                stack = str(node.get("metadata", {}).get("nn_module_stack", ""))
                for module in re.findall(r",([\w.]*),[\w.]*\.(?:RNN|GRU|LSTM)(?:Cell)?(?:;|$)", stack):
                    written_out.setdefault(module, set()).add(op)
        self._by_names(written_out)
        if not self._layers:
            raise FormatError("holds no recurrent operator, and no parameters with the names of a recurrent module")
        unused = [name for name in self._archive.tensors if name not in self._used]
        return Source("", "torch.export", self._layers, notes=self._notes, ignored=unused)

    def _module(self, scope: Scope, node: dict[str, Any], own: dict[str, Any]) -> None:
        """Reads an operator that runs all layers of a module."""
        cell, count = own["cell"], own["num_layers"]
        kind = _MODULES[cell]
        directions = 2 if own["bidirectional"] else 1
        names = [f"l{k}{suffix}" for k in range(min(count, 10_000)) for suffix in ("", "_reverse")[:directions]]
        each, rest = divmod(len(own["params"]), len(names))
        kinds = _parameter_names(kind, each, own)
        if rest or each != len(kinds):
            raise FormatError(
                f"{node['target']} has {len(own['params'])} parameters for {len(names)} layers and directions"
            )
        wanted = [f"{kind_}_{name}" for name in names for kind_ in kinds]
        source = self._comes_from(scope, own["input"][0])
        label, tensors = self._parameters(scope, node, own["params"], wanted, source is not None)
        if tensors is None:
            return
        layers = self._with_options(label, tensors, own)
        self._check_states(scope, own, layers, label)
        if own["train"] and own["dropout"]:
            self._notes.append(f"{label}: was exported in training; its dropout is left out")
        layers[0].continues = bool(self._layers) and source is self._layers[-1] and _fits(source, layers[0])
        self._layers += layers
        result = names_in(node["outputs"][0])
        if result:
            self._last[id(scope), result[0]] = layers[-1]

    def _cell(self, scope: Scope, node: dict[str, Any], op: str) -> None:
        own = arguments(node)
        names = ["w_ih", "w_hh", "b_ih", "b_hh"]
        given = {name: own[name][0] for name in names if isinstance(own.get(name), list) and own[name]}
        wanted = [name.replace("w_", "weight_").replace("b_", "bias_") for name in given]
        label, tensors = self._parameters(scope, node, list(given.values()), wanted)
        if tensors is not None:
            activation = Activation("relu") if "relu" in op else Activation("tanh")
            self._layers += self._read(label, tensors, {"activation": activation})

    def _program(self, scope: Scope, node: dict[str, Any]) -> None:
        """Reads a program of Weft's for a module: recognised by its inputs' names, checked by its text."""
        own = arguments(node)
        found = variant_of(own["program"])
        if found is None:
            return
        by_name = dict(zip(found.inputs, own["inputs"], strict=True))
        label, tensors = self._parameters(
            scope, node, [by_name[name] for name in found.parameters], list(found.parameters.values())
        )
        if tensors is None:
            return
        layers = self._read(label, tensors, found.options)
        found.check(own["program"], layers, label)
        source = self._comes_from(scope, by_name["x"])
        layers[0].continues = bool(self._layers) and source is self._layers[-1] and _fits(source, layers[0])
        states = {name: [by_name[name]] for name in ("h0", "c0") if name in by_name}
        self._check_states(scope, {"hx": [name for names in states.values() for name in names]}, layers, label)
        self._layers += layers
        result = names_in(node["outputs"][0])
        if result:
            self._last[id(scope), result[0]] = layers[-1]

    def _by_names(self, written_out: dict[str, set[str]]) -> None:
        """Layers of the parameters of modules whose operators the graph doesn't have."""
        rest = {name: tensor for name, tensor in self._archive.tensors.items() if name not in self._used}
        source = _pytorch.layers_of(rest, self._options)
        if source is None:
            return
        for layer in source.layers:
            module = re.sub(r"(?:^|\.)l\d+$", "", layer.name).replace("(root)", "")
            if layer.kind == "RNN" and not {"activation", "nonlinearity"} & set(self._options.values):
                used = written_out.get(module, set())
                layer.activation = Activation("relu" if "relu" in used and "tanh" not in used else "tanh")
        self._notes += [note for note in source.notes if "nonlinearity" not in note]
        self._notes.append(
            "the steps are written out in the graph: the layers are those that the parameters' names say"
        )
        self._layers += source.layers
        self._used |= set(rest) - set(source.ignored)

    def _parameters(
        self, scope: Scope, node: dict[str, Any], given: list[str], wanted: list[str], again: bool = False
    ) -> tuple[str, dict[str, Tensor] | None]:
        """The operator's name in the model, and its weights under PyTorch's names. None for weights that have been read
        before, unless they may come `again`, as in a layer behind a layer with the same weights."""
        names = [self._parameter(scope, name, node) for name in given]
        key = (node["target"], *names)
        modules = {name.rpartition(".")[0] for name in names}
        label = modules.pop() if len(modules) == 1 else str(node.get("name") or node["target"])
        if key in self._seen and not again:  # a cell, at each further step; or a module that is called twice
            return label, None
        self._seen.add(key)
        self._used |= set(names)
        return label, {new: self._archive.tensors[name] for new, name in zip(wanted, names, strict=True)}

    def _parameter(self, scope: Scope, name: str, user: dict[str, Any]) -> str:
        for _ in range(32):
            scope, name, node, _ = scope.find(name)
            if node is None:
                break
            op = node["target"].removeprefix("torch.ops.aten.").partition(".")[0]
            if op not in ("detach", "alias", "clone", "contiguous", "lift_fresh_copy"):
                raise FormatError(f"{user['target']} has weights made by {node['target']}; parameters are read")
            name = names_in(node["inputs"][0]["arg"])[0]
        plain = self._archive.signature.get(name, name)
        if plain not in self._archive.tensors:
            raise FormatError(f"{user['target']} has weights ({plain}) that the file doesn't hold")
        return plain

    def _with_options(self, label: str, tensors: dict[str, Tensor], own: dict[str, Any]) -> list[Layer]:
        zoneout = own.get("zoneout_h", 0.0), own.get("zoneout_c", 0.0)
        options = {
            "reset_after": own.get("reset_after", True),
            "gate_activation": activation_of(own.get("gate_activation", "sigmoid"), label),
            "activation": activation_of(own.get("activation", "relu" if own["cell"] == "rnn_relu" else "tanh"), label),
            "cell_clip": own.get("cell_clip") or None,
            "coupled_input_forget": own.get("coupled") or None,
        }
        layers = self._read(label, tensors, options)
        for layer in layers:
            layer.zoneout = zoneout if layer.kind == "LSTM" else (zoneout[0], 0.0)
        return layers

    def _read(self, label: str, tensors: dict[str, Tensor], options: dict[str, Any]) -> list[Layer]:
        prefix = f"{label}." if label else ""
        source = _pytorch.layers_of({prefix + name: tensor for name, tensor in tensors.items()}, Options(options))
        assert source is not None
        return list(source.layers)

    def _check_states(self, scope: Scope, own: dict[str, Any], layers: list[Layer], label: str) -> None:
        """Adds initial states that are constants to the layers."""
        states = own.get("hx") or own.get("states") or []
        directions = [d for layer in layers for d in layer.directions]
        for which, name in zip(("h0", "c0"), states, strict=False):
            value = self._constant(scope, name)
            if value is None:
                self._notes.append(
                    f"{label}: its initial state is given or computed when it runs: zeros are taken for it"
                )
                return
            if not value.any():
                continue
            if value.dim() != 3 or value.shape[0] != len(directions):
                raise FormatError(f"{label}: its initial state has shape {list(value.shape)}")
            for d, state in zip(directions, value, strict=True):
                if state.any():
                    setattr(d, which, state[0].clone() if bool((state == state[:1]).all()) else state.clone())

    def _constant(self, scope: Scope, name: str) -> Tensor | None:
        """An initial state: zeros, or a tensor of the model, perhaps one row for the whole batch."""
        ops: list[dict[str, Any]] = []
        for _ in range(32):
            scope, name, node, _ = scope.find(name)
            if node is None:
                value = self._archive.tensors.get(self._archive.signature.get(name, ""))
                return None if value is None else _viewed(value, ops)
            own, op = arguments(node), node["target"].removeprefix("torch.ops.aten.").partition(".")[0]
            if op in _ZEROS or (op in ("full", "new_full", "full_like") and own.get("fill_value") in (0, 0.0)):
                return torch.zeros(())
            if op not in _VIEWS:
                return None
            ops.append(node)
            name = names_in(node["inputs"][0]["arg"])[0]
        return None

    def _comes_from(self, scope: Scope, name: str) -> Layer | None:
        for _ in range(64):
            scope, name, node, _ = scope.find(name)
            if node is None:
                return None
            if (id(scope), name) in self._last:
                return self._last[id(scope), name]
            op = node["target"].removeprefix("torch.ops.aten.").partition(".")[0]
            if op not in _VIEWS or not node["inputs"]:
                return None
            given = names_in(node["inputs"][0]["arg"])
            if not given:
                return None
            name = given[0]
        return None


def _fits(source: Layer | None, layer: Layer) -> bool:
    return source is not None and source.output_size == layer.input_size


def _viewed(value: Tensor, ops: list[dict[str, Any]]) -> Tensor | None:
    """A tensor [H], [B, H] or [L, B, H] after operators on its axes. The batch has one row if an expand sets its
    size."""
    for node in reversed(ops):
        own, op = arguments(node), node["target"].removeprefix("torch.ops.aten.").partition(".")[0]
        if op == "unsqueeze":
            value = value.unsqueeze(own["dim"])
        elif op == "transpose":
            value = value.transpose(own["dim0"], own["dim1"])
        elif op in ("squeeze", "permute", "view", "reshape", "t"):
            return None
    return value


def _plain(op: str, own: dict[str, Any]) -> dict[str, Any]:
    """The arguments of PyTorch's operator, in the form of `weft.nn`'s."""
    layers = {"cell": op, "biases": own["has_biases"]}
    return own | layers | {"input": own.get("input") or own["data"]}


def _parameter_names(kind: str, count: int, own: dict[str, Any]) -> list[str]:
    """The names of a layer's and direction's `count` parameters, in the operators' order."""
    names = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if own["biases"] else [])
    extra: list[str] = []
    if own.get("peepholes"):
        extra += [f"weight_c{gate}" for gate in {"input": "io", "forget": "fo"}.get(own["coupled"], "ifo")]
    if own.get("layer_norm"):
        extra += ["weight_ln_ih", "weight_ln_hh"] + (["weight_ln_c"] if kind == "LSTM" else [])
        extra += ["bias_ln_c"] if kind == "LSTM" and own["biases"] else []
    if kind == "LSTM" and count == len(names) + len(extra) + 1:
        names.append("weight_hr")
    return names + extra
