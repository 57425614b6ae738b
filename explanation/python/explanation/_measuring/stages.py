"""The number of pieces into which each way of compiling divides a step, and why they differ."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft import backend
from weft._capture.stats import since, stats
from weft.explanation._lazy.on_device import Lazy
from weft.explanation._report.records import Stage, Subject

Counts = tuple[dict[str, Any], dict[str, Any]]


def counters() -> Counts:
    """The present counters of Weft's engine and backend."""
    return stats(), vars(backend.stats).copy()


def weft_counts(start: Counts) -> dict[str, Any]:
    """How much Weft's counters have grown since then."""
    (before, backend_before), (now, backend_now) = start, counters()
    counts: dict[str, Any] = {
        "programs_compiled": now["compiled"]
        + now["object_cache_hits"]
        - before["compiled"]
        - before["object_cache_hits"],
        "calls": now["calls"] - before["calls"],
    }
    for name in ("fallbacks", "extern"):
        changed = {key: count - before[name].get(key, 0) for key, count in now[name].items()}
        counts[name] = {key: count for key, count in changed.items() if count}
    counts["not_rolled"] = since(now["backend"]["not_rolled"], before["backend"]["not_rolled"], by_name=True)
    for name in ("graphs", "calls", "regions", "rolled"):
        counts[f"backend_{name}"] = backend_now[name] - backend_before[name]
    return counts


def stages(subject: Subject, lazy: Lazy) -> list[Stage]:
    """The stages FX, AOT, kernels, weft and lazy, side by side."""
    graphs = len(subject.graphs)
    aot = sum(graph.aot for graph in subject.graphs)
    kernels = [graph.kernels for graph in subject.graphs if graph.kernels is not None]
    programs = subject.weft.get("backend_calls") if subject.backend == "weft" else None
    return [
        Stage("FX", graphs, _why_fx(subject)),
        Stage("AOT", aot or None, _why_aot(subject, graphs, aot)),
        Stage("kernels", sum(kernels) if kernels else None, _why_kernels(subject, kernels)),
        Stage("weft", programs, _why_weft(subject, programs)),
        Stage("lazy", lazy.programs, _why_lazy(lazy)),
    ]


def _why_fx(subject: Subject) -> str:
    breaks = [found for found in subject.breaks if not found.hidden]
    if not breaks:
        return "no break"
    skipped = sum(found.skips_frame for found in breaks)
    words = f"{len(breaks)} distinct break{'s' if len(breaks) > 1 else ''}"
    words += f", {skipped} of which left a whole function to Python" if skipped else ""
    return f"{words}: {_listed([f'{found.source} in line {found.line}' for found in breaks])}"


def _why_aot(subject: Subject, graphs: int, aot: int) -> str:
    if not aot:
        return f"the backend {subject.backend} does not use AOTAutograd"
    backwards = sum(graph.backwards for graph in subject.graphs)
    if backwards:
        return f"{aot - backwards} forward, {backwards} backward, of graphs that are differentiated"
    if aot == graphs:
        return "one of each FX graph"
    return "graphs without operations are not handed on"


def _why_kernels(subject: Subject, kernels: list[int]) -> str:
    if not kernels:
        return f"the backend {subject.backend} writes no kernels"
    names: Counter[str] = Counter()
    for graph in subject.graphs:
        names.update(graph.kernel_calls)
    return f"kernels that Inductor's code calls: {_listed([f'{n} {name}' for name, n in names.most_common()])}"


def _why_weft(subject: Subject, programs: int | None) -> str:
    if programs is None:
        return "not compiled with the backend weft"
    extern = Counter(subject.weft["extern"])
    fallbacks = sum(subject.weft["fallbacks"].values())
    words = f"{sum(extern.values())} calls of ATen's operators from graphs and programs, {fallbacks} fallbacks"
    return words + (f": {_listed([name for name, _ in extern.most_common()])}" if extern else "")


def _listed(words: list[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _why_lazy(lazy: Lazy) -> str:
    if lazy.variant is None:
        return f"not run: {lazy.note}"
    if not lazy.cuts:
        return "nothing asks for a value"
    places = [f"{cut.asked_by} in line {cut.line}" for cut in lazy.cuts]
    return f"values are asked for {len(places)} times a step ({_listed(list(dict.fromkeys(places)))})"


def loops_left(weft: dict[str, Any]) -> list[str]:
    """A remark about loops that the backend weft left unrolled."""
    return [
        f"{steps} like step{'s' * (steps > 1)} of a loop stay one after the other ({place}: {reason}); docs/loops.md "
        "says what to change"
        for place, reasons in weft.get("not_rolled", {}).items()
        for reason, steps in reasons.items()
    ]
