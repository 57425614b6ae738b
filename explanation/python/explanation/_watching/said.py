"""Messages of PyTorch's compiler on the console while a program runs: kept for the report, not printed."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TextIO

from weft._base.torch_private import COMPILER, is_torch_handler
from weft.explanation._report.records import Warned

_BETWEEN = ("warnings", "typing_extensions", "contextlib", __name__)  #: frames of those who only pass a warning on
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class Said:
    """Keeps the compiler's warnings while it is active, each distinct one once.

    A log record of the compiler is kept instead of being written to the console; other handlers still get it. Records
    below the level of warnings, which TORCH_LOGS asks for, are printed as always, and so are warnings of other modules.
    """

    def __init__(self) -> None:
        self.warned: list[Warned] = []
        self._keeps = True
        self._known: dict[tuple[str, str], Warned] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Said:
        self._handle = logging.Handler.handle
        logging.Handler.handle = self._keeping()  # type: ignore[method-assign, assignment]
        self._shown = warnings.showwarning
        self._show = self._showing(self._shown)
        warnings.showwarning = self._show
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if warnings.showwarning is self._show:  # and not the program's own
            warnings.showwarning = self._shown
        logging.Handler.handle = self._handle  # type: ignore[method-assign]

    @contextlib.contextmanager
    def only(self, keeps: bool) -> Iterator[None]:
        """Inside no warning of any module is shown; the compiler's are kept if `keeps`."""
        before, self._keeps = self._keeps, keeps
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default" if keeps else "ignore")
                warnings.showwarning = self._showing(lambda *rest: None)
                yield
        finally:
            self._keeps = before

    def keep(self, source: str, text: str) -> None:
        """Adds a message, or counts one more of its kind."""
        if not self._keeps:
            return
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        key = source, _ADDRESS.sub("", text)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = Warned(source, text, 0)
                self.warned.append(known)
            known.times += 1

    def _keeping(self) -> Any:
        original = self._handle

        def handle(handler: logging.Handler, record: logging.LogRecord) -> bool | logging.LogRecord:
            if record.levelno < logging.WARNING or not _is_compiler(record.name) or not _is_console(handler):
                return original(handler, record)
            if not handler.filter(record):
                return False
            self.keep(record.name, record.getMessage())
            return True

        return handle

    def _showing(self, original: Any) -> Any:
        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if file is None and _is_compiler(_who_warns()):
                self.keep(category.__name__, str(message))
            else:
                original(message, category, filename, lineno, file, line)

        return show


def _is_compiler(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in COMPILER)


def _is_console(handler: logging.Handler) -> bool:
    if isinstance(handler, logging.FileHandler) or not hasattr(handler, "stream"):  # PyTorch's is its own since 2.14
        return False
    streams = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return is_torch_handler(handler) or any(handler.stream is stream for stream in streams)


def _who_warns() -> str:
    """The module that called warnings.warn. The place that a warning names is often that of its caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")) in _BETWEEN:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame else ""
