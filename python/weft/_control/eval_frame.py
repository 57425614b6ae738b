"""Keeping Dynamo out of Weft's own Python."""

from __future__ import annotations

import types
from typing import Any

from weft._base.torch_private import set_eval_frame as _set


class without_dynamo:  # noqa: N801
    """A context in which Dynamo compiles no frame: after a graph break it would compile Weft's own functions. A class
    and not a generator, since Dynamo would look at the generator's frame too."""

    def __enter__(self) -> None:
        self._before: Any = _set(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        _set(self._before)
