"""What runs the steps of a stream: a package's machine code, or programs of the engine."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from weft import _C
from weft._base.errors import raise_if_internal
from weft._capture import stats
from weft._streaming.capture import StreamingModel


@dataclasses.dataclass(frozen=True)
class StepCode:
    """The code of a model's step, which all its streams share."""

    machine: _C.StreamCode | None
    reason: str = ""  #: why there is no machine code

    @property
    def target(self) -> str | None:
        """The target of weft.package that the machine code is of."""
        return None if self.machine is None else self.machine.target

    def new_state(self, model: StreamingModel) -> Any:
        """A state before the first step, with the functions that run chunks."""
        if self.machine is not None:
            return _C.MachineStream(self.machine, model.structured([torch.empty(0) for _ in model.outputs]))
        return _C.StreamState(model.step, model.initial, model.constants)

    @staticmethod
    def engine(reason: str) -> StepCode:
        return StepCode(None, reason)


def step_code(model: StreamingModel) -> StepCode:
    """Machine code of the step; the engine's where packages have no form of it, or the engine is sooner done."""
    try:
        made = _C.StreamCode(
            model.step,
            model.initial,
            model.constants,
            [port.time for port in model.inputs],
            [port.time for port in model.outputs],
        )
    except RuntimeError as error:
        raise_if_internal(error)
        reason = str(error).removeprefix("weft.package: ")
        stats.streams[f"by the engine: {reason}"] += 1
        return StepCode.engine(reason)
    stats.streams[f"by machine code for {made.target}"] += 1
    return StepCode(made)


__all__ = ["StepCode", "step_code"]
