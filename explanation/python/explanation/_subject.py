"""The investigation of one subject, from the first compilation to the ranked list."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from weft._base.torch_private import inductor_metrics as metrics
from weft.explanation import _C
from weft.explanation._about import best_without, describe
from weft.explanation._changes import mending as _mending
from weft.explanation._changes.mending import Mend, Workshop
from weft.explanation._lazy import on_device, reasons
from weft.explanation._measuring import hlo as _hlo
from weft.explanation._measuring import memory as _memory
from weft.explanation._measuring import pairs, recompiling
from weft.explanation._measuring import stages as _stages
from weft.explanation._measuring.steps import Race, Step, Variant, compiled, recorded_steps, run_once, same, undisturbed
from weft.explanation._report.records import Action, Break, Event, Frame, Graph, Measured, Run
from weft.explanation._report.text import place
from weft.explanation._watching.collect import BreakKey, Collected, collect, key_of
from weft.explanation._watching.watch import GraphCall, Watch, Watched

_RECORDED = 20  #: steps of the time line

Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long variants are measured, the largest number of turns of each, and whether XLA's work is counted."""

    seconds: float
    rounds: int
    hlo: bool
    progress: Progress = lambda words, part: None  # is told what is done, and which part of it


class Investigation:
    """Fills in a Subject part by part, so that an interruption loses nothing found so far."""

    def __init__(self, watch: Watch, watched: Watched, effort: Effort) -> None:
        self.watch, self.watched, self.effort = watch, watched, effort
        self.hlo, self.programs = effort.hlo and _hlo.is_installed(), _hlo.Programs()
        self.subject = describe(watched)
        self.breaks: dict[BreakKey, Break] = {}
        self.by_graph: dict[str, Graph] = {}
        self.mends: list[tuple[Mend, Action]] = []
        self._kernels: dict[str, tuple[int, int]] = {}
        self._graphs: dict[str, int] = {}
        self._recorded: list[tuple[float, float, list[tuple[int, float, float, bool]]]] = []
        self._memory: dict[str, int | None] = {}

    def take(self, found: Collected) -> None:
        """Takes from a run what it compiled: its graphs, breaks and recompilations."""
        for each in found.breaks:
            known = self.breaks.get(key_of(each))
            if known is None:
                self.breaks[key_of(each)] = each
                each.id = len(self.breaks) - 1
            else:
                known.met += each.met
                known.paths += [path for path in each.paths if not any(_ends_with(way, path) for way in known.paths)]
        self.subject.recompiles += found.recompiles
        self.subject.compile_seconds += found.compile_seconds
        self.subject.breaks = list(self.breaks.values())

    def run(self, step: Step) -> None:
        """Compiles, mends, races.

        Raises:
            Exception: the step's own error.
        """
        with undisturbed(step), self.watch.said.only(keeps=False):
            base = self._base(step)
            if not self.subject.graphs and not self.breaks:
                self.subject.notes.append("nothing was compiled: the function does no operation on tensors")
                return
            eager = Variant("eager", step.function)
            reference = run_once(eager, step)
            if not same(run_once(eager, step), reference):
                self.subject.notes.append(
                    "results differ from run to run, so those of changed programs are not compared"
                )
                reference = None
            variants = self._mended(step, reference)
            self._race(step, base, variants, reference)
            self.effort.progress(f"{self.subject.name}: compiling anew", 0.0)
            recompiling.measure(
                self.subject,
                self.watch,
                self.watched,
                step,
                self.workshop(step).copies,
                self.effort.seconds / 2,
                reference is not None,
            )
            if self.hlo:
                self.effort.progress(f"{self.subject.name}: counting what XLA makes of it", 0.0)
                _hlo.count(self.subject, base.graphs, self.programs, max(10.0, self.effort.seconds))
                for graph in base.graphs:
                    graph.inputs = None

    def workshop(self, step: Step) -> Workshop:
        """The workshop in which changes of the step are tried."""
        return Workshop(self.watch, self.watched, step, self.breaks)

    # What there is

    def _base(self, step: Step) -> Variant:
        self.effort.progress(f"{self.subject.name}: compiling", 0.0)
        base = Variant("compiled", compiled(step, self.watched.options), self.workshop(step).copies())
        before = _stages.counters()
        self.watch.keep_graphs = self.hlo
        # If the program itself was run, its messages have been kept already.
        with self.programs, self.watch.said.only(keeps=self.watched.calls == 0):
            found = self._compile(base, step, runs=3)
        self.watch.keep_graphs = False
        self.take(found)
        self.subject.graphs = found.graphs
        keys = list(self.breaks)
        for graph in found.graphs:
            self.by_graph[graph.compile_id] = graph
            if graph.ended_by is not None:
                graph.ended_by = keys.index(key_of(found.breaks[graph.ended_by]))
        self.subject.weft = _stages.weft_counts(before)
        self.subject.notes += _stages.loops_left(self.subject.weft)
        self._time_line(base, step)
        return base

    def _compile(self, variant: Variant, step: Step, runs: int = 2) -> Collected:
        """Compiles a variant by running it, and counts its kernels."""
        events, kernels = self.watch.events, (metrics.generated_kernel_count, metrics.num_bytes_accessed)
        self.watch.events, self.watch.subject = [], self.watched.number
        self.watch.last_graphs = []
        try:
            for _ in range(runs):
                run_once(variant, step)
            variant.graphs = self.watch.last_graphs
            found = collect(self.watch.events)
            self._graphs[variant.name] = len(found.graphs)
            return found
        finally:
            self.watch.events, self.watch.subject = events, -1
            self._kernels[variant.name] = (
                metrics.generated_kernel_count - kernels[0],
                metrics.num_bytes_accessed - kernels[1],
            )

    def _time_line(self, base: Variant, step: Step) -> None:
        recorded_steps(self.watch, base, step, 2)
        self.watch.count_bytes = True
        ((_, _, crossing),) = recorded_steps(self.watch, base, step, 1)
        self.watch.count_bytes = False
        seen = len(self.watch.events)
        steps = recorded_steps(self.watch, base, step, _RECORDED)
        compilations = sum(event.name == "dynamo_start" for event in self.watch.events[seen:])
        if compilations:
            self.subject.notes.append(
                f"{compilations} functions were compiled while {_RECORDED} steps were timed: the step does not settle, "
                "and its times are those of compiling (see what is compiled anew)"
            )
        numbers = {id(graph): self._number(graph.compile_id) for graph in base.graphs}
        spans = [
            [
                (n, call.begin, call.end, call.backward)
                for call in calls
                if (n := numbers.get(id(call.graph))) is not None
            ]
            for _, _, calls in steps
        ]
        gaps = _C.gaps([(begin, end, inside) for (begin, end, _), inside in zip(steps, spans, strict=True)])
        for graph in self.subject.graphs:
            for backward in (False, True):
                own = [
                    [end - begin for n, begin, end, b in inside if (n, b) == (graph.id, backward)] for inside in spans
                ]
                measured = Measured(*_C.median_interval([sum(times) for times in own]))
                if not backward:
                    graph.seconds, graph.hits = measured, sum(map(len, own)) / len(steps)
                elif any(own):
                    graph.backward_seconds = measured
        self._gaps(gaps, {id(call): numbers.get(id(call.graph)) for call in crossing}, crossing)
        self._recorded = [(begin, end, inside) for (begin, end, _), inside in zip(steps, spans, strict=True)]
        self._draw(_C.quantile([end - begin for begin, end, _ in steps], 0.5))

    def _record(self, base: Variant, step: Step) -> None:
        """Records steps for the time line, now that they are as fast as the measured ones."""
        numbers = {id(graph): self._number(graph.compile_id) for graph in base.graphs}
        for begin, end, calls in recorded_steps(self.watch, base, step, _RECORDED):
            known = [(numbers.get(id(call.graph)), call) for call in calls]
            inside = [(n, call.begin, call.end, call.backward) for n, call in known if n is not None]
            self._recorded.append((begin, end, inside))

    def _draw(self, wanted: float) -> None:
        """The time line of the recorded step that took nearly as long as is wanted."""
        nearest = min(self._recorded, key=lambda step: abs(step[1] - step[0] - wanted))
        self.subject.timeline = self._events(*nearest)

    def _number(self, compile_id: str) -> int | None:
        graph = self.by_graph.get(compile_id)
        return graph.id if graph else None

    def _gaps(self, gaps: list[Any], numbers: dict[int, int | None], crossing: list[GraphCall]) -> None:
        graphs = self.subject.graphs
        sums: dict[tuple[int, bool], list[tuple[float, Measured]]] = {}
        for graph, backward, hits, seconds in gaps:
            ended_by = graphs[graph].ended_by if graph >= 0 else None
            if ended_by is not None:
                sums.setdefault((ended_by, backward), []).append((hits, Measured(*seconds)))
        for found in self.subject.breaks:
            if parts := sums.get((found.id, False)):
                found.hits = sum(hits for hits, _ in parts)
                found.gap = found.cost = _sum([gap for _, gap in parts])
                found.cost_kind = "estimated"
            if found.gap and (parts := sums.get((found.id, True))):
                found.backward_gap = _sum([gap for _, gap in parts])
                found.cost = _sum([found.gap, found.backward_gap])
        for call in crossing:
            if call.backward:
                continue
            number = numbers[id(call)]
            ended_by = graphs[number].ended_by if number is not None else None
            if ended_by is not None:
                found = self.subject.breaks[ended_by]
                found.bytes = (found.bytes or 0) + call.bytes

    def _events(self, begin: float, end: float, spans: list[tuple[int, float, float, bool]]) -> list[Event]:
        events: list[Event] = []
        reached, broken, behind = begin, None, False
        for number, first, last, backward in spans:
            if first < reached:
                continue
            ended_by = self.subject.graphs[number].ended_by
            events.append(Event(reached - begin, first - begin, None, ended_by if behind else broken, behind))
            events.append(Event(first - begin, last - begin, number, None, backward))
            reached, broken, behind = last, None if backward else ended_by, backward
        return [*events, Event(reached - begin, end - begin, None, broken, behind)]

    # What mends it

    def _mended(self, step: Step, reference: Any) -> list[Variant]:
        """A variant for every mend that works; actions for all breaks."""
        workshop = self.workshop(step)
        workshop.reference = reference
        covered: set[BreakKey] = set()
        variants: list[Variant] = []
        first = list(self.breaks.values())
        for index, found in enumerate(first):
            self.effort.progress(f"{self.subject.name}: trying changes", index / len(first))
            if key_of(found) in covered:
                continue
            mend = workshop.mend(found)
            self.subject.breaks = list(self.breaks.values())
            action = self._action(mend, found)
            if not mend.works:
                continue
            covered |= mend.breaks
            variant = self._variant(f"action {action.id}", mend, step, action)
            if variant is not None:
                self.mends.append((mend, action))
                variants.append(variant)
        if len(self.mends) > 1:
            together, reason = self._joined("mended", [mend for mend, _ in self.mends], step, workshop)
            if together:
                variants.append(together)
            else:
                self.subject.notes.append(f"all changes together were not run: {reason}")
        return variants

    def _joined(self, name: str, mends: list[Mend], step: Step, workshop: Workshop) -> tuple[Variant | None, str]:
        """A variant with the changes of several mends; the reason if there is none."""
        changes = list(dict.fromkeys(change for mend in mends for change in mend.changes))
        tried, reason = workshop.trial(changes)
        return (self._variant(name, tried[0], step, None) if tried else None), reason

    def _variant(self, name: str, mend: Mend, step: Step, action: Action | None) -> Variant | None:
        variant = Variant(name, compiled(step, self.watched.options), mend.swaps, mend.settings, mend.puts)
        try:
            found = self._compile(variant, step)
        except Exception as error:
            if action:
                action.tried = False
                action.outcome = f"the backend refused the changed program: {type(error).__name__}"
            return None
        if action:
            action.graphs, action.kernels = len(found.graphs), self._kernels_of(variant.name)
        return variant

    def _kernels_of(self, name: str) -> int | None:
        return self._kernels[name][0] if self._kernels.get(name, (0, 0))[0] else None

    def _action(self, mend: Mend, found: Break) -> Action:
        action = Action(
            id=len(self.subject.actions),
            breaks=sorted(self.breaks[key].id for key in mend.breaks),
            title=mend.title if mend.works else _mending.as_advice(found),
            change=mend.diff,
            kind=mend.kind if mend.works else "advice",
            tried=mend.works,
            outcome=mend.outcome,
        )
        self.subject.actions.append(action)
        return action

    # What it costs

    def _race(self, step: Step, base: Variant, variants: list[Variant], reference: Any) -> None:
        subject = self.subject
        eager = Variant("eager", step.function)
        lazy = on_device.prepare(step, reference)
        subject.stages = _stages.stages(subject, lazy)
        racers = [base, eager, *variants]
        self._measure_memory([*racers, *([lazy.variant] if lazy.variant else [])], step)
        race = Race(step, [*racers, *([lazy.variant] if lazy.variant else [])], self.effort.seconds, self.effort.rounds)
        try:
            race.run(lambda part: self.effort.progress(f"{subject.name}: measuring", part))
            self._record(base, step)
        finally:
            if self._recorded and (measured := base.measured()):
                self._draw(measured.median)
            self._runs(racers, lazy)
            self._device(base, lazy)
            self._gains(base, variants)
        self._measure_pairs(step, base, reference)

    def _measure_pairs(self, step: Step, base: Variant, reference: Any) -> None:
        """Adds rows for pairs of changes, after the row for all, where single gains don't add up to it."""
        gains = [action.gain for _, action in self.mends if action.gain]
        whole, together = base.measured(), self.subject.actions[0] if self.subject.actions else None
        if together is None or together.title != _all_together(len(self.mends)) or whole is None:
            return
        workshop = self.workshop(step)
        workshop.reference = reference
        racing: list[tuple[Variant, tuple[Action, Action], str]] = []
        for pair in pairs.pairs_to_measure(gains, together.gain):
            self.effort.progress(f"{self.subject.name}: measuring pairs of changes", 0.0)
            mends, actions = zip(*(self.mends[number] for number in pair), strict=True)
            variant, _ = self._joined(f"action pair {pair}", list(mends), step, workshop)
            if variant is not None:
                racing.append((variant, actions, "\n".join(mend.diff for mend in mends)))
        if not racing:
            return
        first = len(base.rounds)
        Race(step, [base, *(variant for variant, _, _ in racing)], self.effort.seconds / 2, self.effort.rounds).run(
            lambda part: self.effort.progress(f"{self.subject.name}: measuring pairs of changes", part)
        )
        rows = []
        for variant, actions, diff in racing:
            gain = Measured(*_C.paired_difference(base.rounds[first:], variant.rounds))
            number = len(self.subject.actions) + len(rows)
            if row := pairs.action_of(number, actions, diff, gain, whole.median):
                row.graphs = self._graphs.get(variant.name)
                rows.append(row)
        self.subject.actions[1:1] = rows

    def _measure_memory(self, racers: list[Variant], step: Step) -> None:
        for variant in racers:
            if not variant.name.startswith("action"):
                own = variant.step or step
                own.clear_gradients()
                with variant.inside():
                    self._memory[variant.name] = _memory.most_bytes(
                        lambda own=own, variant=variant: _whole(own, variant)
                    )

    def _runs(self, racers: list[Variant], lazy: on_device.Lazy) -> None:
        for variant in racers:
            if variant.name.startswith("action"):
                continue
            compiled_too = variant.name != "eager"
            kernels, moved = self._kernels.get(variant.name, (0, 0))
            is_base = variant.name == "compiled"
            visible = [found for found in self.subject.breaks if not found.hidden]
            self.subject.runs.append(
                Run(
                    name=variant.name,
                    seconds=variant.measured(),
                    graphs=self._graphs.get(variant.name) if compiled_too else None,
                    kernels=kernels or None,
                    bytes_moved=moved or None,
                    note="",
                    breaks=len(visible) if is_base else None,
                    memory=self._memory.get(variant.name),
                    causes=[f"{place(found)}: {found.reason}" for found in visible] if is_base else [],
                )
            )
        measured = lazy.variant.measured() if lazy.variant else None
        causes = reasons.causes(lazy.cuts)
        memory = self._memory.get("lazy")
        run = Run("lazy", measured, lazy.programs, None, None, lazy.note, len(causes), memory, causes)
        self.subject.runs.append(run)

    def _device(self, base: Variant, lazy: on_device.Lazy) -> None:
        """The device as a way around all breaks at once, where it is faster than with them and than eager."""
        if not self.breaks or not lazy.variant or not lazy.variant.rounds or lazy.note:
            return
        gain = Measured(*_C.paired_difference(base.rounds, lazy.variant.rounds))
        whole = base.measured()
        eager = self.subject.run("eager")
        measured = lazy.variant.measured()
        if gain.low <= 0 or not whole or not measured or not eager or not eager.seconds:
            return
        if measured.median >= eager.seconds.median:
            return
        programs = f"{lazy.programs} program{'s'[: lazy.programs != 1]} a step"
        self.subject.actions.append(
            Action(
                id=len(self.subject.actions),
                breaks=[],
                title='around all breaks: run it on the device "weft", without torch.compile',
                change='model.to("weft"), inputs.to("weft"); weft.sync() once a step',
                kind="device",
                tried=True,
                outcome=f"tried: {programs}, the results are the same",
                gain=gain,
                share=gain.median / whole.median,
                graphs=lazy.programs,
            )
        )

    def _together(self, base: Variant, by_name: dict[str, Variant]) -> None:
        """The row of all changes, before those of each: single gains don't add up."""
        mended = by_name.get("mended")
        whole = base.measured()
        if mended is None or not mended.rounds or whole is None:
            return
        gain = Measured(*_C.paired_difference(base.rounds[: len(mended.rounds)], mended.rounds))
        tried = [action for action in self.subject.actions if action.tried and action.kind != "device"]
        action = Action(
            id=len(self.subject.actions),
            breaks=sorted({number for each in tried for number in each.breaks}),
            title=_all_together(len(tried)),
            change="",
            kind="rewrite",
            tried=True,
            outcome="tried: the breaks are gone and the results are the same",
            gain=gain,
            share=gain.median / whole.median,
            graphs=self._graphs.get("mended"),
            kernels=self._kernels_of("mended"),
        )
        pairs.describe(action, [each.gain for each in tried if each.gain])
        self.subject.actions.insert(0, action)

    def _gains(self, base: Variant, variants: list[Variant]) -> None:
        whole = base.measured()
        by_name = {variant.name: variant for variant in variants}
        for action in self.subject.actions:
            variant = by_name.get(f"action {action.id}")
            if variant and variant.rounds and whole:
                count = len(variant.rounds)
                action.gain = Measured(*_C.paired_difference(base.rounds[:count], variant.rounds))
                action.share = action.gain.median / whole.median
                action.outcome = "tried: the breaks are gone and the results are the same"
                for number in action.breaks:
                    found = self.subject.breaks[number]
                    found.cost, found.cost_kind = action.gain, "measured"
                    found.shared_with = [other for other in action.breaks if other != number]
            elif not variant and action.kind != "device":
                estimates = [self.subject.breaks[number].cost for number in action.breaks]
                known = [cost for cost in estimates if cost]
                action.gain = known[0] if known else None
                action.share = action.gain.median / whole.median if action.gain and whole else None
        self.subject.actions.sort(key=lambda action: -(action.gain.median if action.gain else 0.0))
        self._together(base, by_name)
        self.subject.notes += best_without(self.subject)


def _all_together(count: int) -> str:
    return f"all {count} changes that follow, together"


def _whole(step: Step, variant: Variant) -> Any:
    """Runs one complete step."""
    result = step.run(variant.call)
    if variant.after:
        variant.after()
    return result


def _sum(parts: list[Measured]) -> Measured:
    return Measured(*(sum(getattr(part, name) for part in parts) for name in ("median", "low", "high")))


def _ends_with(way: list[Frame], path: list[Frame]) -> bool:
    return way[len(way) - len(path) :] == path
