"""A peer in a process of its own, which sleeps while others are timed: requests and answers are pickled."""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import SkipCase


class Worker:
    """Runs `script` of this folder, which answers requests by `serve`. It inherits the allowed cores."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        command = [sys.executable, str(Path(__file__).parent / script), *arguments]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A session of its own, so that processes that it starts (compilers) end with it.
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **streams)
        atexit.register(self.close)

    def ask(self, *request: Any, budget: float | None = None) -> Any:
        """The answer to a request. Raises SkipCase if there is none, or if it took longer than `budget` seconds (the
        process is then gone), and ImportError if a package that the worker needs isn't installed."""
        assert self.process.stdin and self.process.stdout
        start = time.perf_counter()
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
            if budget is not None and not select.select([self.process.stdout], [], [], budget)[0]:
                self.close()
                raise SkipCase(f"over {time.perf_counter() - start:.0f} s")
            kind, answer = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            raise SkipCase("the process died") from None
        if kind == "missing":
            raise ImportError(answer)
        if kind == "error":
            raise SkipCase(answer)
        return answer

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
