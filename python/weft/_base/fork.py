"""Locks that a child of `os.fork` may need: a fork takes them first, as src/base/fork.h does with the engine's."""

from __future__ import annotations

import os
from typing import Protocol


class Lock(Protocol):
    """The type of both `threading.Lock` and `threading.RLock`."""

    def acquire(self) -> bool: ...
    def release(self) -> None: ...


#: By rank: a thread that holds one may take another only of a later rank. A fork takes them in this order.
SWITCH, TRACE = range(2)

_locks: dict[int, Lock] = {}


def hold_across_fork(lock: Lock, rank: int) -> None:
    """Makes every later fork of this process take `lock`, and release it in the parent and in the child."""
    _locks[rank] = lock


def _acquire() -> None:
    for rank in sorted(_locks):
        _locks[rank].acquire()


def _release() -> None:
    for rank in sorted(_locks, reverse=True):
        _locks[rank].release()


os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
