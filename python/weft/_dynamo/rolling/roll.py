"""Unrolled loops replaced by calls of programs with scans."""

from __future__ import annotations

import operator
import re

import torch
from torch import fx

from weft import _C
from weft._base.errors import UnsupportedError
from weft._dynamo.rolling.program import Known, Writer
from weft._dynamo.rolling.stretches import repetitive, stretches
from weft._dynamo.rolling.values import Draw

CALL = torch.ops.weft.call.default


def roll(graph: fx.Graph) -> int:
    """Replaces unrolled loops by calls of programs with scans; returns how many scans there are."""
    scans, known = 0, Known()
    for stretch in stretches(graph):
        scans += _roll_stretch(graph, stretch, known)
    if scans:
        graph.lint()
    return scans


def _roll_stretch(graph: fx.Graph, stretch: list[fx.Node], known: Known) -> int:
    writer = Writer(known)
    for index, node in enumerate(stretch):
        try:
            writer.add(node)
        except UnsupportedError:
            parts = (stretch[:index], stretch[index + 1 :])
            return sum(_roll_stretch(graph, part, known) for nodes in parts for part in repetitive(nodes))
    outputs = writer.outputs()
    if not outputs:
        return 0
    before = writer.finish(outputs)
    after = _C.run_passes(before, ["roll"])
    scans = _count_scans(after) - _count_scans(before)
    if scans > 0:
        _replace(graph, writer, outputs, after)
    return max(scans, 0)


def _count_scans(text: str) -> int:
    return len(re.findall(r"= scan ", text))


def _replace(graph: fx.Graph, writer: Writer, outputs: list[fx.Node], text: str) -> None:
    last = max(writer.members)
    after: list[fx.Node] = []  # what reads the stretch's values before its last node is: sizes
    moved = set(outputs)
    node = min(writer.members)
    while node is not last:
        node = node.next
        if node not in writer.members and any(n in moved for n in node.all_input_nodes):
            after.append(node)
            moved.add(node)
    with graph.inserting_after(last):
        call = graph.call_function(CALL, (text, []))
    with graph.inserting_before(call):
        call.args = (text, [_draw(graph, n) if isinstance(n, Draw) else n for n in writer.inputs])
    at = call
    for index, node in enumerate(outputs):
        with graph.inserting_after(at):
            at = graph.call_function(operator.getitem, (call, index))
        at.meta = dict(node.meta)
        node.replace_all_uses_with(at, delete_user_cb=lambda user: user not in writer.members)
    for node in after:
        at.append(node)
        at = node
    for node in reversed(writer.members):
        if not node.users:
            graph.erase_node(node)


def _draw(graph: fx.Graph, draw: Draw) -> fx.Node:
    empty = graph.call_function(torch.empty, (draw.shape,), {"dtype": draw.noise.dtype, "device": "cpu"})
    return graph.call_method(draw.noise.method, (empty, *draw.noise.arguments))
