"""`torch_xla.amp`: torch.amp for the device."""

from __future__ import annotations

from typing import Any

import torch

from weft.compat.torch_xla.amp import syncfree

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "syncfree"]


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801
    """`torch.autocast("weft", dtype)`; `dtype` is bfloat16 unless it is given.

    Raises:
        ValueError: `device` is another device.
    """

    def __init__(
        self,
        device: torch.device | str,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        if torch.device(device).type != "weft":
            raise ValueError(f"weft.compat.torch_xla: autocast is for the device weft, not {device}")
        super().__init__("weft", enabled=enabled, dtype=dtype or torch.bfloat16, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("weft")`. `use_zero_grad` is of no effect: a step whose gradients overflow is left out."""

    def __init__(self, *args: Any, use_zero_grad: bool = False, **kwargs: Any) -> None:
        super().__init__("weft", *args, **kwargs)


def custom_fwd(*args: Any, **kwargs: Any) -> Any:
    """`torch.amp.custom_fwd(device_type="weft")`."""
    return torch.amp.custom_fwd(*args, device_type="weft", **kwargs)


def custom_bwd(*args: Any, **kwargs: Any) -> Any:
    """`torch.amp.custom_bwd(device_type="weft")`."""
    return torch.amp.custom_bwd(*args, device_type="weft", **kwargs)
