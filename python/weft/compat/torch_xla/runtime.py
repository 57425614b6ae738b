"""`torch_xla.runtime`: one process, one device, a CPU."""

from __future__ import annotations

import torch

from weft import device as weft_device
from weft.compat.torch_xla._missing import missing
from weft.compat.torch_xla.core.xla_model import xla_device

__all__ = ["xla_device"]


def device_type() -> str:
    return "CPU"


def set_device_type(pjrt_device: str) -> None:
    """Takes "CPU".

    Raises:
        NotImplementedError: anything else.
    """
    if pjrt_device != "CPU":
        missing(f"device of type {pjrt_device}", "the device is the CPU")()


def is_bf16_supported() -> bool:
    return True


def _one() -> int:
    return 1


def _zero() -> int:
    return 0


world_size = process_count = local_process_count = _one
global_device_count = local_device_count = addressable_device_count = _one
global_runtime_device_count = addressable_runtime_device_count = _one
global_ordinal = local_ordinal = process_index = host_index = _zero


def is_spmd() -> bool:
    return False


use_spmd = missing("SPMD", "drop the call; all of the CPU's cores work on one program without it")
get_master_ip = missing("master", "there is one process")


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Nothing to do: machine code is kept on disk without it, and WEFT_CACHE=0 says not to."""


def get_num_cached_compilation_graph() -> int:
    """Records that are kept with their programs."""
    return int(weft_device.stats()["kept"])


def runtime_device_attributes(device: torch.device | str) -> dict[str, object]:
    return {"name": "CPU:0"}
