"""The loops of a program that uses the lazy device: at which line a step ends, and which cuts belong to which step."""

from __future__ import annotations

import ast
import dataclasses
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any

from weft.explanation._changes.code import Source
from weft.explanation._lazy.cuts import Callers, Cut, Place

_FEWEST = 3  #: steps that make a loop
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclasses.dataclass
class Loop:
    """Steps that end at the same line."""

    place: Place
    function: str
    is_sync: bool  #: ends at a sync; else at the line that asks for values last
    steps: list[list[Cut]] = dataclasses.field(default_factory=list)

    def ends(self, cut: Cut) -> bool:
        """Whether the step ends there."""
        return cut.place == self.place and (cut.asked_by == "sync") == self.is_sync

    def settled(self) -> list[list[Cut]]:
        """Steps in which nothing was new; where there are none, the second half of all."""
        found = [step for step in self.steps if all(cut.is_settled for cut in step)]
        return found or self.steps[len(self.steps) // 2 :]

    def usual(self) -> list[list[Cut]]:
        """The settled steps with the most common sequence of cuts."""
        shapes = Counter(_shape(step) for step in self.settled())
        (shape, _), *_ = shapes.most_common(1)
        return [step for step in self.settled() if _shape(step) == shape]


def _shape(step: Sequence[Cut]) -> tuple[Any, ...]:
    return tuple((cut.place, cut.asked_by) for cut in step)


def loops(
    cuts: Sequence[Cut], callers: Mapping[Place, Callers] | None = None, updates: Sequence[float] = ()
) -> list[Loop]:
    """The program's loops, those with most steps first.

    A step ends at a sync. A program without syncs is taken to have one loop, whose steps end where values are asked
    for: in training, at the last line met once an update; otherwise at the last line of the outermost loop.

    Args:
        cuts: the program's cuts, in order.
        callers: for each line the lines that called it, which tell loops within loops apart.
        updates: when each update of parameters was done (time.perf_counter()), in order.
    """
    by_sync = Counter(cut.place for cut in cuts if cut.asked_by == "sync")
    is_sync = any(count >= _FEWEST for count in by_sync.values())
    ends = set(by_sync) if is_sync else _last_reads(cuts, callers or {}, updates)
    found: dict[Place, Loop] = {}
    step: list[Cut] = []
    before: Place | None = None
    for cut in cuts:
        step.append(cut)
        if cut.place not in ends or (cut.asked_by == "sync") != is_sync:
            continue
        loop = found.setdefault(cut.place, Loop(cut.place, cut.function, is_sync))
        if before == cut.place:  # what comes before the first is what prepares the loop
            loop.steps.append(step)
        step, before = [], cut.place
    return sorted((loop for loop in found.values() if len(loop.steps) >= _FEWEST), key=lambda each: -len(each.steps))


def _last_reads(cuts: Sequence[Cut], callers: Mapping[Place, Callers], updates: Sequence[float]) -> set[Place]:
    """The line that reads values last in a step."""
    reads: dict[Place, list[Cut]] = {}
    for cut in cuts:
        if cut.line:
            reads.setdefault(cut.place, []).append(cut)
    reads = {place: found for place, found in reads.items() if len(found) >= _FEWEST}
    once = {place: found for place, found in reads.items() if _updates_between(found, updates) == 1}
    reads = once or (reads if updates else _outermost(reads, callers))
    most = max(map(len, reads.values()), default=0)
    often = {place for place, found in reads.items() if len(found) >= most - 1}
    last = next((cut.place for cut in reversed(cuts) if cut.place in often), None)
    return {last} if last else set()


def _updates_between(reads: Sequence[Cut], updates: Sequence[float]) -> int:
    """The usual number of updates from one read to the next."""
    return median_low(bisect(updates, two.begin) - bisect(updates, one.begin) for one, two in pairwise(reads))


def _outermost(reads: dict[Place, list[Cut]], callers: Mapping[Place, Callers]) -> dict[Place, list[Cut]]:
    """The reads whose loops don't lie within the loop of another read. A decoder asks at every token whether to go on,
    but its step is the batch, after which the tokens are read."""
    sources: dict[str, Source] = {}
    around = {place: _loops_around(callers.get(place, (place,)), sources) for place in reads}

    def is_inner(place: Place) -> bool:
        own = around[place]
        return any(len(other) < len(own) and own[: len(other)] == other for other in around.values() if other)

    return {place: found for place, found in reads.items() if not is_inner(place)}


def _loops_around(lines: Callers, sources: dict[str, Source]) -> tuple[Place, ...]:
    """The loops around these lines, each by file and line, from the outermost."""
    found: list[Place] = []
    for file, line in lines:
        source = sources.setdefault(file, Source(file))
        if source.tree is not None:
            found += [(file, loop) for loop in _loop_lines(source.tree, line)]
    return tuple(found)


def _loop_lines(tree: ast.AST, line: int) -> list[int]:
    """The lines of the loops that run a line at every turn, within the innermost function that contains the line."""
    inside: list[int] = []
    for node in ast.iter_child_nodes(tree):
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if not first <= line <= last:
            continue
        if isinstance(node, _FUNCTIONS):
            return _loop_lines(node, line)
        is_once = isinstance(node, ast.For) and line < node.body[0].lineno  # what it iterates over
        own = [first] if isinstance(node, _LOOPS) and not is_once else []
        inside = [*own, *_loop_lines(node, line)]
    return inside
