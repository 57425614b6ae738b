"""A region as a program."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from weft import _C
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._capture.fx_nodes import Importer, Types, example_of
from weft._dynamo.regions.nodes import is_call, is_output
from weft._dynamo.regions.partition import Partition


class RegionProgram(Importer):
    """Writes one region as a program."""

    def __init__(self, graph: Partition, members: list[fx.Node]) -> None:
        super().__init__(Types(halves=False))
        self.graph, self.members = graph, set(members)
        self.transposed: set[fx.Node] = set()  #: inputs that the call gets as transposes
        self.refused: set[fx.Node] = set()  #: nodes that the IR can't express after all; there is no program then
        for node in members:
            if not is_output(node):
                self._write(node)
        self.outputs = [node for node in members if self._is_read_outside(node)]
        self.text = "" if self.refused else self._finish()

    def _finish(self) -> str:
        try:
            return self.region.finish([self.values[node] for node in self.outputs]).text
        except RuntimeError as error:
            raise_if_internal(error)
            self.refused = self.members
            return ""

    def _is_read_outside(self, node: fx.Node) -> bool:
        """Whether the node must be an output. Views that are read outside stay outside, and read it."""
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

    def read(self, node: fx.Node) -> Any:
        """Reads a view as part of the program. A matrix that is transposed in memory, such as a linear's weight saved
        for the backward, becomes an input in that layout; the operator would copy it."""
        if node in self.graph.views:
            self._write(node)
            if node in self.values:
                return self.values[node]
        if not _lies_transposed(example_of(node)) or not self.graph.is_read_by_products_only(node, or_permuted=True):
            return super().read(node)
        self.inputs.append(node)
        self.transposed.add(node)
        value = example_of(node)
        source = self.region.input(self.types.type(value.dtype, value.shape[::-1]))
        return self.aten("aten.t.default", [source], self.types.of(value))

    def _write(self, node: fx.Node) -> None:
        """Writes the node; a refused node is only read from outside, if at all."""
        try:
            if is_call(node):
                text, inputs = node.args
                results = self.inline(_C.Program(text), [self.value(n) for n in inputs])
                self.values.update({user: results[user.args[1]] for user in node.users})
            else:
                self.values[node] = self.operation(node.target, node)
        except UnsupportedError:
            self.refused.add(node)


def _lies_transposed(value: Tensor) -> bool:
    return value.dim() == 2 and not value.is_contiguous() and value.stride() == (1, value.shape[0])
