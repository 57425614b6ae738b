"""The progress display of a long run, and how the run is ended."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from typing import Any


class Progress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, what: str, steps: int | None, seconds: float | None) -> None:
        self.what, self.steps, self.seconds = what, steps, seconds
        self.start, self.printed = time.perf_counter(), -math.inf
        self.first: int | None = None
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                self.bar = self._rich_bar()
                self.bar.start()
                self.task = self.bar.add_task(self.what, total=1.0, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    @staticmethod
    def _rich_bar() -> Any:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        return RichProgress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
        )

    def update(self, step: int, note: str) -> None:
        now = time.perf_counter() - self.start
        self.first = step if self.first is None else self.first
        if self.bar:
            parts = [now / self.seconds if self.seconds else 0.0]
            if self.steps:
                parts.append((step - self.first + 1) / (self.steps - self.first + 1))
            self.bar.update(self.task, completed=max(parts), note=f"step {step}  {note}")
        elif now - self.printed >= 5.0:
            self.printed = now
            print(f"{self.what}: {now:5.1f} s  step {step}  {note}", flush=True)


class Interrupt:
    """The first SIGINT or SIGTERM asks for an end after this step; the second has its usual effect."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Interrupt:
        self.usual = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.usual.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        self.signal = number
        signal.signal(number, self.usual[signal.Signals(number)])
