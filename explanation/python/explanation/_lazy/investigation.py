"""A program on the lazy device: what cuts its steps, what each cut costs, and which change mends it."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

from weft.explanation import _C
from weft.explanation._changes.code import Source
from weft.explanation._lazy import changes as _lazy_changes
from weft.explanation._lazy import reasons
from weft.explanation._lazy.changes import LazyChange
from weft.explanation._lazy.cuts import Cut
from weft.explanation._lazy.loops import Loop
from weft.explanation._lazy.trials import Looked, TrialError, Trials
from weft.explanation._measuring import pairs as _pairs
from weft.explanation._report.records import (
    Action,
    Break,
    Event,
    Frame,
    Graph,
    Measured,
    Recompile,
    Run,
    Stage,
    Subject,
)
from weft.explanation._watching.collect import is_library

BACKEND = "lazy"  #: a subject's, whose steps are the device's
_MOST_TRIALS = 6
_PREPARING = 2  #: steps in which optimizers make their states, and records are new for that

Key = tuple[str, int, str]  #: file, line, kind of the reason


@dataclasses.dataclass
class _Mend:
    """Changes that together keep a step from being cut at some lines."""

    changes: list[LazyChange]
    breaks: set[Key]


class LazyInvestigation:
    """Fills in a Subject part by part, so that an interruption loses nothing found so far."""

    def __init__(
        self, words: list[str], loop: Loop, train: bool, has_closures: bool, effort: Any, limit: float
    ) -> None:
        self.loop, self.effort, self.has_closures = loop, effort, has_closures
        self.trials = Trials(words, loop, effort.seconds, limit)
        self.subject = _describe(loop, train)
        self.breaks: dict[Key, Break] = {}
        self._sources: dict[str, Source] = {}
        self._left: dict[Key, list[str]] = {}  #: ways that were not tried
        self._outcomes: dict[Key, str] = {}
        self._numbers = 0
        self.take(self.loop.usual())
        _recompiles(self.subject, loop)
        self._graphs(self.loop.usual())

    def source(self, file: str) -> Source:
        """The file, read once."""
        return self._sources.setdefault(file, Source(file))

    # What there is

    def take(self, steps: Sequence[Sequence[Cut]], hidden: bool = False) -> set[Key]:
        """The breaks of these steps: all cuts except those that end a step."""
        found: dict[Key, int] = {}
        for step in steps:
            for cut in step:
                if not self.loop.ends(cut):
                    key = self._key(cut)
                    found[key] = found.get(key, 0) + 1
                    if key not in self.breaks:
                        self.breaks[key] = self._break(cut, key, hidden)
        if not hidden:
            for key, count in found.items():
                self.breaks[key].met, self.breaks[key].hits = count, count / len(steps)
        self.subject.breaks = list(self.breaks.values())
        return set(found)

    def _key(self, cut: Cut) -> Key:
        return cut.file, cut.line, reasons.type_of(cut, self.source(cut.file))

    def _break(self, cut: Cut, key: Key, hidden: bool) -> Break:
        text = self.source(cut.file).text.splitlines()
        line = text[cut.line - 1].strip() if 0 < cut.line <= len(text) else ""
        end = self.loop.place[1] if self.loop.place[0] == cut.file and self.loop.is_sync else 0
        ways = _lazy_changes.ways_for(key[2], self.source(cut.file), cut.line, end, self.has_closures)
        self._left[key] = [] if is_library(cut.file) else ways
        return Break(
            id=len(self.breaks), file=cut.file, line=cut.line, function=cut.function, source=line, type=key[2],
            code="", reason=reasons.in_words(key[2]), explanation=reasons.explanation_of(cut),
            hints=[reasons.advice(key[2])], context=cut.asked_by, skips_frame=False, skipped_by="",
            hidden=hidden, met=0, paths=[[Frame(cut.file, cut.line, cut.function, line)]],
        )  # fmt: skip

    def _graphs(self, steps: list[list[Cut]]) -> None:
        """The graphs of a step, in the order in which they run."""
        self.subject.graphs = []
        for number, cut in enumerate(steps[0]):
            runs = [step[number] for step in steps]
            ended = None if self.loop.ends(cut) else self.breaks[self._key(cut)].id
            self.subject.graphs.append(
                Graph(
                    number, f"{cut.structure:016x}", cut.function, cut.file, cut.line, cut.operations, ended, 0, None,
                    max((run.compiling for step in self.loop.steps for run in step if run.structure == cut.structure),
                        default=0.0),
                    1.0, Measured(*_C.median_interval([run.end - run.begin for run in runs])),
                )
            )  # fmt: skip

    # What mends it

    def run(self) -> None:
        """Looks at the program's own steps, tries changes, measures."""
        self.effort.progress(f"{self.subject.name}: running it again", 0.0)
        try:
            own = self.trials.reference()
        except TrialError as error:
            self.subject.notes.append(f"nothing was measured: a copy of the program in a process of its own: {error}")
            return
        usual = Loop(self.loop.place, self.loop.function, self.loop.is_sync, [each.cuts for each in own]).usual()
        self.take(usual)
        self._graphs(usual)
        self._time_line([each for each in own if each.cuts in usual])
        mends = self._mended()
        self._measure(mends, own)

    def _time_line(self, own: list[Looked]) -> None:
        """The time line of the step with the median time."""
        middle = sorted(own, key=lambda each: each.end - each.begin)[len(own) // 2]
        reached, broken = middle.begin, None
        for number, cut in enumerate(middle.cuts):
            self.subject.timeline.append(Event(reached - middle.begin, cut.begin - middle.begin, None, broken))
            self.subject.timeline.append(Event(cut.begin - middle.begin, cut.end - middle.begin, number, None))
            reached, broken = cut.end, self.subject.graphs[number].ended_by
        self.subject.timeline.append(Event(reached - middle.begin, middle.end - middle.begin, None, None))

    def _mended(self) -> list[_Mend]:
        """Sets of changes that work. A cut that appears only after another one is mended belongs to that one's set."""
        mends: dict[Key, _Mend] = {}
        for key in list(self.breaks):
            if change := self._next(key):
                mends[key] = _Mend([change], {key})
        done: dict[Key, _Mend] = {}
        for _ in range(_MOST_TRIALS):
            if not mends:
                break
            self.effort.progress(f"{self.subject.name}: trying changes", len(done) / (len(done) + len(mends)))
            chosen = dict(list(mends.items())[: self.trials.most_variants()])
            looked = self._look(list(chosen.values()))
            for variant, (key, mend) in enumerate(chosen.items(), 1):
                following = self._judged(mend, looked, variant)
                if following is not mend:
                    mends.pop(key)
                    if following is not None:
                        mends[key] = following
                    continue
                done[key] = mends.pop(key)
        self._outcomes |= dict.fromkeys(mends, "no time was left to try more")
        return list(done.values())

    def _look(self, mends: list[_Mend]) -> list[Looked]:
        changes = list({change.id: change for mend in mends for change in mend.changes}.values())
        return self.trials.look(changes, [[change.id for change in mend.changes] for mend in mends])

    def _judged(self, mend: _Mend, looked: list[Looked], variant: int) -> _Mend | None:
        """The mend itself if it works; else the next one to try; None if there is none."""
        steps = [each.cuts for each in looked if each.variant == variant][1:]
        if not steps:
            return self._another(mend, f"the program failed: {self.trials.failed or 'it has too few steps'}")
        found = self.take(steps, hidden=True)
        if mend.breaks & found:
            return self._another(mend, "the step is cut there still")
        if misfit := self.trials.misfit(looked, variant):
            return self._another(mend, f"the results are not the same ({misfit})")
        fresh = [each for each in found if self.breaks[each].hidden and each not in mend.breaks]
        for each in fresh:
            if change := self._next(each):
                return _Mend([*mend.changes, change], mend.breaks | {each})
        return mend

    def _another(self, mend: _Mend, outcome: str) -> _Mend | None:
        """Another way for the last of the mend's changes, which has failed; the others alone if there is none."""
        last = mend.changes[-1]
        target = next(each for each in mend.breaks if each[:2] == (last.file, last.line))
        self._outcomes[target] = f"{last.title}: tried, and {outcome}"
        if change := self._next(target):
            return _Mend([*mend.changes[:-1], change], mend.breaks)
        rest = _Mend(mend.changes[:-1], mend.breaks - {target})
        return rest if rest.changes else None

    def _next(self, key: Key) -> LazyChange | None:
        if not self._left[key]:
            return None
        self._numbers += 1
        return LazyChange(self._numbers, key[0], key[1], self._left[key].pop(0), self.loop.place[1])

    # What it costs

    def _measure(self, mends: list[_Mend], own: list[Looked]) -> None:
        changes = list({change.id: change for mend in mends for change in mend.changes}.values())
        variants = [[], *([change.id for change in mend.changes] for mend in mends)]
        if len(mends) > 1:
            variants.append([change.id for change in changes])
        self.effort.progress(f"{self.subject.name}: measuring", 0.2)
        times = self.trials.measure(changes, variants, self.effort.rounds)
        if not times[0]:
            self.subject.notes.append(
                f"nothing was measured: {len(self.loop.steps)} steps are too few for {len(variants)} ways to run them"
            )
        base = Measured(*_C.median_interval(times[0])) if times[0] else None
        bytes_ = max((each.bytes for each in own[len(own) // 2 :]), default=None)
        graphs = len(self.subject.graphs)
        self.subject.runs.append(Run("lazy", base, graphs, None, None, "", len(_visible(self.subject)), bytes_))
        for mend, seconds in zip(mends, times[1:], strict=False):
            self._action(mend, Measured(*_C.paired_difference(times[0], seconds)) if seconds else None, base)
        if len(mends) > 1 and times[-1]:
            self._together(mends, changes, times)
        self._advise()
        self.subject.stages = [Stage("lazy", graphs, _why(self.subject))]

    def _together(self, mends: list[_Mend], changes: list[LazyChange], times: list[list[float]]) -> None:
        """The row for all changes together, which comes first, followed by pairs that explain why single gains don't
        add up to it."""
        base = Measured(*_C.median_interval(times[0]))
        self.subject.runs.append(
            Run("mended", Measured(*_C.median_interval(times[-1])), None, None, None, "", None, None)
        )
        single = list(self.subject.actions)
        gain = Measured(*_C.paired_difference(times[0], times[-1]))
        rows = [self._row(_joined(mends), f"all {len(mends)} changes together", gain, base)]
        gains = [each.gain for each in single if each.gain]
        _pairs.describe(rows[0], gains)
        if pairs := _pairs.pairs_to_measure(gains, gain):
            self.effort.progress(f"{self.subject.name}: measuring pairs of changes", 0.6)
            both = [_joined([mends[one], mends[other]]) for one, other in pairs]
            variants = [[], *([change.id for change in mend.changes] for mend in both)]
            paired = self.trials.measure(changes, variants, self.effort.rounds)
            for (one, other), mend, seconds in zip(pairs, both, paired[1:], strict=True):
                if seconds:
                    gain = Measured(*_C.paired_difference(paired[0], seconds))
                    number = len(self.subject.actions) + len(rows)
                    row = _pairs.action_of(number, (single[one], single[other]), self._diff(mend), gain, base.median)
                    rows += [row] if row else []
        single.sort(key=lambda each: -(each.gain.median if each.gain else 0.0))
        self.subject.actions = [*rows, *single]

    def _action(self, mend: _Mend, gain: Measured | None, base: Measured | None) -> None:
        breaks = sorted(self.breaks[key].id for key in mend.breaks)
        titles = "; ".join(dict.fromkeys(change.title for change in mend.changes))
        self.subject.actions.append(self._row(mend, titles, gain, base))
        for number in breaks:
            found = self.subject.breaks[number]
            if found.cost is None and gain:
                found.cost, found.cost_kind = gain, "measured"
                found.shared_with = [other for other in breaks if other != number]

    def _row(self, mend: _Mend, title: str, gain: Measured | None, base: Measured | None) -> Action:
        missing = any(change.way == "out" for change in mend.changes)
        outcome = "and what the call did is missing" if missing else "and the results are the same"
        return Action(
            len(self.subject.actions), sorted(self.breaks[key].id for key in mend.breaks), title, self._diff(mend),
            "rewrite", True, f"tried: the step is not cut there, {outcome}", gain,
            gain.median / base.median if gain and base else None,
        )  # fmt: skip

    def _diff(self, mend: _Mend) -> str:
        """The mend's changes of the user's files."""
        files = dict.fromkeys(change.file for change in mend.changes)
        by_file = {file: [each for each in mend.changes if each.file == file] for file in files}
        return "".join(
            _lazy_changes.changed(self.source(file), own, self.has_closures) for file, own in by_file.items()
        )

    def _advise(self) -> None:
        """Advice for breaks for which no change was found."""
        known = {number for action in self.subject.actions for number in action.breaks}
        for key, found in self.breaks.items():
            if found.id not in known:
                why = self._outcomes.get(key, "no mechanical change fits the line")
                words = reasons.advice(found.type)
                self.subject.actions.append(
                    Action(len(self.subject.actions), [found.id], words, "", "advice", False, why)
                )


def _joined(mends: Sequence[_Mend]) -> _Mend:
    """All changes of several."""
    changes = {change.id: change for mend in mends for change in mend.changes}
    return _Mend(list(changes.values()), set().union(*(mend.breaks for mend in mends)))


def _visible(subject: Subject) -> list[Break]:
    return [found for found in subject.breaks if not found.hidden]


def _why(subject: Subject) -> str:
    count = len(_visible(subject))
    return f"{count} line{'s'[: count != 1]} cut the step" if count else "nothing cuts the step"


def _describe(loop: Loop, train: bool) -> Subject:
    file, line = loop.place
    name = os.path.basename(file) if loop.function == "<module>" else loop.function
    subject = Subject(f"{name}, steps that end at line {line}", file, line, BACKEND, train, len(loop.steps))
    subject.compile_seconds = sum(cut.compiling for step in loop.steps for cut in step)
    if not loop.is_sync:
        subject.notes.append(
            "no line ends the step with weft.sync() (xm.mark_step()): it ends where values are asked for last"
        )
    return subject


def _recompiles(subject: Subject, loop: Loop) -> None:
    """New records of a step that had run before, by what differs and where."""
    found: dict[tuple[str, int, str], Recompile] = {}
    late = [cut for step in loop.steps[_PREPARING:] for cut in step]
    for cut in (cut for cut in late if cut.differs):
        file, line = (cut.differs_file, cut.differs_line) if cut.differs_line else (cut.file, cut.line)
        key = (file, line, re.sub(r"\d+", "N", cut.differs))
        again = found.setdefault(
            key, Recompile(cut.function, file, line, [], 0, 0.0, reasons.advice_for_record(cut.differs))
        )
        again.times += 1
        again.seconds += cut.end - cut.begin
        if len(again.guards) < 3:
            again.guards.append(cut.differs)
    subject.recompiles = sorted(found.values(), key=lambda each: -each.seconds)
