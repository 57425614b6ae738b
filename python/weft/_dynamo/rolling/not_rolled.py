"""Loops that stay unrolled, and why."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx

from weft._base import users_code
from weft._capture.fx_nodes import example_of
from weft._dynamo.rolling.known import Known
from weft._dynamo.rolling.nodes import name_of
from weft._dynamo.rolling.stretches import FEWEST, anchors_of, form_of


@dataclasses.dataclass(frozen=True)
class Place:
    """A line of the user's; the file is empty if the line isn't known."""

    file: str = ""
    line: int = 0
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}" if self.file else "no line of yours"


@dataclasses.dataclass(frozen=True)
class NotRolled:
    """A loop that is unrolled in the graph."""

    place: Place
    steps: int
    reason: str


def not_rolled(graph: fx.Graph, known: Known) -> list[NotRolled]:
    """The loops among the nodes that are left. Layers with weights of their own are no loop."""
    nodes = [
        node
        for node in graph.nodes
        if node.op in ("call_function", "call_method") and node.target is not operator.getitem
    ]
    found = []
    for loop in _loops(nodes):
        if not _has_own_weights(loop.nodes):
            place, reason = _why(loop, known)
            found.append(NotRolled(place, loop.steps, reason))
    return found


@dataclasses.dataclass
class _Loop:
    nodes: list[fx.Node]
    anchors: list[int]  #: indices in `nodes` of the anchor that occurs most often, one for each step
    steps: int


def _loops(nodes: list[fx.Node]) -> Iterable[_Loop]:
    """Stretches in which nodes do the same with the same values; overlapping stretches are merged."""
    _, anchors = anchors_of(nodes)
    groups: dict[object, list[int]] = {}
    for index in anchors:
        shared = next((n for n in nodes[index].all_input_nodes if n.op in ("placeholder", "get_attr")), None)
        groups.setdefault((form_of(nodes[index]), shared), []).append(index)
    spans = sorted((group for group in groups.values() if len(group) >= FEWEST), key=lambda group: group[0])
    joined: list[list[list[int]]] = []
    for group in spans:
        if joined and group[0] <= max(each[-1] for each in joined[-1]):
            joined[-1].append(group)
        else:
            joined.append([group])
    for together in joined:
        first, last = min(group[0] for group in together), max(group[-1] for group in together)
        most = max(together, key=len)
        yield _Loop(nodes[first : last + 1], [index - first for index in most], _count(nodes, nodes[most[0]]))


def _count(nodes: list[fx.Node], anchor: fx.Node) -> int:
    """The largest number of nodes that do the same as the anchor with one of the anchor's sources. Their other operands
    may differ, as in the first step."""
    form = form_of(anchor)
    alike = [node for node in nodes if form_of(node) == form]
    return max(sum(source in node.all_input_nodes for node in alike) for source in anchor.all_input_nodes)


def _has_own_weights(nodes: list[fx.Node]) -> bool:
    """Whether most nodes of one form read matrices from outside that no other node reads: the layers of a network."""
    forms = Counter(form_of(node) for node in nodes)
    readers: Counter[fx.Node] = Counter()
    for node in nodes:
        readers.update(set(node.all_input_nodes))
    own: Counter[object] = Counter()
    for node in nodes:
        for source in node.all_input_nodes:
            example = example_of(source)
            is_matrix = isinstance(example, Tensor) and example.dim() >= 2
            if source.op in ("placeholder", "get_attr") and is_matrix and readers[source] == 1:
                own[form_of(node)] += 1
    return any(count >= FEWEST and 2 * count > forms[form] for form, count in own.items())


def _why(loop: _Loop, known: Known) -> tuple[Place, str]:
    refused = Counter(
        (place_of(node), known.refused[node]) for node in loop.nodes if node in known.refused
    ).most_common(1)
    if refused:
        (place, reason), _ = refused[0]
        return place, reason
    at = place_of(loop.nodes[loop.anchors[0]])
    steps = [loop.nodes[i:j] for i, j in zip(loop.anchors[:-1], loop.anchors[1:], strict=True)]
    forms = [tuple(map(form_of, step)) for step in steps]
    usual = Counter(forms).most_common(1)[0][0]
    for number, (step, form) in enumerate(zip(steps, forms, strict=True), 1):
        if form != usual:
            return _difference(number, step, form, usual, steps[forms.index(usual)])
    if len(usual) < FEWEST:
        return at, "a scan of steps that do so little would not pay"
    return at, "its steps do the same, but no order was found in what they read"


def _difference(
    number: int, step: list[fx.Node], form: tuple[Any, ...], usual: tuple[Any, ...], other: list[fx.Node]
) -> tuple[Place, str]:
    """Where a step first differs from the common one, and what each does there."""
    at = next((i for i, (a, b) in enumerate(zip(form, usual, strict=False)) if a != b), min(len(form), len(usual)))
    said = f"step {number} does something else than most"
    if at >= len(step):
        return place_of(other[at]), f"{said}: it does no {name_of(other[at])}"
    if at >= len(other):
        return place_of(step[at]), f"{said}: it does {name_of(step[at])} besides"
    own, others = name_of(step[at]), name_of(other[at])
    in_which = f"instead of {others}" if own != others else "in another way, or with other values"
    return place_of(step[at]), f"{said}: it does {own} {in_which}"


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+).*\n\s*(?P<code>.*)')


def place_of(node: fx.Node) -> Place:
    """The innermost line of the user's at which the node was made."""
    found = Place()
    for match in _FRAME.finditer(node.meta.get("stack_trace") or node.stack_trace or ""):
        if users_code.is_users(match["file"]):
            found = Place(match["file"], int(match["line"]), match["code"].strip())
    return found
