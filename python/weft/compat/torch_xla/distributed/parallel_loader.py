"""`torch_xla.distributed.parallel_loader`: loaders whose batches are on the device, and that end a step at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.compat.torch_xla._data import tensors_in, with_tensors
from weft.compat.torch_xla._missing import missing
from weft.compat.torch_xla.core import xla_model


class MpDeviceLoader:
    """`loader`'s batches on `device`. Asking for the next ends the step (`mark_step`), as does the end.

    Args:
        loader: gives tensors, or any data with tensors in it (`send_cpu_data_to_device`): a DataLoader, say, whose
            workers load ahead.
        device: `xla_device()`.
        batches_per_execution: how many batches are one step.
        fixed_batch_size: ends before a batch of another size than the first, along `batchdim`.
        loader_prefetch_size, device_prefetch_size, host_to_device_transfer_threads: taken, and of no effect; moving a
            batch is a copy within memory.
        input_sharding: None.

    Raises:
        NotImplementedError: there is an `input_sharding`.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str,
        *,
        batchdim: int = 0,
        fixed_batch_size: bool = False,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        if input_sharding is not None:
            missing("sharding", "leave input_sharding out")()
        self._loader, self._device = loader, torch.device(device)
        self._batchdim, self._fixed, self._batches = batchdim, fixed_batch_size, batches_per_execution

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        first = None
        for number, batch in enumerate(self._loader):
            if self._fixed:
                size = self._size(batch)
                first = size if first is None else first
                if size != first:
                    break
            if number % self._batches == 0:
                xla_model.mark_step()
            with torch.no_grad():
                moved = with_tensors(batch, lambda tensor: tensor.device.type != self._device.type, self._moved)
            yield moved
        xla_model.mark_step()

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _size(self, batch: Any) -> int | None:
        first = next(tensors_in(batch), None)
        return None if first is None else first.shape[self._batchdim]


class ParallelLoader:
    """The same with the device named in a list, of one: `per_device_loader(device)` goes through the batches.

    Raises:
        NotImplementedError: several devices.
    """

    def __init__(self, loader: Iterable[Any], devices: Sequence[torch.device | str], **kwargs: Any) -> None:
        if len(devices) != 1:
            missing("second device", "give a list of one device")()
        self._loader = MpDeviceLoader(loader, devices[0], **kwargs)

    def per_device_loader(self, device: torch.device | str) -> MpDeviceLoader:
        return self._loader

    def per_device_samples(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """Nothing runs in the background."""
