"""A region as a program."""

from __future__ import annotations

import torch
from torch import fx

from weft import _C
from weft._capture.aten_nodes import Types, import_node, tensor_inputs
from weft._dynamo.regions.nodes import is_call, is_output
from weft._dynamo.regions.partition import Partition


class RegionProgram:
    """Writes one region as a program."""

    def __init__(self, graph: Partition, members: list[fx.Node]) -> None:
        self.graph, self.members = graph, set(members)
        self.types, self.region = Types(), _C.Region()
        self.values: dict[fx.Node, _C.Value] = {}
        self.inputs: list[fx.Node] = []
        self.transposed: set[fx.Node] = set()  #: inputs that the call gets transposed
        for node in members:
            if not is_output(node):
                self._import(node)
        self.outputs = [node for node in members if self._is_read_outside(node)]
        self.text = self.region.finish([self.values[node] for node in self.outputs]).text

    def _is_read_outside(self, node: fx.Node) -> bool:
        """Whether it must be an output: views that are read outside stay there, and read it."""
        if is_call(node):
            return False
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if user in self.graph.views:
                stack.extend(user.users)
            elif user not in self.members:
                return True
        return False

    def _value(self, node: fx.Node) -> _C.Value:
        if node not in self.values:
            if node in self.graph.views:
                self._import(node)
            else:
                self._add_input(node)
        return self.values[node]

    def _add_input(self, node: fx.Node) -> None:
        """A matrix that lies transposed, as a linear's weight saved for the backward does, goes in as it lies: the
        operator would copy it."""
        value, type_ = node.meta["val"], self.types.of(node)
        self.inputs.append(node)
        if self._lies_transposed(value) and self.graph.is_read_by_products_only(node, or_permuted=True):
            self.transposed.add(node)
            source = self.region.input(self.types.of_tensor(value.t()))
            self.values[node] = self.region.aten("aten.t.default", [source], type_)
        else:
            self.values[node] = self.region.input(type_)

    @staticmethod
    def _lies_transposed(value: torch.Tensor) -> bool:
        return value.dim() == 2 and not value.is_contiguous() and value.t().is_contiguous()

    def _import(self, node: fx.Node) -> None:
        if is_call(node):
            text, inputs = node.args
            results = self.region.inline_program(_C.Program(text), [self._value(n) for n in inputs])
            for user in node.users:
                self.values[user] = results[user.args[1]]
            return
        for n in tensor_inputs(node):
            self._value(n)
        self.values[node] = import_node(self.region, node, self.values, self.types)
