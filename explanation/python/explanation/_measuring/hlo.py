"""Counts what XLA makes of the same graphs and programs: HLO operations, fusions and kernels. Needs the package jax."""

from __future__ import annotations

import copy
import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from weft import backend
from weft._base.torch_private import OpOverload
from weft._stablehlo.write import StableHLO, stablehlo
from weft.explanation._report.records import Hlo, Program, Stage, Subject
from weft.explanation._watching.watch import CompiledGraph, tensors

NOT_INSTALLED = (
    "what XLA makes of graphs is not counted: the package jax is not installed (pip install 'weft[stablehlo]')"
)


def is_installed() -> bool:
    """Whether there is something to count with."""
    return importlib.util.find_spec("jax") is not None


class Programs:
    """Collects the programs that the backend weft compiles, with the sizes of their inputs."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, tuple[Any, ...]], int] = {}  #: how many calls there are in the graphs

    def __enter__(self) -> Programs:
        backend.watchers.append(self._take)
        return self

    def __exit__(self, *error: object) -> None:
        backend.watchers.remove(self._take)

    def _take(self, graph: fx.Graph) -> None:
        for node in graph.nodes:
            if not isinstance(node.target, OpOverload) or node.target.namespace != "weft":
                continue
            values = [each.meta["val"] for part in node.args[1:] for each in part]
            sizes = tuple((tuple(int(size) for size in value.shape), value.dtype) for value in values)
            self.found[node.args[0], sizes] = self.found.get((node.args[0], sizes), 0) + 1


def count(subject: Subject, graphs: list[CompiledGraph], programs: Programs, seconds: float) -> None:
    """Adds XLA's counts for the subject's graphs and programs, as long as there is time."""
    until = time.monotonic() + seconds
    by_id = {graph.compile_id: graph for graph in graphs}
    for graph in subject.graphs:
        known = by_id.get(graph.compile_id)
        if known is not None and known.inputs is not None:
            graph.hlo = _counted(lambda known=known: _of_graph(known, subject.train), until)
    for number, ((text, sizes), calls) in enumerate(programs.found.items()):
        inputs = [torch.empty(shape, dtype=dtype) for shape, dtype in sizes]
        hlo = _counted(lambda text=text, inputs=inputs: (stablehlo(text, *inputs), ""), until)
        subject.programs.append(Program(number, text.count(" = "), calls, hlo))
    subject.stages += _stages(subject)


def _counted(make: Callable[[], tuple[StableHLO, str]], until: float) -> Hlo:
    if time.monotonic() > until:
        return Hlo(None, None, None, "no time was left")
    try:
        made, note = make()
        counts = made.count()
    except Exception as error:  # an operator without ops of StableHLO, and whatever XLA has against the rest
        return Hlo(None, None, None, " ".join(str(error).split())[:200])
    return Hlo(counts.total, counts.fusions, counts.kernels, note, dict(counts.operations))


def _of_graph(graph: CompiledGraph, train: bool) -> tuple[StableHLO, str]:
    """Dynamo's graph, in training with the derivative for what wants a gradient."""
    module, given, numbers = with_numbers(graph.module, graph.inputs or ())
    wanted = train and any(leaf.requires_grad for leaf in tensors(given))
    inputs = given if wanted else [_detached(leaf) for leaf in given]
    with torch.set_grad_enabled(wanted):
        made = stablehlo(module, *inputs, gradients=wanted)
    notes = ["forward and backward in one"] if wanted else []
    notes += [f"{numbers} numbers of Python's as constants"] if numbers else []
    return made, "; ".join(notes)


def with_numbers(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[Any], int]:
    """The graph with arguments that are Python numbers made constants, as in XLA; the other arguments; the number of
    these constants. Dynamo passes an int unchanged, and a float as a tensor whose value the graph reads."""
    graph = copy.deepcopy(module.graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    left, numbers = [], 0
    for node, value in zip(placeholders, inputs, strict=True):
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)):
            numbers += 1
            _replace(node, int(value) if isinstance(value, (int, torch.SymInt)) else float(value))
        elif reads := [user for user in node.users if user.op == "call_method" and user.target == "item"]:
            numbers += 1
            for read in reads:
                _replace(read, value.item())
                graph.erase_node(read)
            left.append(value)
            continue
        else:
            left.append(value)
            continue
        graph.erase_node(node)
    return fx.GraphModule(module, graph), left, numbers


def _replace(node: fx.Node, value: bool | float) -> None:
    """Has the node's users take the value instead."""
    for user in list(node.users):
        user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda each: value if each is node else each)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


#: Operations at which XLA's fusions end, or that are kernels by themselves.
_ALONE = ("dot", "convolution", "custom-call", "while", "reduce", "reduce-window", "scatter", "gather", "sort", "copy",
          "transpose", "concatenate", "dynamic-update-slice", "rng-bit-generator", "cholesky", "fft")  # fmt: skip


def _stages(subject: Subject) -> list[Stage]:
    """Counts for modules of StableHLO, and for the kernels that XLA makes of them."""
    known = [graph.hlo for graph in subject.graphs if graph.hlo and graph.hlo.operations is not None]
    refused = [graph.hlo.note for graph in subject.graphs if graph.hlo and graph.hlo.operations is None]
    count = len(subject.graphs)
    why = "one of each FX graph, with its backward in it" if subject.train else "one of each FX graph"
    if len(known) < count:
        why = f"of {len(known)} of {count} FX graphs" + (f"; not of the others: {refused[0]}" if refused else "")
    whole = bool(known) and len(known) == count
    return [
        Stage("StableHLO", len(known) if known or not count else None, why),
        Stage("kernels of XLA", sum(one.kernels or 0 for one in known) if whole else None, _why_kernels(known)),
    ]


def _why_kernels(known: Sequence[Hlo]) -> str:
    operations, fusions = sum(one.operations or 0 for one in known), sum(one.fusions or 0 for one in known)
    opcodes: Counter[str] = Counter()
    for one in known:
        opcodes.update({name: n for name, n in one.opcodes.items() if name in _ALONE})
    alone = ", ".join(f"{n} {name}" for name, n in opcodes.most_common(4))
    return f"{operations} HLO operations, {fusions} fusions" + (f"; what can't be fused: {alone}" if alone else "")
