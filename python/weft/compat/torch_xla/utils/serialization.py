"""`torch_xla.utils.serialization`: a file for the data, and one for each of its tensors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.compat.torch_xla._data import with_tensors
from weft.compat.torch_xla.core import xla_model


def _file(path: str, number: int) -> Path:
    return Path(f"{path}.tensors") / f"tensor_{number}.pt"


class _Numbered(Tensor):
    """Stands for a tensor that has a file of its own: one int64, the file's number."""


def save(data: Any, path: str, master_only: bool = True, global_master: bool = False) -> None:
    """`data` to `path`, and its tensors of the device to files in the folder `path` + ".tensors", as the CPU's. What
    was in the folder before is removed."""
    folder = Path(f"{path}.tensors")
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir()
    count = 0

    def numbered(tensor: Tensor) -> Tensor:
        nonlocal count
        xla_model.save(tensor, _file(path, count))
        count += 1
        return torch.tensor(count - 1).as_subclass(_Numbered)

    torch.save(with_tensors(data, xla_model.is_xla_tensor, numbered), path)


def load(path: str) -> Any:
    """The data that `save` wrote, with its tensors on the CPU."""
    return with_tensors(torch.load(path, weights_only=False), _is_numbered, lambda tensor: _load(path, int(tensor)))


def _is_numbered(tensor: Tensor) -> bool:
    return isinstance(tensor, _Numbered)


def _load(path: str, number: int) -> Tensor:
    found: Tensor = torch.load(_file(path, number))
    return found
