"""What XLA makes of the same graphs and programs: HLO operations, fusions and kernels. Needs the package jax."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from weft import backend
from weft._base.torch_private import OpOverload
from weft._stablehlo.write import StableHLO, stablehlo
from weft.explanation._records import Hlo, Program, Stage, Subject
from weft.explanation._watch import CompiledGraph, tensors

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
    """Adds to the subject what XLA makes of its graphs and programs, as long as there is time."""
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
    subject.stages.append(_stage(subject))


def _counted(make: Callable[[], tuple[StableHLO, str]], until: float) -> Hlo:
    if time.monotonic() > until:
        return Hlo(None, None, None, "no time was left")
    try:
        made, note = make()
        counts = made.count()
    except Exception as error:  # an operator without ops of StableHLO, and whatever XLA has against the rest
        return Hlo(None, None, None, " ".join(str(error).split())[:200])
    return Hlo(counts.total, counts.fusions, counts.kernels, note)


def _of_graph(graph: CompiledGraph, train: bool) -> tuple[StableHLO, str]:
    """Dynamo's graph, in training with the derivative for what wants a gradient."""
    wanted = train and any(leaf.requires_grad for leaf in tensors(graph.inputs))
    inputs = graph.inputs if wanted else [_detached(leaf) for leaf in graph.inputs or ()]
    with torch.set_grad_enabled(wanted):
        made = stablehlo(graph.module, *(inputs or ()), gradients=wanted)
    return made, "forward and backward in one" if wanted else ""


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _stage(subject: Subject) -> Stage:
    known = [graph.hlo for graph in subject.graphs if graph.hlo and graph.hlo.operations is not None]
    refused = [graph.hlo.note for graph in subject.graphs if graph.hlo and graph.hlo.operations is None]
    why = f"kernels that XLA makes of {len(known)} of {len(subject.graphs)} graphs"
    if known:
        operations, fusions = sum(one.operations or 0 for one in known), sum(one.fusions or 0 for one in known)
        why += f": {operations} HLO operations, {fusions} fusions"
    if refused:
        why += f"; not of the others: {refused[0]}"
    whole = bool(known) and not refused and len(known) == len(subject.graphs)
    return Stage("XLA", sum(one.kernels or 0 for one in known) if whole else None, why)
