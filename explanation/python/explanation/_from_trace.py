"""A report about a finished run, from the trace that it left."""

from __future__ import annotations

from weft.explanation._report.records import Stage, Subject
from weft.explanation._watching.collect import collect
from weft.explanation._watching.trace import TraceEvent, read_directory


def subjects_of(path: str) -> list[Subject]:
    """One subject for each process. A trace doesn't tell what a step costs, nor what a change would gain.

    Raises:
        TraceError: the trace can't be read.
    """
    processes = read_directory(path)
    names = [f"process {number}" for number in range(len(processes))] if len(processes) > 1 else ["the traced run"]
    return [_subject(name, events) for name, events in zip(names, processes, strict=True)]


def _subject(name: str, events: list[TraceEvent]) -> Subject:
    found = collect(events)
    subject = Subject(name, "", 0, "as traced", any(event.name == "aot_backward_graph" for event in events), 0)
    subject.graphs, subject.breaks, subject.recompiles = found.graphs, found.breaks, found.recompiles
    subject.compile_seconds = found.compile_seconds
    kernels = [graph.kernels for graph in found.graphs if graph.kernels is not None]
    aot = sum(graph.aot for graph in found.graphs)
    subject.stages = [
        Stage("FX", len(found.graphs), f"{len(found.breaks)} distinct breaks" if found.breaks else "no break"),
        Stage("AOT", aot or None, "as traced"),
        Stage("kernels", sum(kernels) if kernels else None, "that Inductor's code calls"),
    ]
    return subject
