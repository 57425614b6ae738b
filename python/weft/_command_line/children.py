"""The counters of the processes that a program started under `weft run --stats`: each leaves them in a folder."""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from weft._base.import_hooks import when_imported
from weft._capture.stats import since, totals

_before: dict[str, Any] = {}  #: counters that the process had before the fork that made this one


def keep_stats(folder: str, main_process: int = 0) -> None:
    """Makes this process's children write their counters to the folder when they end. The main process doesn't."""

    def write() -> None:
        if os.getpid() != main_process:
            _write(folder)

    def forked() -> None:
        global _before
        _before = totals()

    def watch(util: ModuleType) -> None:
        """Writes the counters also where multiprocessing ends a process, which calls none of atexit's functions."""

        def again(_: Any) -> None:
            util.Finalize(None, write, exitpriority=-100)

        util.register_after_fork(write, again)
        again(None)

    atexit.register(write)
    os.register_at_fork(after_in_child=forked)
    when_imported("multiprocessing.util", watch)


def _write(folder: str) -> None:
    path = Path(folder, f"{os.getpid()}.json")
    try:
        path.with_suffix(".part").write_text(json.dumps(since(totals(), _before)))
        path.with_suffix(".part").rename(path)
    except OSError:  # the program has ended, and its folder is gone
        pass


def added_up(own: dict[str, Any], folder: str) -> dict[str, Any]:
    """The sum of the counters of this process and of all that left theirs, with `processes`, the number of these."""
    everything, processes = own, 1
    for path in Path(folder).glob("*.json"):
        everything = _sum(everything, json.loads(path.read_text()))
        processes += 1
    return {**everything, "captured": own["captured"], "processes": processes}


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    found = dict(first)
    for name, value in second.items():
        if isinstance(value, dict):
            found[name] = _sum(first.get(name, {}), value)
        else:
            found[name] = first.get(name, 0) + value
    return found
