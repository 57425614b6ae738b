"""`torch_xla.experimental.scan`: weft.scan in its words."""

from __future__ import annotations

from typing import Any

from weft._base.torch_private import pytree
from weft._control.checkpoint_scan import checkpoint_scan
from weft._control.scan import scan as _scan
from weft._control.scan_call import Step
from weft.compat.torch_xla._missing import missing


def scan(fn: Step, init: Any, xs: Any, partition_fn: Any = None, is_fn_pure: bool = False) -> tuple[Any, Any]:
    """`weft.scan(fn, init, xs)`: `carry, y = fn(carry, x)` for each x of [T, ...] tensors; the last carry and the ys,
    stacked.

    `partition_fn`: functorch's default_partition, which is the default; or its min_cut_rematerialization_partition,
    for which the backward does steps again (weft.checkpoint_scan). `is_fn_pure` changes nothing: `fn` is run once at
    every call either way.

    Raises:
        ValueError: `fn` isn't callable, xs have no tensor or different lengths.
        NotImplementedError: another `partition_fn`.
        and what weft.scan raises.
    """
    if not callable(fn):
        raise ValueError(f"`fn` {fn} must be callable.")
    if not pytree.tree_leaves(xs):
        raise ValueError(f"`xs` {xs} is an empty PyTree.")
    name = getattr(partition_fn, "__name__", None)
    if partition_fn is None or name == "default_partition":
        return _scan(fn, init, xs)
    if name != "min_cut_rematerialization_partition":
        missing(
            f"partition of a step by {name or partition_fn}",
            "use default_partition, or min_cut_rematerialization_partition for a backward that does steps again",
        )()
    return checkpoint_scan(fn, init, xs)
