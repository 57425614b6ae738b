"""Makes Ctrl-C reach its handler although compiled code is running."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """Counts SIGINTs while entered, each of which raises KeyboardInterrupt as ever.

    Where Dynamo's guards look something up, PyTorch clears whatever exception there is and calls the guard failed or
    passed, KeyboardInterrupt included: a program that calls a small compiled function again and again often can't be
    interrupted. The exception is raised behind the call then.
    """

    def __init__(self) -> None:
        self._count = 0
        self._is_ours = False

    def __enter__(self) -> Interrupts:
        is_main = threading.current_thread() is threading.main_thread()
        self._is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            self._handler = self._interrupt
            signal.signal(signal.SIGINT, self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        # The program may have installed a handler of its own, which stays.
        if self._is_ours and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        signal.default_int_handler(number, frame)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """For code that calls compiled functions, on any thread; the main thread is interrupted.

        Raises:
            KeyboardInterrupt: Ctrl-C came meanwhile, even if the code inside returned or raised another error.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = self._count
        try:
            yield
        except Exception as error:
            if self._count != before:
                raise KeyboardInterrupt from error
            raise
        if self._count != before:
            raise KeyboardInterrupt
