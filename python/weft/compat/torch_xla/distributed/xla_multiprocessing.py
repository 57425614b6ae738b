"""`torch_xla.distributed.xla_multiprocessing`: one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from weft.compat.torch_xla._missing import missing


def spawn(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """`fn(0, *args)`, in this process.

    Raises:
        NotImplementedError: `nprocs` is more than 1.
    """
    if nprocs not in (None, 1):
        missing(
            f"second process (nprocs={nprocs})",
            "leave nprocs out: one process uses all cores; between processes use torch.multiprocessing and "
            "torch.distributed",
        )()
    fn(0, *args)


class MpModelWrapper:
    """Holds a model: `wrapper.to(device)` is the model on the device."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def to(self, device: Any) -> nn.Module:
        return self._model.to(device)


class MpSerialExecutor:
    """`run(fn)` calls `fn` at once, since no other process has to be waited for."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()
