"""`torch.weft`: what PyTorch's own code looks for in the module of a device, as in `torch.cuda`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from weft import _C


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    pass


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    """There is one device; another index is refused with PyTorch's error."""
    torch.empty(0, device=torch.device("weft", device) if isinstance(device, int) else device)


def get_device_name(device: Any = None) -> str:
    return "weft"


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """There is one device, and it is always the current one."""
    yield


device_of = device


def synchronize(device: Any = None) -> None:
    """Runs what was recorded, and waits for it."""
    _C.device_sync()


def memory_stats(device: Any = None) -> dict[str, int]:
    """The same as weft.device.memory_stats()."""
    return _C.device_memory()


def memory_allocated(device: Any = None) -> int:
    return _C.device_memory()["bytes"]


def max_memory_allocated(device: Any = None) -> int:
    return _C.device_memory()["most_bytes"]


def reset_peak_memory_stats(device: Any = None) -> None:
    _C.device_forget_peak()


def empty_cache() -> None:
    """Does nothing: memory without a value is free already."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# The device draws from the CPU's default generator (pytorch/device/kernels/generator.h), so these are the CPU's.


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> int:
    return torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = "weft") -> Tensor:
    return torch.default_generator.get_state()


def set_rng_state(new_state: Tensor, device: Any = "weft") -> None:
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states: list[Tensor]) -> None:
    for state in new_states:
        set_rng_state(state)
