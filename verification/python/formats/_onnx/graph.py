"""An ONNX graph as data: the node that produces a value, and the constants that simple nodes make of initialisers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats._files.sniff import first_line
from weft.formats._files.tensors import optional
from weft.formats._layers import FormatError
from weft.formats._onnx.tensors import FOLDS, VIEWS, Files, constant_node, tensor_of

_MOST_NODES = 500_000
_CALL = 20  # a function's call counts as so many nodes: a function may be empty, and call two others
_MOST_DEPTH = 200


def load(path: Path) -> Any:
    """The ModelProto of a file, unchecked.

    Raises:
        FormatError: it isn't one.
    """
    onnx = optional("onnx", path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:
        raise FormatError(f"{path}: is a damaged ONNX model: {first_line(error)}") from None
    if not model.graph.node:
        raise FormatError(f"{path}: is no ONNX model, or one without nodes")
    return model


def attributes(node: Any, references: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A node's attributes: numbers, texts and lists of these as Python's, tensors unchanged, graphs left out.

    references: those of the call of the function that the node is in.
    """
    found: dict[str, Any] = {}
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in (references or {}):
                found[a.name] = (references or {})[a.ref_attr_name]
            continue
        kind = a.type or _kind_of(a)
        if kind == 1:
            found[a.name] = a.f
        elif kind == 2:
            found[a.name] = a.i
        elif kind == 3:
            found[a.name] = a.s.decode(errors="replace")
        elif kind == 4:
            found[a.name] = a.t
        elif kind == 6:
            found[a.name] = list(a.floats)
        elif kind == 7:
            found[a.name] = list(a.ints)
        elif kind == 8:
            found[a.name] = [text.decode(errors="replace") for text in a.strings]
    return found


def _kind_of(a: Any) -> int:
    """The kind of an attribute without a type, as in IR version 1."""
    for number, field in ((1, "f"), (2, "i"), (3, "s"), (4, "t"), (6, "floats"), (7, "ints"), (8, "strings")):
        value = getattr(a, field)
        if a.HasField(field) if number < 5 else len(value):
            return number
    return 0


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value that doesn't depend on the model's inputs, except perhaps in its shape."""

    value: Tensor
    is_shaped: bool = True  #: False: it is to be broadcast to an unknown shape, mostly that of the batch


@dataclasses.dataclass(frozen=True)
class Value:
    """A value: its graph and its name there."""

    graph: Graph
    name: str


class Graph:
    """A graph, or the body of a function, in the graph around it."""

    def __init__(self, model: Any, proto: Any, files: Files, outer: Graph | None = None) -> None:
        self.model = model
        self.files = files
        self.depth = 0 if outer is None else outer.depth + 1
        self.formals: dict[str, Value] = {}  # of a function: the values that it was called with
        self.references: dict[str, Any] = {}  # of a function: its attributes
        self._outer = outer
        self._proto = proto
        self._initializers = {t.name: t for t in getattr(proto, "initializer", ())}
        self._producers = {name: node for node in proto.node for name in node.output if name}
        self._constants: dict[str, Constant | None] = {}
        self._busy: set[str] = set()
        if self.depth > 32:
            raise FormatError("its graphs and functions are nested deeper than 32")

    def producer(self, name: str) -> tuple[Graph, Any] | None:
        """The node that computes a value, and its graph; None for an input or an initialiser."""
        if name in self._producers:
            return self, self._producers[name]
        if name in self.formals:
            value = self.formals[name]
            return value.graph.producer(value.name)
        if self._outer is None or name in self._initializers:
            return None
        return self._outer.producer(name)

    def size(self, name: str, dim: int) -> int | None:
        """A value's dim as the file gives it; None: not at all, or by name."""
        for each in (*getattr(self._proto, "value_info", ()), *getattr(self._proto, "input", ())):
            if not isinstance(each, str) and each.name == name:
                dims = each.type.tensor_type.shape.dim
                known = len(dims) > dim and dims[dim].HasField("dim_value")
                return int(dims[dim].dim_value) if known else None
        return None

    def nodes(self, budget: list[int]) -> Iterator[tuple[Graph, Any]]:
        """All nodes in order. Nodes of subgraphs and called functions come in the place of these."""
        functions = {(f.domain, f.name): f for f in getattr(self.model, "functions", ())}
        for node in self._proto.node:
            budget[0] += 1
            if budget[0] > _MOST_NODES:
                raise FormatError(f"has more than {_MOST_NODES} nodes with its functions written out")
            called = functions.get((node.domain, node.op_type))
            if called is not None:
                budget[0] += _CALL
                yield from self._called(called, node).nodes(budget)
                continue
            yield self, node
            for a in node.attribute:
                for below in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                    yield from Graph(self.model, below, self.files, self).nodes(budget)

    def _called(self, function: Any, node: Any) -> Graph:
        body = Graph(self.model, function, self.files)
        body.depth = self.depth + 1
        if body.depth > 32:
            raise FormatError("its functions call each other deeper than 32")
        body.formals = {
            formal: Value(self, actual) for formal, actual in zip(function.input, node.input, strict=False) if actual
        }
        body.references = attributes(node, self.references)
        # The body makes the values that the caller sees as results.
        for formal, actual in zip(function.output, node.output, strict=False):
            self.formals.setdefault(actual, Value(body, formal))
            self._producers.pop(actual, None)
        return body

    def constant(self, name: str, depth: int = 0) -> Constant | None:
        """A value's contents, if a few simple nodes compute it from initialisers and Constant nodes; else None.

        Raises:
            FormatError: an initialiser that claims what it hasn't.
        """
        if name in self._constants:
            return self._constants[name]
        if name in self._busy or depth > _MOST_DEPTH:
            raise FormatError(f"{name} is made of itself")
        self._busy.add(name)
        try:
            found = self._constant(name, depth)
        finally:
            self._busy.discard(name)
        self._constants[name] = found
        return found

    def _constant(self, name: str, depth: int) -> Constant | None:
        if name in self._producers:
            return self._folded(self._producers[name], name, depth)
        if name in self._initializers:
            return Constant(tensor_of(self._initializers[name], self.files))
        if name in self.formals:
            value = self.formals[name]
            return value.graph.constant(value.name, depth + 1)
        return None if self._outer is None else self._outer.constant(name, depth + 1)

    def _folded(self, node: Any, name: str, depth: int) -> Constant | None:
        if node.domain not in ("", "ai.onnx"):
            return None
        own = attributes(node, self.references)
        if node.op_type == "Constant":
            value = constant_node(own, name, self.files)
            return None if value is None else Constant(value)
        if node.op_type == "ConstantOfShape":
            fill = tensor_of(own["value"], self.files, name).reshape(()) if "value" in own else torch.zeros(())
            return Constant(fill, is_shaped=False)
        fold = FOLDS.get(node.op_type)
        if fold is None and node.op_type != "Expand":
            return None
        inputs = [self.constant(i, depth + 1) if i else None for i in node.input]
        if not inputs or inputs[0] is None:
            return None
        if node.op_type == "Expand":
            return Constant(inputs[0].value, is_shaped=False)
        if not all(i.is_shaped for i in inputs if i is not None):
            return _of_unshaped(inputs)
        if any(value is None for value, i in zip(inputs, node.input, strict=True) if i):
            return None
        try:
            assert fold is not None
            values = [None if i is None else i.value for i in inputs]
            # VIEWS make no more bytes than their inputs have; Cast makes up to 8 for each number
            if node.op_type not in VIEWS:
                size = 8 if node.op_type == "Cast" else 0
                self.files.spend(sum(v.numel() * max(size, v.itemsize) for v in values if v is not None), name)
            return Constant(fold(own, list(node.output).index(name), *values))
        except FormatError:
            raise
        except Exception as error:
            why = first_line(error)
            raise FormatError(f"{name}: its {node.op_type} node can't be computed: {why}") from None


def _of_unshaped(inputs: list[Constant | None]) -> Constant | None:
    """Slices, reshapes and joins of a single repeated number are that number, whatever their shape."""
    first = inputs[0]
    if first is None or first.is_shaped or bool((first.value != first.value.reshape(-1)[:1]).any()):
        return None
    return Constant(first.value.reshape(-1)[0], is_shaped=False)
