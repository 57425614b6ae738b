"""Unrolled loops replaced by calls of programs with scans."""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx

from weft import _C
from weft._base.errors import UnsupportedError
from weft._capture.complex_numbers import as_pairs
from weft._capture.fx_nodes import example_of
from weft._dynamo.rolling.growing import join_at_once
from weft._dynamo.rolling.known import Known
from weft._dynamo.rolling.not_rolled import NotRolled, not_rolled
from weft._dynamo.rolling.program import Draw, Outputs, Writer
from weft._dynamo.rolling.stretches import stretches, without_refused

CALL = torch.ops.weft.call.default


def roll(graph: fx.Graph) -> tuple[int, list[NotRolled]]:
    """Replaces unrolled loops by calls of programs with scans; returns the number of scans, and the loops left."""
    scans, known = 0, Known(graph)
    join_at_once(graph, known)
    for stretch in stretches(graph, known):
        scans += _roll_stretch(graph, stretch, known)
    if scans:
        graph.lint()
    return scans, not_rolled(graph, known)


def _roll_stretch(graph: fx.Graph, stretch: list[fx.Node], known: Known) -> int:
    writer = Writer(known)
    for index, node in enumerate(stretch):
        try:
            writer.add(node)
        except UnsupportedError as error:
            known.refused[node] = str(error)
            parts = (stretch[:index], stretch[index + 1 :])
            return sum(_roll_stretch(graph, part, known) for nodes in parts for part in without_refused(nodes, known))
    try:
        outputs = writer.outputs()
        writer.check_grad_mode()
    except UnsupportedError as error:
        known.refused[stretch[-1]] = str(error)
        return 0
    if not outputs.nodes:
        return 0
    before = writer.finish(outputs.nodes)
    after = _C.run_passes(before, ["roll"])
    scans = after.count("scan") - before.count("scan")
    if scans > 0:
        _replace(graph, writer, outputs, after.text)
    return max(scans, 0)


def _replace(graph: fx.Graph, writer: Writer, outputs: Outputs, text: str) -> None:
    last = max(writer.members)
    after = _behind(writer, outputs, last)
    with graph.inserting_after(last):
        call = graph.call_function(CALL, (text, []))
    with graph.inserting_before(call):
        call.args = (text, [_given(graph, n) for n in writer.inputs])
    gone = {node for node in writer.members if node not in outputs.kept}
    results, at = _results(graph, call, writer, outputs)
    for node, result in results.items():
        if node in gone:
            node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in gone)
    for node, root in outputs.same.items():
        node.replace_all_uses_with(results.get(root, root), delete_user_cb=lambda user: user not in gone)
    for node in after:
        at.append(node)
        at = node
    for node in reversed(writer.members):
        if node in gone and not node.users:
            graph.erase_node(node)


def _results(
    graph: fx.Graph, call: fx.Node, writer: Writer, outputs: Outputs
) -> tuple[dict[fx.Node, fx.Node], fx.Node]:
    """The call's results by the nodes that they replace, including tensors from outside that are written to; and the
    last new node."""
    has_grad = any(isinstance(n, fx.Node) and example_of(n).requires_grad for n in writer.inputs)
    results, at = {}, call
    for index, node in enumerate(outputs.nodes):
        with graph.inserting_after(at):
            at = results[node] = graph.call_function(operator.getitem, (call, index))
        if example_of(node).is_complex():
            at.meta["example_value"] = as_pairs([example_of(node)])[0]
            with graph.inserting_after(at):
                at = results[node] = graph.call_function(torch.view_as_complex, (at,))
        at.meta = dict(node.meta)
        if has_grad and not example_of(node).requires_grad:  # the node is detached, but the call has a derivative
            with graph.inserting_after(at):
                at = results[node] = graph.call_method("detach", (at,))
            at.meta = dict(node.meta)
    for root in outputs.written:
        with graph.inserting_after(at):
            at = graph.call_method("copy_", (root, results[root]))
        at.meta = dict(root.meta)
    return results, at


def _behind(writer: Writer, outputs: Outputs, last: fx.Node) -> list[fx.Node]:
    """Nodes before the stretch's last node that read its values (sizes, views), and so must move behind the call."""
    found: list[fx.Node] = []
    moved = {*outputs.nodes, *outputs.same} & set(writer.members)
    node = min(writer.members)
    while True:
        is_inside = node in writer.members and node not in outputs.kept
        if not is_inside and any(n in moved for n in node.all_input_nodes):
            found.append(node)
            moved.add(node)
        if node is last:
            return found
        node = node.next


def _given(graph: fx.Graph, source: fx.Node | Draw) -> fx.Node:
    """An input of the call: a complex tensor as pairs."""
    if isinstance(source, Draw):
        return _draw(graph, source)
    source = _detached(graph, source)
    if not example_of(source).is_complex():
        return source
    resolved = graph.call_method("resolve_conj", (source,))
    pairs = graph.call_function(torch.view_as_real, (resolved,))
    pairs.meta["example_value"] = as_pairs([example_of(source)])[0]
    return pairs


def _detached(graph: fx.Graph, source: fx.Node) -> fx.Node:
    """The node, detached if no gradient reaches it: its graph may belong to a step before and be gone, and the call
    would send zeros where autograd sends nothing."""
    if not example_of(source).requires_grad or any(map(_may_pass_gradients, source.users)):
        return source
    detached = graph.call_method("detach", (source,))
    detached.meta["example_value"] = example_of(source).detach()
    return detached


def _may_pass_gradients(node: fx.Node) -> bool:
    """Whether the node's result may require a gradient. For several results the examples don't tell."""
    return not isinstance(example_of(node), Tensor) or example_of(node).requires_grad


def _draw(graph: fx.Graph, draw: Draw) -> fx.Node:
    empty = graph.call_function(torch.empty, (draw.shape,), {"dtype": draw.noise.dtype, "device": "cpu"})
    return graph.call_method(draw.noise.method, (empty, *draw.noise.arguments))
