"""The dependences between nodes of an ATen graph, and which nodes a program may contain."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from weft import _C
from weft._capture.fx_nodes import Types, example_of, tensor_inputs
from weft._dynamo.regions.nodes import (
    LEFT_TO_ATEN,
    PERMUTES,
    PRODUCTS,
    is_barrier,
    is_call,
    is_expressible,
    is_output,
    is_pure,
    is_view,
)


class Partition:
    """The graph without its views: which nodes each node waits for."""

    def __init__(self, graph: fx.Graph, refused: Collection[fx.Node] = ()) -> None:
        """`refused`: nodes that belong to no region."""
        self.graph, types = graph, Types(halves=False)
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        typed = {node for node in graph.nodes if types.has(example_of(node))}
        self.expressible = {node for node in graph.nodes if node not in refused and is_expressible(node, typed)}
        self.members = {node for node in self.expressible if node.target not in LEFT_TO_ATEN and not is_view(node)} | {
            node
            for node in graph.nodes
            if (is_call(node) and node not in refused) or (is_output(node) and node.args[0] not in refused)
        }
        self.views: set[fx.Node] = set()
        for node in reversed(graph.nodes):
            if node in self.expressible and self._is_transparent(node):
                self.views.add(node)
        self.waits: dict[fx.Node, set[fx.Node]] = {}
        self._find_waits()

    def _is_transparent(self, node: fx.Node) -> bool:
        """Whether a view becomes part of a program if a region reads it. A permutation does so only as an operand of
        products, which read it in place; other readers would have to copy it."""
        return is_view(node) and (node.target not in PERMUTES or self.is_read_by_products_only(node))

    def is_read_by_products_only(self, node: fx.Node, or_permuted: bool = False) -> bool:
        """Whether all readers that may be in a region are products, or (with `or_permuted`) views that permute."""
        for user in node.users:
            if or_permuted and user.target in PERMUTES:
                continue
            if user in self.views and self._is_read_inside(user):
                return False
            if user in self.members and user.target not in PRODUCTS:
                return False
        return True

    def _is_read_inside(self, view: fx.Node) -> bool:
        return any(user in self.members or (user in self.views and self._is_read_inside(user)) for user in view.users)

    def _find_waits(self) -> None:
        last_impure: fx.Node | None = None
        seen: list[fx.Node] = []
        barrier: fx.Node | None = None
        for node in self.graph.nodes:
            inputs = tensor_inputs(node) if node in self.expressible else node.all_input_nodes
            waits: set[fx.Node] = set()
            for n in inputs:
                waits |= self.waits[n] if n in self.views else {n}
            if barrier is not None and node.op not in ("placeholder", "get_attr"):
                waits.add(barrier)
            if not is_pure(node):  # random numbers and mutations stay in order
                waits |= {last_impure} if last_impure else set()
                last_impure = node
                if is_barrier(node):  # after all nodes that may read what it writes, and before all that read it later
                    waits.update(seen)
                    barrier, seen = node, []
            self.waits[node] = waits
            seen.append(node)

    def regions(self) -> list[list[fx.Node]]:
        """The groups of nodes that run as one call each (pytorch/importer/partition.h), in the graph's order."""
        nodes = list(self.graph.nodes)
        waits = [sorted(self.order[n] for n in self.waits[node]) for node in nodes]
        units = _C.partition(waits, [node in self.members for node in nodes], [is_call(node) for node in nodes])
        return [[nodes[index] for index in unit] for unit in units]
