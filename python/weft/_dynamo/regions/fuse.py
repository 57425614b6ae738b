"""Replaces each region by a call of one program."""

from __future__ import annotations

import heapq
import itertools
import operator

import torch
from torch import fx

from weft._dynamo.regions.nodes import CALL, is_barrier, is_call, is_output, is_pure
from weft._dynamo.regions.partition import Partition
from weft._dynamo.regions.program import RegionProgram


def fuse_regions(graph: fx.Graph) -> int:
    """Replaces regions by calls of one program each; returns how many there were."""
    if not any(is_call(node) for node in graph.nodes):
        return 0
    analysis, programs = _programs(graph)
    replaced: dict[fx.Node, fx.Node] = {}
    for members, program in programs:
        _replace(graph, members, program, analysis, replaced)
    if programs:
        _sort(graph, analysis.order)
    return len(programs)


def _programs(graph: fx.Graph) -> tuple[Partition, list[tuple[list[fx.Node], RegionProgram]]]:
    """The regions with their programs. Where the IR refuses a node after all, the search for regions starts again
    without it."""
    refused: set[fx.Node] = set()
    while True:
        analysis = Partition(graph, refused)
        regions = [members for members in analysis.regions() if sum(not is_output(node) for node in members) > 1]
        programs = [(members, RegionProgram(analysis, members)) for members in regions]
        if not (found := set().union(*(program.refused for _, program in programs))):
            return analysis, [(members, program) for members, program in programs if program.outputs]
        refused |= found


def _replace(
    graph: fx.Graph,
    members: list[fx.Node],
    program: RegionProgram,
    analysis: Partition,
    replaced: dict[fx.Node, fx.Node],
) -> None:
    """Puts the program's call where the last member is; `_sort` mends the order. `replaced` maps nodes to the results
    of calls that took their place."""
    place = analysis.order[members[-1]]
    with graph.inserting_after(members[-1]):
        call = graph.call_function(CALL, (program.text, []))
    with graph.inserting_before(call):
        inputs = [
            graph.call_function(torch.ops.aten.t.default, (given,)) if n in program.transposed else given
            for n, given in ((n, replaced.get(n, n)) for n in program.inputs)
        ]
    call.args = (program.text, inputs)
    for n in inputs:
        analysis.order.setdefault(n, place)
    call.meta["val"] = [node.meta["val"] for node in program.outputs]
    analysis.order[call] = place
    at = call
    for i, node in enumerate(program.outputs):
        with graph.inserting_after(at):
            at = graph.call_function(operator.getitem, (call, i))
        at.meta = dict(node.meta)
        analysis.order[at] = place
        node.replace_all_uses_with(at)
        replaced[node] = at
    gone = set(members)
    for node in reversed(list(graph.nodes)):
        if not node.users and (node in gone or node in analysis.views):
            graph.erase_node(node)


def _sort(graph: fx.Graph, place: dict[fx.Node, int]) -> None:
    """Puts every node after the nodes that it reads, and otherwise by `place`. Random numbers keep their order; nothing
    moves past a mutation."""
    nodes = list(graph.nodes)
    followers: dict[fx.Node, set[fx.Node]] = {node: set(node.users) for node in nodes}
    impure = sorted((node for node in nodes if not is_pure(node)), key=place.__getitem__)
    for before, after in itertools.pairwise(impure):
        followers[before].add(after)
    before: fx.Node | None = None
    between: list[fx.Node] = []  # since the last barrier
    for node in sorted(nodes, key=place.__getitem__):
        if node.op in ("placeholder", "get_attr"):
            continue
        if before is not None:
            followers[before].add(node)
        if is_barrier(node) and not is_pure(node):
            for each in between:
                followers[each].add(node)
            before, between = node, []
        else:
            between.append(node)
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for follower in followers[node]:
            waiting[follower] += 1
    index = {node: i for i, node in enumerate(nodes)}
    ready = [(place[node], index[node], node) for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    previous = graph._root
    while ready:
        *_, node = heapq.heappop(ready)
        previous.append(node)
        previous = node
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (place[follower], index[follower], follower))
    graph.lint()
