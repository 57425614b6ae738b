"""What torch.distributed chooses if the user names no device: the machine's accelerator. The device weft has no
collective operations, so it is passed over, and the CPU is chosen as if weft weren't registered."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from weft._base import torch_private
from weft._base.import_hooks import when_imported


def _choose_backend(distributed: ModuleType) -> None:
    """`init_process_group()` without a backend: gloo, of the CPU."""
    config, undefined = distributed.BackendConfig, distributed.Backend.UNDEFINED
    init = config.__init__

    def init_without_the_device(self: Any, backend: Any) -> None:
        if str(backend) == undefined and torch_private.get_accelerator().type == "weft":
            backend = f"cpu:{distributed.Backend.default_device_backend_map['cpu']}"
        init(self, backend)

    config.__init__ = init_without_the_device


def _choose_mesh(fully_shard: ModuleType) -> None:
    """`fully_shard(module)` without a mesh: takes a mesh of the CPU."""
    init = fully_shard.init_device_mesh

    def init_without_the_device(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return init("cpu" if device_type == "weft" else device_type, *args, **kwargs)

    fully_shard.init_device_mesh = init_without_the_device


def _refuse_older_fsdp(_: ModuleType) -> None:
    """`FullyShardedDataParallel` doesn't work on the CPU alone, and says so."""
    handle = torch_private.FSDPDeviceHandle
    of_device = handle.from_device.__func__

    def of_other_device(cls: Any, device: torch.device) -> Any:
        if device.type == "weft":
            raise RuntimeError(
                "FSDP needs a non-CPU accelerator device, but no accelerator device is detected. On the CPU "
                "torch.distributed.fsdp.fully_shard does the same."
            )
        return of_device(cls, device)

    handle.from_device = classmethod(of_other_device)


def register() -> None:
    when_imported("torch.distributed.distributed_c10d", _choose_backend)
    when_imported(torch_private.FULLY_SHARD_INIT, _choose_mesh)
    when_imported(torch_private.FSDP_COMMON, _refuse_older_fsdp)
