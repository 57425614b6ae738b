"""A report for a terminal."""

from __future__ import annotations

import os
import shutil
import textwrap

from weft._base.report import painted, printable
from weft.explanation._report.records import Action, Break, Measured, Recompile, Results, Stage, Subject

_CODES = {"bold": "1", "good": "32", "bad": "33", "quiet": "2"}


def seconds(value: float) -> str:
    """Seconds with a suitable unit."""
    size = abs(value)
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if size >= scale or unit == "µs":
            number = value / scale
            return f"{number:.{2 if abs(number) < 10 else 1 if abs(number) < 100 else 0}f} {unit}".replace("-", "−")
    return "0"


def measured(value: Measured | None) -> str:
    """The median and its interval."""
    return f"{seconds(value.median)} ({seconds(value.low)} to {seconds(value.high)})" if value else "not measured"


def share_of(share: float) -> str:
    """In percent, without a sign at 0."""
    return f"{round(100 * share)} %".replace("-", "−")


def size(count: int | None) -> str:
    """Bytes."""
    if count is None:
        return "–"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def place(found: Break) -> str:
    """File and line."""
    return f"{shown(found.file)}:{found.line}"


def shown(file: str) -> str:
    """The path relative to the working directory, if it lies there."""
    return os.path.relpath(file) if file.startswith(os.getcwd()) else file


def headline(results: Results) -> str:
    """The report in a sentence."""
    if not results.subjects:
        return "nothing was compiled"
    count = results.breaks
    graphs = sum(len(subject.graphs) for subject in results.subjects)
    what = f"{graphs} graph{'s' if graphs != 1 else ''}"
    if count == 0:
        return (
            f"no graph breaks: {what} in {len(results.subjects)} compiled function{'s'[: len(results.subjects) != 1]}"
        )
    return f"{count} distinct graph break{'s' if count > 1 else ''}, {what}"


def warned(results: Results) -> str:
    """The compiler's warnings, in one line."""
    count = len(results.warnings)
    firsts = [each.text.partition("\n")[0] for each in results.warnings[:3]]
    firsts = [first if len(first) <= 80 else f"{first[:80]} ..." for first in firsts]
    more = f"; and {count - 3} more" if count > 3 else ""
    return f"PyTorch's compiler warned of {count} thing{'s'[: count != 1]}: {'; '.join(firsts)}{more}"


class _Writer:
    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return painted(text, _CODES[style]) if self.color else text

    def put(self, text: str = "", indent: int = 0, style: str = "") -> None:
        margin, text = " " * indent, printable(text)
        for line in textwrap.wrap(text, max(self.width, 40), initial_indent=margin, subsequent_indent=margin) or [""]:
            self.lines.append(self.paint(line, style) if style else line)

    def code(self, text: str, indent: int) -> None:
        self.lines += [" " * indent + printable(line) for line in text.splitlines()]


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Lines without a newline at the end; the first says how many breaks there are."""
    out = _Writer(shutil.get_terminal_size().columns if width is None else width, color)
    out.put(headline(results), style="good" if results.breaks == 0 else "bold")
    if results.interrupted:
        out.put("interrupted: what follows was measured until then", style="bad")
    for note in results.notes:
        out.put(f"note: {note}")
    if results.warnings:
        out.put(warned(results))
    for subject in results.subjects:
        _subject(out, subject)
    out.put()
    out.put(f"{results.command}; PyTorch {results.torch}, {results.machine}", style="quiet")
    return "\n".join(out.lines)


def _subject(out: _Writer, subject: Subject) -> None:
    out.put()
    mode = "training" if subject.train else "inference"
    out.put(f"{subject.name} (backend {subject.backend}, {mode})", style="bold")
    for run in subject.runs:
        if run.seconds or run.note:
            graphs = f", {run.graphs} graph{'s'[: run.graphs != 1]}" if run.graphs is not None else ""
            kernels = f", {run.kernels} kernels" if run.kernels else ""
            kernels += f", {size(run.bytes_moved)} moved" if run.bytes_moved else ""
            kernels += f", {size(run.memory)} of memory" if run.memory is not None else ""
            note = f" ({run.note})" if run.note else ""
            out.put(f"{run.name:9} {measured(run.seconds)} a step{graphs}{kernels}{note}", 2)
    counts = [f"{stage.name} {stage.count}" for stage in subject.stages if stage.count is not None]
    if counts:
        out.put("graphs: " + ", ".join(counts), 2)
    for stage in subject.stages:
        if stage.name in ("StableHLO", "kernels of XLA") or _grows(subject, stage):
            out.put(f"{stage.name}: {stage.why}", 6, "quiet")
    if subject.actions:
        out.put()
        out.put("What to do, the most first:", 2)
    for rank, action in enumerate(subject.actions, 1):
        _action(out, rank, action, subject)
    for again in subject.recompiles:
        times = f"{again.times} times, " if again.times > 1 else ""
        out.put(f"compiled anew: {again.function} ({again.file}:{again.line}), {times}{seconds(again.seconds)}", 2)
        for guard in again.guards[:3]:
            out.put(guard, 6, "quiet")
        _recompile(out, again)
    for note in subject.notes:
        out.put(f"note: {note}", 2)


def _grows(subject: Subject, stage: Stage) -> bool:
    """Whether the stage has more pieces than the stage before; for the first stage, more than one."""
    before = 1
    for each in subject.stages:
        if each is stage:
            return each.count is not None and each.count > before
        before = before if each.count is None else each.count
    return False


def _recompile(out: _Writer, again: Recompile) -> None:
    if not again.tried:
        out.put(again.advice, 6)
        if again.outcome:
            out.put(f"not tried: {again.outcome}", 6, "quiet")
        return
    out.put(f"saves {measured(again.saved)} of compiling, and {measured(again.gain)} a step: {again.outcome}", 6)
    out.code(again.change, 8)


def _action(out: _Writer, rank: int, action: Action, subject: Subject) -> None:
    gain = "no gain known"
    if action.gain:
        share = f", {share_of(action.share)} of the step" if action.share is not None else ""
        kind = "" if action.tried else "estimated "
        gain = f"{kind}{measured(action.gain)} a step{share}"
    out.put(f"{rank}. {gain}", 2, "bold")
    for number in action.breaks:
        found = subject.breaks[number]
        hidden = ", behind another break" if found.hidden else ""
        out.put(f"{place(found)} in {found.function}: {found.source}", 5)
        hits = f", {found.hits:g} a step" if found.hits is not None else ""
        crossing = f", {size(found.bytes)} cross it" if found.bytes is not None else ""
        whole = "; the whole function runs in Python" if found.skips_frame else ""
        out.put(f"{found.reason}{whole} [{found.code or found.type}{hits}{crossing}{hidden}]", 7, "quiet")
    out.put(f"change: {action.title}", 5)
    if action.tried and action.change:
        out.code(action.change, 7)
    elif not action.tried:
        out.put(f"not tried: {action.outcome}", 5, "quiet")
