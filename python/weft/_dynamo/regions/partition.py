"""Which nodes of an ATen graph go together."""

from __future__ import annotations

from torch import fx

from weft._capture.aten_nodes import tensor_inputs
from weft._dynamo.regions.nodes import (
    LEFT_TO_ATEN,
    PERMUTES,
    PRODUCTS,
    VIEWS,
    is_barrier,
    is_call,
    is_expressible,
    is_output,
    is_pure,
)


class Partition:
    """The graph without its views: which nodes each node waits for, and the unit that each is in."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.expressible = {node for node in graph.nodes if is_expressible(node)}
        self.members = {
            node for node in self.expressible if node.target not in LEFT_TO_ATEN and node.target not in VIEWS
        } | {node for node in graph.nodes if is_call(node) or is_output(node)}
        self.views: set[fx.Node] = set()
        for node in reversed(graph.nodes):
            if node in self.expressible and self._is_transparent(node):
                self.views.add(node)
        self.waits: dict[fx.Node, set[fx.Node]] = {}
        self._find_waits()
        self.unit: dict[fx.Node, set[fx.Node]] = {node: {node} for node in self.members}

    def _is_transparent(self, node: fx.Node) -> bool:
        """A view that becomes part of the program where a region reads it. A permutation does only as an operand of
        products, which read it in place; elsewhere the program would have to copy."""
        if node.target not in VIEWS:
            return False
        return node.target not in PERMUTES or self.is_read_by_products_only(node)

    def is_read_by_products_only(self, node: fx.Node, or_permuted: bool = False) -> bool:
        """Whether all readers that may be in a region are products, or views that permute for such."""
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
                if is_barrier(node):  # after all that may read what it writes, before all that reads it then
                    waits.update(seen)
                    barrier = node
            self.waits[node] = waits
            seen.append(node)

    def merge_all(self) -> list[list[fx.Node]]:
        """Units of more than one node that contain a call, as lists in the graph's order."""
        for node in self.graph.nodes:
            if node not in self.members:
                continue
            for earlier in sorted(self.waits[node] & self.members, key=self.order.__getitem__):
                if self.unit[earlier] is not self.unit[node]:
                    self._merge(earlier, node)
        self._merge_siblings()
        units = {id(unit): unit for unit in self.unit.values()}.values()
        return [sorted(unit, key=self.order.__getitem__) for unit in units if any(map(is_call, unit))]

    def _merge_siblings(self) -> None:
        """Members join a region that reads what they read, as the weight gradient of a linear next to it does."""
        readers: dict[fx.Node, list[fx.Node]] = {}
        for node in self.graph.nodes:
            if node in self.members:
                for source in self.waits[node]:
                    readers.setdefault(source, []).append(node)
        for nodes in readers.values():
            regions = [node for node in nodes if any(map(is_call, self.unit[node]))]
            if not regions:
                continue
            for node in nodes:
                if self.unit[node] is not self.unit[regions[0]]:
                    self._merge(regions[0], node)

    def _merge(self, a: fx.Node, b: fx.Node) -> None:
        """Makes one unit of two nodes' units, unless a path from one to the other goes through a third."""
        one, other = self.unit[a], self.unit[b]
        if not self._reaches(one, other) and not self._reaches(other, one):
            merged = one | other
            for member in merged:
                self.unit[member] = merged

    def _reaches(self, start: set[fx.Node], goal: set[fx.Node]) -> bool:
        stack = [n for node in start for n in self.waits[node] if n not in start and n not in goal]
        seen: set[fx.Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            unit = self.unit.get(node, {node})
            seen |= unit
            for member in unit:
                for n in self.waits[member]:
                    if n in goal:
                        return True
                    if n not in seen and n not in start:
                        stack.append(n)
        return False
