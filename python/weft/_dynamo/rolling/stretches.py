"""Stretches of a graph traced by Dynamo in which there may be unrolled loops."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from torch import fx

from weft._capture.fx_nodes import example_of
from weft._dynamo.rolling.known import Known
from weft._dynamo.rolling.nodes import is_grad_mode, name_of

FEWEST = 3  #: the fewest steps of a loop


def stretches(graph: fx.Graph, known: Known) -> list[list[fx.Node]]:
    """Runs of nodes in which something repeats; each node can be part of a program."""
    found, nodes, in_autocast = [], [], 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        is_switch = name_of(node) in ("_enter_autocast", "_exit_autocast")
        if node.op == "output" or in_autocast or is_switch:
            in_autocast += {"_enter_autocast": 1, "_exit_autocast": -1}.get(name_of(node), 0)
            found += without_refused(nodes, known)
            nodes = []
        else:
            nodes.append(node)
    return found


def without_refused(nodes: list[fx.Node], known: Known) -> list[list[fx.Node]]:
    """The stretches among the nodes, cut at nodes that no program can hold."""
    found = []
    for stretch in repetitive(nodes, known):
        refused = [i for i, node in enumerate(stretch) if _is_refused(node, known)]
        if not refused:
            found.append(stretch)
            continue
        ends = [-1, *refused, len(stretch)]
        for first, last in itertools.pairwise(ends):
            if last - first > FEWEST:
                found += repetitive(stretch[first + 1 : last], known)
    return found


def _is_refused(node: fx.Node, known: Known) -> bool:
    if node not in known.refused and (refusal := known.refusal(node)):
        known.refused[node] = refusal
    return node in known.refused


def repetitive(nodes: list[fx.Node], known: Known) -> list[list[fx.Node]]:
    """The part of the nodes that repeats, if any: from the first to the last anchor, and the neighbouring nodes that
    have the form of others."""
    forms, anchors = anchors_of(nodes)
    if not anchors:
        return []
    first, last = anchors[0], anchors[-1]
    counts = Counter(forms)
    while first > 0 and counts[forms[first - 1]] >= FEWEST:
        first -= 1
    while last + 1 < len(nodes) and (counts[forms[last + 1]] >= FEWEST or _collects(nodes[last + 1])):
        last += 1
    stretch = nodes[first : last + 1]
    inside = set(stretch)
    if any(map(_collects, nodes[last + 1 :])):
        for node in nodes[last + 1 :]:
            if is_grad_mode(node) or known.may_draw(node) or known.may_write(node):
                break  # random numbers and changes keep their order
            if _collects(node) and all(n in inside or (n < node and n < nodes[last]) for n in node.all_input_nodes):
                stretch.append(node)
                inside.add(node)
    for node in list(stretch):  # all results of a node go together
        if isinstance(example_of(node), list | tuple):
            stretch += [user for user in node.users if user not in inside]
    return [stretch]


def _collects(node: fx.Node) -> bool:
    """Whether the node joins values, as torch.stack joins the steps' results."""
    return any(
        isinstance(argument, list | tuple) and len(argument) >= FEWEST for argument in node.args[:1]
    ) and name_of(node) in ("stack", "cat", "concat", "concatenate", "hstack", "vstack", "dstack")


def anchors_of(nodes: list[fx.Node]) -> tuple[list[Any], list[int]]:
    """The form of each node; and the indices of anchors: nodes whose use of a value is shared by at least FEWEST
    nodes."""
    forms = [form_of(node) for node in nodes]
    uses = Counter(
        (form, i, source)
        for node, form in zip(nodes, forms, strict=True)
        for i, source in enumerate(node.all_input_nodes)
    )
    anchors = [
        index
        for index, (node, form) in enumerate(zip(nodes, forms, strict=True))
        if _is_anchor(node, [uses[form, i, source] >= FEWEST for i, source in enumerate(node.all_input_nodes)])
    ]
    return forms, anchors


def _is_anchor(node: fx.Node, is_shared: list[bool]) -> bool:
    """Whether the node reads a value that others of its form read too, and otherwise only computed values. Several
    heads that read the same tensor with weights of their own are no anchors."""
    rest = [source for source, shared in zip(node.all_input_nodes, is_shared, strict=True) if not shared]
    return any(is_shared) and all(source.op not in ("placeholder", "get_attr") for source in rest)


def form_of(node: fx.Node) -> Any:
    """The node's function and the structure of its arguments."""

    def form(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return "value"
        if isinstance(argument, list | tuple):
            return tuple(form(item) for item in argument) if len(argument) < 8 else len(argument)
        if isinstance(argument, bool) or argument is None or isinstance(argument, str):
            return argument
        return type(argument).__name__

    return (node.op, node.target, form(node.args), tuple((k, form(v)) for k, v in node.kwargs.items()))
