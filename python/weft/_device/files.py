"""Files of tensors of the device: torch.save writes them as the CPU's, so that they can be read where weft isn't
imported. `map_location="weft"` reads them to the device."""

from __future__ import annotations

from typing import Any

import torch

_BEFORE_PYTORCHS = 5  #: its own packages begin at 10, the CPU's


def _tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "weft" else None


def _leave_to_others(storage: Any, location: str) -> None:
    return None


def register() -> None:
    torch.serialization.register_package(_BEFORE_PYTORCHS, _tag, _leave_to_others)
