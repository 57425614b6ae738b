"""`torch_xla.experimental.eager`: the device always records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from weft.compat.torch_xla._missing import missing


def is_eager_mode() -> bool:
    """False."""
    return False


def eager_mode(enable: bool) -> None:
    """Nothing to do if `enable` is false.

    Raises:
        NotImplementedError: `enable` is true.
    """
    if enable:
        missing("eager mode", "drop the call, or compute on the CPU")()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """The same as `eager_mode`; gives the mode before, which is False."""
    eager_mode(enable)
    yield False
