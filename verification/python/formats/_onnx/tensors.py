"""Tensors of ONNX models, and the few nodes that compute weights from other weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.formats._layers import FormatError

_SLACK = 64 << 20
_RATIO = 32


class Files:
    """The folder of a model, and the memory that its files may use: 64 MiB, and 32 times their bytes.

    Nodes can double a constant again and again, and a function with weights in it may be called by many.
    """

    def __init__(self, model: Path) -> None:
        self.folder = model.parent
        self._sizes = {model.resolve(): model.stat().st_size}
        self._spent = 0

    def add(self, file: Path, size: int) -> None:
        self._sizes[file] = size

    def spend(self, size: int, what: str) -> None:
        """Called before `size` bytes are allocated. Raises FormatError if that is more in all than the files may
        use."""
        self._spent += size
        total = sum(self._sizes.values())
        if self._spent > _SLACK + _RATIO * total:
            raise FormatError(f"{what}: its constants take {self._spent} bytes of files of {total}, as no weights do")


#: By number in onnx.TensorProto.DataType: torch's dtype, NumPy's for raw bytes, and the field for values.
_TYPES: dict[int, tuple[torch.dtype, str, str]] = {
    1: (torch.float32, "<f4", "float_data"),
    2: (torch.uint8, "<u1", "int32_data"),
    3: (torch.int8, "<i1", "int32_data"),
    6: (torch.int32, "<i4", "int32_data"),
    7: (torch.int64, "<i8", "int64_data"),
    9: (torch.bool, "<?", "int32_data"),
    10: (torch.float16, "<u2", "int32_data"),
    11: (torch.float64, "<f8", "double_data"),
    16: (torch.bfloat16, "<u2", "int32_data"),
}


def constant_node(own: dict[str, Any], name: str, files: Files) -> Tensor | None:
    if "value" in own:
        return tensor_of(own["value"], files, name)
    for field, dtype in (("value_float", torch.float32), ("value_floats", torch.float32), ("value_int", torch.int64),
                         ("value_ints", torch.int64)):  # fmt: skip
        if field in own:
            return torch.tensor(own[field], dtype=dtype)
    return None


def tensor_of(proto: Any, files: Files, name: str = "") -> Tensor:
    """A TensorProto's values.

    Raises:
        FormatError: it doesn't hold what it claims; or its data are in a file that isn't beside the model.
    """
    name = proto.name or name or "a tensor"
    if proto.data_type not in _TYPES:
        raise FormatError(f"{name} has data type number {proto.data_type}; weights are float, double, (b)float16")
    dtype, stored, field = _TYPES[proto.data_type]
    shape = tuple(proto.dims)
    if any(size < 0 for size in shape) or len(shape) > 16:
        raise FormatError(f"{name} claims shape {list(shape)[:16]}")
    count = math.prod(shape)
    itemsize = np.dtype(stored).itemsize
    values = getattr(proto, field)
    if proto.data_location == 1:
        data = _external(proto, files, count * itemsize, name)
        array = np.frombuffer(data, stored)
    elif len(values) and not proto.raw_data:
        if len(values) != count:
            raise FormatError(f"{name} claims shape {list(shape)}, but has {len(values)} values")
        bits = np.array(values, dtype=np.float64 if field == "double_data" else None)
        array = bits.astype(stored) if field != "int32_data" else bits.astype(np.int64).astype(stored)
    else:
        if len(proto.raw_data) != count * itemsize:
            raise FormatError(f"{name} claims shape {list(shape)} of {dtype}, but has {len(proto.raw_data)} bytes")
        array = np.frombuffer(proto.raw_data, stored)
    files.spend(array.nbytes, name)
    tensor = torch.from_numpy(array.copy())
    if dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.view(torch.int16).view(dtype)
    return tensor.reshape(shape)


def _external(proto: Any, files: Files, size: int, name: str) -> bytes:
    folder = files.folder
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    parts = Path(location).parts
    if not location or "\0" in location or Path(location).is_absolute() or "\\" in location or ".." in parts:
        raise FormatError(f"{name} has its data in {location!r}; only files in the model's own folder are read")
    try:
        file = (folder / location).resolve(strict=True)
    except (OSError, RuntimeError):
        raise FormatError(f"{name} has its data in {location!r}, which isn't beside the model") from None
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise FormatError(f"{name} has its data in {location!r}, which leads out of the model's folder")
    try:
        offset, length = int(entries.get("offset", 0) or 0), int(entries.get("length", size) or size)
    except ValueError:
        raise FormatError(f"{name} has an offset or a length of its data that is no number") from None
    if length != size or offset < 0 or offset + length > file.stat().st_size:
        raise FormatError(
            f"{name} needs {size} bytes and claims {length} from {offset} of {location!r}, which has "
            f"{file.stat().st_size}"
        )
    files.add(file, file.stat().st_size)
    files.spend(size, name)
    with file.open("rb") as opened:
        opened.seek(offset)
        data = opened.read(size)
    if len(data) != size:
        raise FormatError(f"{name} has {len(data)} bytes in {location!r}, where {size} are needed")
    return data


def _ints(value: Tensor | None) -> list[int]:
    return [] if value is None else [int(v) for v in value.reshape(-1).tolist()]


def _axes(own: dict[str, Any], given: Tensor | None) -> list[int]:
    return _ints(given) if given is not None else list(own.get("axes", []))


def _cast(own: dict[str, Any], _: int, x: Tensor) -> Tensor:
    if own.get("to") not in _TYPES:
        raise FormatError(f"a Cast to data type number {own.get('to')}")
    return x.to(_TYPES[own["to"]][0])


def _transpose(own: dict[str, Any], _: int, x: Tensor) -> Tensor:
    return x.permute(own.get("perm") or list(range(x.dim()))[::-1])


def _concat(own: dict[str, Any], _: int, *xs: Tensor) -> Tensor:
    return torch.cat(xs, own.get("axis", 1))


def _squeeze(own: dict[str, Any], _: int, x: Tensor, axes: Tensor | None = None) -> Tensor:
    dims = _axes(own, axes)
    return x.squeeze(tuple(dims)) if dims else x.squeeze()


def _unsqueeze(own: dict[str, Any], _: int, x: Tensor, axes: Tensor | None = None) -> Tensor:
    dims = _axes(own, axes)
    rank = x.dim() + len(dims)
    for axis in sorted(axis % rank for axis in dims):
        x = x.unsqueeze(axis)
    return x


def _reshape(own: dict[str, Any], _: int, x: Tensor, shape: Tensor | None = None) -> Tensor:
    sizes = list(own.get("shape", [])) if shape is None else _ints(shape)
    if not own.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


def _slice(own: dict[str, Any], _: int, x: Tensor, *given: Tensor | None) -> Tensor:
    starts, ends, axes, steps = [*map(_ints, given), [], [], [], []][:4]
    starts, ends = starts or list(own.get("starts", [])), ends or list(own.get("ends", []))
    axes = axes or list(own.get("axes", range(len(starts))))
    for i, axis in enumerate(axes):
        step = steps[i] if steps else 1
        picked = range(x.shape[axis])[slice(starts[i], _end(ends[i], step), step)]
        x = x.index_select(axis, torch.tensor(list(picked), dtype=torch.int64))
    return x


def _end(end: int, step: int) -> int | None:
    return None if step < 0 and end < -(1 << 31) + 2 else end


def _split(own: dict[str, Any], output: int, x: Tensor, sizes: Tensor | None = None) -> Tensor:
    parts = _ints(sizes) or list(own.get("split", []))
    axis = own.get("axis", 0)
    if not parts:
        raise FormatError("a Split without sizes")
    return x.split(parts, axis)[output]


def _gather(own: dict[str, Any], _: int, x: Tensor, indices: Tensor) -> Tensor:
    axis = own.get("axis", 0) % x.dim()
    if indices.numel() > x.numel():
        raise FormatError("a Gather that repeats its input")
    flat = indices.reshape(-1).to(torch.int64) % x.shape[axis]
    picked = x.index_select(axis, flat)
    return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


#: Nodes whose results take no memory.
VIEWS = ("Identity", "Dropout", "Transpose", "Squeeze", "Unsqueeze", "Split")
#: Computes a node's output from its attributes, the output's index, and the node's inputs.
FOLDS: dict[str, Callable[..., Tensor]] = {
    "Identity": lambda own, _, x: x,
    "Dropout": lambda own, output, x, *more: x,
    "Cast": _cast,
    "Transpose": _transpose,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Neg": lambda own, _, x: -x,
}
