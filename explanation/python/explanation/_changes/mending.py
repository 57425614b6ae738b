"""Finds which change mends which break: each change is applied to a copy, compiled and run."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import warnings
from types import CodeType, FunctionType
from typing import Any

import torch

from weft.explanation import _C
from weft.explanation._changes import bridges as _bridges
from weft.explanation._changes.bridges import MISFIT, Bridge, Builder, ways_around
from weft.explanation._changes.code import Put, Source, code_copies
from weft.explanation._changes.rewrites import Change, changed, changes_for
from weft.explanation._measuring.steps import Step, Variant, compiled, run_once, same
from weft.explanation._report.records import Break, Frame
from weft.explanation._watching import clock, reasons
from weft.explanation._watching.collect import BreakKey, Collected, collect, is_library, key_of, plain_name
from weft.explanation._watching.watch import Watch, Watched

_MOST_TOGETHER = 8  #: breaks that one after the other come to light behind one
_QUICK = 7  #: runs that say which of two ways is the faster


@dataclasses.dataclass
class Mend:
    """Changes that together mend some breaks, with the result of their trial."""

    changes: list[Change]
    breaks: set[BreakKey]
    works: bool
    outcome: str
    swaps: list[tuple[FunctionType, CodeType]] = dataclasses.field(default_factory=list)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    puts: list[Put] = dataclasses.field(default_factory=list)
    diff: str = ""
    left: bool = False  #: what came to light behind it breaks the function still

    @property
    def title(self) -> str:
        """The changes in words."""
        return "; ".join(dict.fromkeys(change.title for change in self.changes))

    @property
    def kind(self) -> str:
        """An action's."""
        if any(change.way and change.way != _bridges.UNMARKED for change in self.changes):
            return "bridge"
        return "rewrite" if any(change.edit or change.way for change in self.changes) else "setting"


class Workshop:
    """Tries changes on one step."""

    def __init__(self, watch: Watch, watched: Watched, step: Step, breaks: dict[BreakKey, Break]) -> None:
        self.watch, self.number, self.step, self.options = watch, watched.number, step, watched.options
        self.breaks = breaks  #: all that are known; those that come to light are added
        self.reference: Any = None  #: what the step results in without torch.compile; None: not always the same
        self._sources: dict[str, Source] = {}
        self._builder = Builder(step)
        self._behind: dict[BreakKey, set[BreakKey]] = {}  #: what came to light in trials for a break

    def source(self, file: str) -> Source:
        """The file, read once."""
        return self._sources.setdefault(file, Source(file))

    def mend(self, target: Break) -> Mend:
        """The first change that removes the break and keeps the results.

        In a function that was skipped as a whole, a further break may then appear. It is mended too, until the function
        is compiled.
        """
        if is_library(target.file):
            return self._nothing(target, "the line is PyTorch's own")
        outcomes = []
        part: Mend | None = None
        for change in _candidates(target):
            mend, reason = self._with_hidden([change], target)
            if mend and change.way == _bridges.DEVICE:
                return self._faster(mend, target)
            if mend and not mend.left:
                return mend
            part = part or mend
            outcomes.append(reason)
        if part:
            return part
        tried = [outcome for outcome in outcomes if not outcome.endswith(MISFIT)]
        return self._nothing(target, "; ".join(tried) or "no mechanical change fits the line")

    def _faster(self, mend: Mend, target: Break) -> Mend:
        """The faster one by a few runs of each: the loop on the device, or the loop that Dynamo doesn't compile."""
        (change,) = (each for each in ways_around(target) if each.way == _bridges.BOUNDARY)
        other, _ = self._with_hidden([change], target)
        if other is None:
            return mend
        times: dict[int, list[float]] = {0: [], 1: []}
        variants = [self._variant(each) for each in (mend, other)]
        for turn in range(_QUICK + 2):
            for index, variant in enumerate(variants):
                begin = clock.now()
                run_once(variant, self.step)
                if turn > 1:
                    times[index].append(clock.now() - begin)
        return mend if min(times[0]) < min(times[1]) else other

    def _variant(self, mend: Mend) -> Variant:
        call = compiled(self.step, self.options, "eager")
        return Variant("trial", call, mend.swaps, mend.settings, mend.puts)

    def _nothing(self, target: Break, outcome: str) -> Mend:
        return Mend([], {key_of(target)}, False, outcome)

    def _with_hidden(self, changes: list[Change], target: Break) -> tuple[Mend | None, str]:
        wanted = {key_of(target)}
        behind = self._behind.setdefault(key_of(target), set())
        tried, reason = self.trial(changes)
        while True:
            if tried is None:
                return None, reason
            mend, found = tried
            left = found.keys()
            if wanted & left:
                return None, f"{changes[-1].title}: tried, and the break is still there"
            fresh = [each for each in found.breaks if self._is_hidden(each) and not _is_bridge(each)]
            gone = {key for key, each in self.breaks.items() if not each.hidden and key not in left}
            if changes[-1].settings:
                fresh += self._unbacked(target)
            for each in fresh:
                if key_of(each) not in self.breaks:
                    each.id, each.hidden = len(self.breaks), True
                    self.breaks[key_of(each)] = each
            behind |= {key_of(each) for each in fresh}
            mend.breaks = wanted | gone | (behind - left)
            if changes[-1].settings:  # one setting for all of them
                mend.breaks |= {key_of(each) for each in fresh if each.type == target.type}
                mend.left = any(each.type != target.type for each in fresh)
                return mend, ""
            mend.left = bool(fresh)
            if not fresh or len(wanted) >= _MOST_TOGETHER:
                return mend, ""
            hidden = key_of(fresh[0])
            for following in _candidates(fresh[0]):
                if following.settings or following.way in (_bridges.DEVICE, _bridges.BOUNDARY):
                    continue  # a loop of its own is not what follows: it is instead of all that is in it
                tried, reason = self.trial([*changes, following])
                if tried and not {hidden} & tried[1].keys():
                    wanted.add(hidden)
                    changes = [*changes, following]
                    break
            else:
                return mend, ""

    def _is_hidden(self, found: Break) -> bool:
        """Whether the break appeared only after another one was mended, now or in an earlier trial."""
        known = self.breaks.get(key_of(found))
        return known is None or known.hidden

    def _unbacked(self, target: Break) -> list[Break]:
        """Breaks of the target's kind that a setting mends before Dynamo could name them, as in a loop after the
        target. They are at the lines of those nodes in the new graphs whose sizes or numbers depend on values."""
        found: dict[BreakKey, Break] = {}
        for graph in self.watch.last_graphs:
            for node in graph.module.graph.nodes:
                frames = _C.parse_break("User code traceback:\n" + (node.stack_trace or ""))["path"]
                if not node.meta.get("unbacked_bindings") or not frames or not _same_kind(target, node):
                    continue
                path = [Frame(*frame) for frame in frames if not is_library(frame[0])]
                if not path:
                    continue
                place = path[-1]
                copy = dataclasses.replace(
                    target, file=place.file, line=place.line, function=plain_name(place.function), source=place.code,
                    met=0, paths=[path], hits=None, gap=None, bytes=None, cost=None, shared_with=[],
                )  # fmt: skip
                if key_of(copy) not in self.breaks:
                    found.setdefault(key_of(copy), copy)
        return list(found.values())

    def trial(self, changes: list[Change]) -> tuple[tuple[Mend, Collected] | None, str]:
        """Dynamo's result for the changed program; the reason if the change can't be made or changes results."""
        title = changes[-1].title
        try:
            mend = self.prepare(changes)
        except ValueError as misfit:
            return None, f"{title}: {misfit}"
        variant = self._variant(mend)
        events, subject = self.watch.events, self.watch.subject
        self.watch.events, self.watch.subject = [], self.number
        self.watch.last_graphs = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = run_once(variant, self.step)
            found = collect(self.watch.events)
        except Exception as error:  # whatever the changed program raises
            return None, f"{title}: tried, and it raised {type(error).__name__}: {str(error).splitlines()[0][:120]}"
        finally:
            self.watch.events, self.watch.subject = events, subject
        if self.reference is not None and not same(result, self.reference):
            return None, f"{title}: tried, and the results are not the same"
        return (mend, found), ""

    def copies(self) -> list[tuple[FunctionType, CodeType]]:
        """Copies of the code of all functions by which breaks were reached: what Dynamo gave up on stays given up for a
        code object."""
        lines: dict[str, set[int]] = {}
        for found in self.breaks.values():
            for frame in (frame for path in found.paths for frame in path):
                lines.setdefault(frame.file, set()).add(frame.line)
        return code_copies(lines)

    def prepare(self, changes: list[Change]) -> Mend:
        """The changes as code and settings.

        Raises:
            ValueError: one does not fit; the message says why.
        """
        mend = Mend(changes, set(), True, "")
        for file in dict.fromkeys(change.file for change in changes if change.edit or change.way):
            source = self.source(file)
            here = [change for change in changes if change.file == file and (change.edit or change.way)]
            # From the last line to the first: an edit may change the number of statements before later ones.
            here.sort(key=lambda change: -change.line)
            edits = [change for change in here if change.edit]
            tree = source.edited([change.edit for change in edits if change.edit])
            swaps = source.swaps(tree, [change.line for change in edits]) if tree is not None else None
            if swaps is None:
                raise ValueError(MISFIT)
            mend.swaps += swaps
            bridges = {change: self._builder.bridge(change, source) for change in here if change.way}
            mend.puts += [put for bridge in bridges.values() for put in bridge.puts]
            mend.diff += difference(source, here, bridges)
        edited = {id(function) for function, _ in mend.swaps}
        mend.swaps += [pair for pair in self.copies() if id(pair[0]) not in edited]
        for change in changes:
            mend.settings |= dict(change.settings)
        lines = [f"torch._dynamo.config.{name} = {value!r}" for name, value in mend.settings.items()]
        mend.diff += "\n".join(lines)
        return mend


def _candidates(found: Break) -> list[Change]:
    return [*changes_for(found), *ways_around(found)]


def _is_bridge(found: Break) -> bool:
    """The call of a function that was put there to be left alone."""
    return "<function _region_" in found.context + found.explanation


def difference(source: Source, changes: list[Change], bridges: dict[Change, Bridge] | None = None) -> str:
    """The changes as a unified diff: only the statements that change are written anew."""
    lines = source.text.splitlines()
    parts: list[tuple[int, int, list[str]]] = []  # from, to, what stands there then
    assert source.tree is not None
    for change in changes:
        bridge = (bridges or {}).get(change, Bridge())
        if bridge.deleted:
            parts.append((bridge.deleted[0] - 1, bridge.deleted[1], []))
        if bridge.helper:
            start = _top(source.tree, change.line)
            parts.append((start, start, [*bridge.helper.splitlines(), "", ""]))
        tree = source.edited([change.edit]) if change.edit else None
        region = changed(source.tree, tree) if tree is not None else None
        if region is not None:
            old, after = region
            parts.append((old[0].lineno - 1, old[-1].end_lineno or 0, written(lines, old, after)))
    return unified(source, parts)


def unified(source: Source, parts: list[tuple[int, int, list[str]]]) -> str:
    """A diff of the file in which one range of lines is replaced."""
    lines = source.text.splitlines()
    new = list(lines)
    for first, last, text in sorted(parts, key=lambda part: -part[0]):
        new[first:last] = text
    name = source.file
    return "".join(f"{line}\n" for line in difflib.unified_diff(lines, new, name, name, lineterm="", n=1))


def _top(tree: ast.Module, line: int) -> int:
    """The number of lines before the module's statement around the line, decorators included."""
    for node in tree.body:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            return min([node.lineno, *(each.lineno for each in decorators)]) - 1
    return 0


def written(lines: list[str], old: list[ast.stmt], after: list[ast.stmt]) -> list[str]:
    """The new statements as lines, with what stood before and after the old ones on their lines."""
    first, last = lines[old[0].lineno - 1], lines[(old[-1].end_lineno or 1) - 1]
    before, behind = first[: old[0].col_offset], last[old[-1].end_col_offset :].strip()
    margin = first[: len(first) - len(first.lstrip())]
    head: list[str] = []
    if first[old[0].col_offset :].startswith("elif"):
        head, margin = [f"{margin}else:"], margin + "    "
    elif before.rstrip().endswith(":"):
        head, margin = [before.rstrip()], margin + "    "
    elif before.strip():
        head = [before.rstrip().rstrip(";")]
    tail = [f"{margin}{behind.lstrip('; ')}"] if behind.startswith(";") else []
    text = [margin + line for statement in after for line in ast.unparse(statement).splitlines()]
    return [*head, *text, *tail]


def _same_kind(target: Break, node: torch.fx.Node) -> bool:
    """Whether the node is the operation that Dynamo named at the break, such as aten.nonzero.default."""
    asks_for_number = "item()" in target.type
    operator = target.context.split(".")[1] if target.context.startswith("aten.") else ""
    name = str(getattr(node.target, "__name__", node.target))
    return name == "item" if asks_for_number else bool(operator) and operator in name


def as_advice(found: Break) -> str:
    """Advice, where no trial succeeded."""
    return reasons.advice(found.type, found.hints)
