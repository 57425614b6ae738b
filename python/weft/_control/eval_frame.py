"""Dynamo and Weft's own Python."""

from __future__ import annotations

import types
from typing import Any

from weft._base.torch_private import set_eval_frame as _set


class without_dynamo:  # noqa: N801
    """Within, Dynamo compiles no frame: after a graph break it would go on with Weft's own functions, which are none of
    its business. A plain class, since Dynamo would look at a generator's frame too."""

    def __enter__(self) -> None:
        self._before: Any = _set(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        _set(self._before)
