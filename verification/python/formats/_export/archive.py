"""A .pt2 archive as data: the graph's JSON and the raw weights.

torch.export.load isn't called: it evaluates expressions of the file.
"""

from __future__ import annotations

import json
import math
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats._files.sniff import first_line, members, read_member
from weft.formats._files.tensors import read_tensors
from weft.formats._layers import FormatError

#: Dtypes by number in the export schema's ScalarType.
_DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip
_MOST_JSON = 1 << 28
_MOST_NODES = 500_000


class Archive:
    """The contents of a .pt2 file.

    graph: the top graph's JSON; signature: its inputs' names in the model.
    tensors: by their names in the model: parameters, buffers and constants.

    Raises:
        FormatError: the archive is damaged, or claims what it hasn't.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        names = [member.filename for member in members(path)]
        old = next((name for name in names if name.endswith("serialized_exported_program.json")), None)
        if old is not None:
            program = self._json(old)
            self.tensors = self._old_tensors(names)
        else:
            model = next((n for n in sorted(names) if "/models/" in f"/{n}" and n.endswith(".json")), None)
            if model is None:
                raise FormatError("holds no program (models/*.json)")
            root, name = model.rsplit("models/", 1)[0], model.rsplit("/", 1)[1].removesuffix(".json")
            program = self._json(model)
            order = next((n for n in names if n == f"{root}byteorder"), None)
            if order is not None and read_member(path, order, 16) != b"little":
                raise FormatError("was written on a machine with another byte order")
            self.tensors = self._payload(root, "weights", f"{name}_weights_config.json", names)
            self.tensors |= self._payload(root, "constants", f"{name}_constants_config.json", names)
        try:
            self.graph: dict[str, Any] = program["graph_module"]["graph"]
            self.signature: dict[str, str] = dict(_inputs(program["graph_module"]["signature"]["input_specs"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise FormatError(f"its program has no graph as torch.export writes it: {first_line(error)}") from None

    def _json(self, name: str) -> Any:
        try:
            return json.loads(read_member(self.path, name, _MOST_JSON))
        except FormatError:
            raise
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{name!r} isn't JSON: {first_line(error)}") from None

    def _payload(self, root: str, kind: str, config: str, names: list[str]) -> dict[str, Tensor]:
        folder = f"{root}data/{kind}/"
        if folder + config not in names:
            return {}
        entries = self._json(folder + config)
        found: dict[str, Tensor] = {}
        read: dict[str, bytes] = {}
        total, most = 0, 8 * self.path.stat().st_size
        try:
            for name, entry in entries["config"].items():
                if entry["use_pickle"] or entry["tensor_meta"] is None:
                    continue  # a tensor subclass, or no tensor
                member = folder + entry["path_name"]
                if member not in read:
                    read[member] = read_member(self.path, member)
                found[name] = _tensor(name, read[member], entry["tensor_meta"])
                if (total := total + found[name].numel() * found[name].itemsize) > most:
                    raise FormatError("its tensors share so much that together they are 8 times the file")
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{config!r} isn't as torch.export writes it: {first_line(error)}") from None
        return found

    def _old_tensors(self, names: list[str]) -> dict[str, Tensor]:
        """Tensors of archives before PyTorch 2.8, in which a file of torch.save has the weights."""
        found: dict[str, Tensor] = {}
        for part in ("serialized_state_dict.pt", "serialized_constants.pt"):
            name = next((name for name in names if name.split("/")[-1] == part), None)
            if name is not None and (data := read_member(self.path, name)):
                with tempfile.TemporaryDirectory() as folder:
                    inner = Path(folder) / part
                    inner.write_bytes(data)
                    if zipfile.is_zipfile(inner):
                        found |= read_tensors(inner, "torch")
        return found


def _inputs(specs: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The names, in the graph and in the model, of inputs that aren't the user's."""
    for spec in specs:
        for kind, name in (("parameter", "parameter_name"), ("buffer", "buffer_name"),
                           ("tensor_constant", "tensor_constant_name")):  # fmt: skip
            if kind in spec:
                yield spec[kind]["arg"]["name"], spec[kind][name]


def _tensor(name: str, data: bytes, meta: dict[str, Any]) -> Tensor:
    dtype = _DTYPES.get(meta["dtype"])
    if dtype is None or meta["layout"] != 7:
        raise FormatError(
            f"{name} has data type number {meta['dtype']}, layout {meta['layout']}; it should be dense floats"
        )
    sizes, strides = ([_int(name, size) for size in meta[key]] for key in ("sizes", "strides"))
    offset = _int(name, meta["storage_offset"])
    count = len(data) // dtype.itemsize
    if len(sizes) != len(strides) or len(sizes) > 16:
        raise FormatError(f"{name} claims {len(sizes)} sizes and {len(strides)} strides")
    if math.prod(sizes) == 0:
        return torch.empty(sizes, dtype=dtype) if max(sizes) < 1 << 31 else torch.empty(0, dtype=dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= count or math.prod(sizes) > count:
        raise FormatError(f"{name} claims shape {sizes}, which its {len(data)} bytes can't hold")
    return torch.frombuffer(bytearray(data), dtype=dtype, count=count).as_strided(sizes, strides, offset).clone()


def _int(name: str, value: dict[str, Any]) -> int:
    number = value.get("as_int") if isinstance(value, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise FormatError(f"{name} has a size or a stride that is no number")
    return number


class Scope:
    """A graph, and the surrounding graph, from which its values may come."""

    def __init__(self, graph: dict[str, Any], outer: Scope | None = None, given: dict[str, str] | None = None) -> None:
        self.nodes: list[dict[str, Any]] = graph["nodes"]
        self.outer, self._given = outer, given or {}
        self.depth = 0 if outer is None else outer.depth + 1
        if self.depth > 32:
            raise FormatError("its graphs are nested deeper than 32")
        self._producers: dict[str, tuple[dict[str, Any], int]] = {}
        for node in self.nodes:
            for i, name in enumerate(outputs(node)):
                self._producers[name] = node, i
        self._inner: dict[str, tuple[Scope, str]] = {}

    def find(self, name: str) -> tuple[Scope, str, dict[str, Any] | None, int]:
        """The origin of a value: the graph, its name there, the node (None for an input of the top graph), and the
        index among the node's outputs."""
        scope: Scope = self
        for _ in range(1000):
            if name in scope._inner:
                scope, name = scope._inner[name]
            elif name in scope._producers:
                return scope, name, *scope._producers[name]
            elif scope.outer is not None and name in scope._given:
                scope, name = scope.outer, scope._given[name]
            else:
                return scope, name, None, 0
        raise FormatError(f"{name} is made of itself")

    def walk(self, budget: list[int]) -> Iterator[tuple[Scope, dict[str, Any]]]:
        """All nodes in order. Nodes of inner graphs (of torch.no_grad() in a forward, ...) come in the place of their
        graph."""
        for node in self.nodes:
            budget[0] += 1
            if budget[0] > _MOST_NODES:
                raise FormatError(f"has more than {_MOST_NODES} nodes")
            yield self, node
            arguments = [entry["arg"] for entry in node["inputs"]]
            graphs = [argument["as_graph"]["graph"] for argument in arguments if "as_graph" in argument]
            operands = [name for argument in arguments for name in names_in(argument)]
            for graph in graphs:
                formals = [name for argument in graph["inputs"] for name in names_in(argument)]
                inner = Scope(graph, self, dict(zip(formals[::-1], operands[::-1], strict=False)))
                yield from inner.walk(budget)
                if len(graphs) == 1:
                    results = [name for argument in graph["outputs"] for name in names_in(argument)]
                    for own, result in zip(outputs(node), results, strict=False):
                        self._inner[own] = inner, result


def names_in(argument: dict[str, Any]) -> list[str]:
    """The tensors of an argument or a result."""
    if argument.get("as_tensor"):
        return [argument["as_tensor"]["name"]]
    if argument.get("as_tensors"):
        return [tensor["name"] for tensor in argument["as_tensors"]]
    return []


def outputs(node: dict[str, Any]) -> list[str]:
    return [name for result in node["outputs"] for name in names_in(result)]


def arguments(node: dict[str, Any]) -> dict[str, Any]:
    """A node's arguments by name: tensors as [names], numbers, flags and texts as they are."""
    found: dict[str, Any] = {}
    for entry in node["inputs"]:
        argument = entry["arg"]
        ((kind, value), *_) = argument.items()
        found[entry["name"]] = names_in(argument) if kind in ("as_tensor", "as_tensors") else value
    return found
