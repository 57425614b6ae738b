"""Removes from an ATen graph the views that it doesn't need without autograd, and results that nobody reads."""

from __future__ import annotations

import torch
from torch import fx

from weft import _C
from weft._dynamo.regions.nodes import CALL, is_view

_aten = torch.ops.aten


def tidy(graph: fx.Graph) -> None:
    """Takes out views that a graph without autograd doesn't need: detach, views of views, transposes undone."""
    (output,) = graph.find_nodes(op="output")
    for node in list(graph.nodes):
        same, outputs = _same_without_view(node), output.all_input_nodes
        if same is None or (node in outputs and (same in outputs or same.op == "placeholder")):
            continue  # an output stays a tensor of its own
        node.replace_all_uses_with(same)
        graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if is_view(node) and not node.users:
            graph.erase_node(node)


def _same_without_view(node: fx.Node) -> fx.Node | None:
    """The node that can replace this one. Shortens a view of a view."""
    if node.op != "call_function" or not node.args or not isinstance(source := node.args[0], fx.Node):
        return None
    if node.target in (_aten.detach.default, _aten.alias.default):
        return source
    if node.target is _aten.t.default and source.target is _aten.t.default:
        return source.args[0]
    if node.target is _aten.view.default and source.target is _aten.view.default:
        base = source.args[0].meta.get("val")
        if isinstance(base, torch.Tensor) and base.is_contiguous():
            node.args = (source.args[0], *node.args[1:])
    return None


def resolve_conjugates(graph: fx.Graph) -> None:
    """Lets view_as_real have tensors that are conjugated lazily, which it refuses. AOTAutograd writes it for tensors
    that aren't; but which gradients come to a backward conjugated is known only when it runs."""
    for node in graph.find_nodes(op="call_function", target=_aten.view_as_real.default):
        with graph.inserting_before(node):
            node.args = (graph.call_function(_aten.resolve_conj.default, node.args),)


def drop_unused_outputs(graph: fx.Graph) -> None:
    """Drops outputs of programs that the graph doesn't read."""
    for node in graph.find_nodes(op="call_function", target=CALL):
        taken = sorted(node.users, key=lambda user: user.args[1])
        used = [user for user in taken if user.users]
        for user in taken:
            if not user.users:
                graph.erase_node(user)
        text, inputs = node.args
        count = len(node.meta["val"]) if "val" in node.meta else len(taken)
        if not used or len({user.args[1] for user in used}) == count:
            continue
        indices = sorted({user.args[1] for user in used})
        node.args = (_C.keep_outputs(_C.Program(text), [i in indices for i in range(count)]).text, inputs)
        if "val" in node.meta:
            node.meta["val"] = [node.meta["val"][i] for i in indices]
        for user in used:
            user.args = (node, indices.index(user.args[1]))
