"""`torch.compile(model, backend="weft")`.

Dynamo's graph goes through AOTAutograd, which traces forward and backward with `torch.ops.weft.call` standing for the
recurrences, differentiated by Weft already. Each of the two graphs is then compiled by `_compile_graph`; an ATen op
that is no part of a Weft program stays a call to ATen, without a graph break and without a copy.

The entry point of group `torch_dynamo_backends` names `weft` below, so `torch.compile` finds it without `import weft`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from weft._base import warn
from weft._base.torch_private import BoxedCodeGen, OpOverload, aot_autograd, default_partition
from weft._base.words import did_you_mean
from weft._capture.stats import BackendStats, extern
from weft._capture.stats import backend as stats
from weft._control import higher_order
from weft._dynamo.regions import cleanup
from weft._dynamo.regions.fuse import fuse_regions
from weft._dynamo.rolling import given_up
from weft._dynamo.rolling.buffers import replace_buffers
from weft._dynamo.rolling.not_rolled import NotRolled
from weft._dynamo.rolling.roll import roll

__all__ = ["BackendStats", "stats", "weft"]

Compiled = Callable[..., Any]

# torch.compile's modes trade compile time for speed in Inductor. Weft has one way to compile, the fast one.
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
OPTIONS = {
    "capture": bool,  #: whether ATen ops join the programs next to them; True
    "roll": bool,  #: whether loops that Dynamo unrolled become scans; True
}


_MOST_STEPS = 8  #: steps of a loop that stay written out without a warning

watchers: list[Callable[[fx.Graph], None]] = []  #: called with each graph when it runs


def weft(graph_module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Compiled:
    """The backend: from Dynamo's graph to a function of the same inputs.

    `mode` may be any of torch.compile's and changes nothing. `options={"capture": False}` runs every ATen op by itself
    instead of letting those that the IR has join the programs next to them. `options={"roll": False}` leaves a Python
    loop as Dynamo gives it, its steps one after the other, instead of making it one scan.

    Raises:
        ValueError: an unknown mode or option.
    """
    options = _check_arguments(**kwargs)
    compile_graph = functools.partial(_compile_graph, capture=options.get("capture", True))
    start = time.perf_counter()
    stats.frames += 1
    try:
        if options.get("roll", True):
            replace_buffers(graph_module.graph)
            scans, left = roll(graph_module.graph)
            stats.rolled += scans
            _tell(left)
            graph_module.recompile()
        with higher_order.in_backend():
            return aot_autograd(
                fw_compiler=compile_graph,
                bw_compiler=compile_graph,
                # saves the tensors that eager saves; without fusion recomputing would not pay
                partition_fn=default_partition,
                keep_inference_input_mutations=True,
            )(graph_module, example_inputs)
    finally:
        stats.seconds += time.perf_counter() - start


def _tell(left: Sequence[NotRolled]) -> None:
    """Counts the loops that stay unrolled, and warns about each long one, at its line."""
    for loop in left:
        _count_left(loop)
        if loop.steps > _MOST_STEPS:
            text = (
                f"weft: {loop.steps} like steps of a loop stay one after the other, since {loop.reason}; "
                "they compute the same, but compile longer and run slower than a scan (docs/loops.md)"
            )
            warn.of_fallback_at(text, loop.place.file, loop.place.line)


def _tell_given_up(loop: NotRolled) -> None:
    _count_left(loop)
    text = f"weft: a loop runs as Python's, one step after the other, since {loop.reason} (docs/loops.md)"
    warn.of_fallback_at(text, loop.place.file, loop.place.line)


def _count_left(loop: NotRolled) -> None:
    reasons = stats.not_rolled.setdefault(str(loop.place), {})
    reasons[loop.reason] = reasons.get(loop.reason, 0) + loop.steps


given_up.install(_tell_given_up, "weft")


def _check_arguments(mode: str | None = None, options: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    if others:
        raise ValueError(f"backend 'weft' takes mode and options, not {', '.join(sorted(others))}")
    if mode is not None and mode not in _MODES:
        hint = did_you_mean(mode, _MODES) or f"; there are {', '.join(_MODES)}"
        raise ValueError(f"backend 'weft' has no mode {mode!r}{hint}")
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"; there are: {', '.join(OPTIONS)}"
            raise ValueError(f"backend 'weft' has no option {name!r}{hint}")
        if not isinstance(value, OPTIONS[name]):
            raise ValueError(f"backend 'weft': the option {name!r} takes {OPTIONS[name].__name__}, not {value!r}")
    return options or {}


def _compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, capture: bool) -> Compiled:
    """Compiles one of AOTAutograd's graphs, in the boxed convention: arguments are freed as soon as they have been
    used."""
    graph = graph_module.graph
    cleanup.tidy(graph)
    cleanup.drop_unused_outputs(graph)
    if capture:
        stats.regions += fuse_regions(graph)
    _count(graph)
    for watcher in watchers:
        watcher(graph)
    cleanup.resolve_conjugates(graph)
    graph.set_codegen(BoxedCodeGen())
    graph_module.recompile()
    forward = graph_module.forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _count(graph: fx.Graph) -> None:
    stats.graphs += 1
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if node.target.namespace == "weft":
            stats.calls += 1
        else:
            extern[str(node.target)] += 1
