"""`torch_xla.experimental.eager`: the device always records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from weft.compat.torch_xla._missing import missing


def is_eager_mode() -> bool:
    """False."""
    return False


def eager_mode(enable: bool) -> None:
    """Nothing to do without it.

    Raises:
        NotImplementedError: `enable` is true.
    """
    if enable:
        missing("eager mode", "drop the call, or compute on the CPU")()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """As `eager_mode`; gives what it was before, False."""
    eager_mode(enable)
    yield False
