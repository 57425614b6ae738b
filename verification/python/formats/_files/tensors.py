"""Files of named tensors, read into a dict; nothing is executed, and no size is believed before it is checked."""

from __future__ import annotations

import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats._files import msgpack, pickles
from weft.formats._files.sniff import container_of, first_line, members, read_member
from weft.formats._layers import FormatError

#: The dtypes that weights may have.
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_NUMBERS = re.compile(r"(\d+)")
_MOST_ENTRIES = 2_000_000
_MOST_REPEATS = 100_000  # visits of parts that were visited before: checkpoints share few, and then few times
_MOST_DEPTH = 64
_LONGEST_NAME = 1024
_SHARED = 8  # tensors that are views of one storage may together have so many times the file's bytes


def read_tensors(path: Path, container: str | None = None) -> dict[str, Tensor]:
    """All tensors of a file of any kind in READERS; those in nested dicts and lists get names joined by dots.

    Raises:
        FormatError: the file is damaged, or claims what it doesn't hold.
    """
    container = container or container_of(path)
    try:
        tensors = READERS[container](path)
        for name in tensors:
            _checked_name(name)
        return tensors
    except FormatError as error:
        text = str(error)
        raise FormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except ImportError:
        raise
    except Exception as error:
        raise FormatError(f"{path}: can't be read: {first_line(error)}") from None


def parameter(
    tensors: Mapping[str, Tensor], name: str, shape: Sequence[int | None] | None = None, like: Tensor | None = None
) -> Tensor:
    """A tensor of weights, contiguous: of a floating dtype, of this shape (None: any size), of the dtype of `like`.

    Raises:
        FormatError: it is missing, or has another dtype or shape; the message names it.
    """
    if name not in tensors:
        raise FormatError(f"{name} is missing")
    tensor = tensors[name]
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise FormatError(f"{name} is a quantized, sparse or meta tensor; weights are plain ones")
    if tensor.dtype not in FLOATS:
        raise FormatError(f"{name} has dtype {_dtype(tensor)}; weights are float32, float64, float16 or bfloat16")
    if like is not None and tensor.dtype != like.dtype:
        raise FormatError(f"{name} has dtype {_dtype(tensor)}, the layer's other weights have {_dtype(like)}")
    if shape is not None and not _fits(tensor.shape, shape):
        wanted = ", ".join("?" if size is None else str(size) for size in shape)
        raise FormatError(f"{name} has shape {list(tensor.shape)}, expected [{wanted}]")
    if tensor.numel() == 0:
        raise FormatError(f"{name} has shape {list(tensor.shape)}, which holds nothing")
    return tensor.detach().contiguous()


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes a dict of tensors in the format of the extension: a key of WRITERS.

    Raises:
        FormatError: another extension.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise FormatError(f"{path}: tensors are written to {', '.join(WRITERS)}; the name ends with none of them")
    writer({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)


def flatten(value: Any) -> dict[str, Tensor]:
    """The tensors in nested dicts and lists, by their path joined with dots."""
    return dict(_leaves(value))


def _leaves(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Parts may be shared, so that a small file is a large tree: entries, depth and names are limited."""
    stack: list[tuple[str, Any, int]] = [("", value, 0)] if isinstance(value, Tensor | dict | list | tuple) else []
    count = visits = 0
    seen: set[int] = set()
    while stack:
        name, item, depth = stack.pop()
        if isinstance(item, Tensor):
            yield name, item
            continue
        count, visits = count + len(item), visits + 1
        seen.add(id(item))
        if count > _MOST_ENTRIES or visits - len(seen) > _MOST_REPEATS or depth > _MOST_DEPTH:
            raise FormatError("is nested deeper, or has more entries, than any checkpoint")
        entries = item.items() if isinstance(item, dict) else enumerate(item)
        for key, below in reversed(list(entries)):
            if isinstance(below, Tensor | dict | list | tuple):
                stack.append((_checked_name(f"{name}.{key}" if name else str(key)), below, depth + 1))


def _checked_name(name: str) -> str:
    if len(name) > _LONGEST_NAME:
        raise FormatError(f"has a name of more than {_LONGEST_NAME} letters")
    return name


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(w in (None, s) for s, w in zip(shape, wanted, strict=True))


def _read_torch(path: Path) -> dict[str, Tensor]:
    found = members(path)
    stored = [member.filename for member in found if member.filename.split("/")[-1] == "data.pkl"]
    if len(stored) != 1:
        raise FormatError(f"{path}: holds {len(stored)} pickles where a PyTorch file has one")
    if any(member.compress_type != zipfile.ZIP_STORED for member in found):
        raise FormatError(f"{path}: is a compressed archive; torch.save writes an uncompressed one")
    if sum(member.file_size for member in found) > path.stat().st_size:
        raise FormatError(f"{path}: its members overlap: they claim more than the file has")
    folder = stored[0].removesuffix("data.pkl")
    records = {
        member.filename.removeprefix(f"{folder}data/"): member.file_size
        for member in found
        if member.filename.startswith(f"{folder}data/")
    }
    pickles.check(read_member(path, stored[0]), records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about pickle protocols
        # Memory-mapped, so that a storage is a slice of the file, whatever the archive's directory claims.
        try:
            loaded = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:  # its message advises to load without weights_only
            why = str(error).partition("WeightsUnpickler error:")[2].strip().splitlines() or ["it isn't weights only"]
            raise FormatError(f"{path}: torch.load(weights_only=True) refuses it: {why[0][:300]}") from None
    if not isinstance(loaded, dict | list | tuple | Tensor):
        raise FormatError(f"{path}: holds a {type(loaded).__name__} where a state dict is expected")
    tensors = flatten(loaded)
    most = _SHARED * path.stat().st_size
    if sum(tensor.numel() * tensor.itemsize for tensor in tensors.values()) > most:
        raise FormatError(f"{path}: its tensors share so much that together they are {_SHARED} times the file")
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = optional("safetensors", path)
    try:
        with safetensors.safe_open(str(path), framework="pt", device="cpu") as file:
            # The file has an order of its own: layer 2 comes before layer 10 here.
            return {name: file.get_tensor(name) for name in sorted(file.keys(), key=_natural)}
    except Exception as error:
        raise FormatError(f"{path}: is a damaged safetensors file: {first_line(error)}") from None


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key by which names sort with numbers as numbers."""
    parts = _NUMBERS.split(name)
    return [(part.isdecimal(), int(part) if part.isdecimal() and len(part) < 10 else 0, part) for part in parts]


def _read_npz(path: Path) -> dict[str, Tensor]:
    found = {}
    for member in members(path):
        name = member.filename.removesuffix(".npy")
        found[name] = _array(f"{path}: {name}", read_member(path, member.filename))
    return found


def _read_npy(path: Path) -> dict[str, Tensor]:
    raise FormatError(f"{path}: is a single array; np.savez(path, x=x, y=y) writes several with their names")


def _read_msgpack(path: Path) -> dict[str, Tensor]:
    value = msgpack.unpack(optional("msgpack", path), path.read_bytes())
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a {type(value).__name__} where a dict of parameters is expected")
    return flatten(value)


def _array(what: str, data: bytes) -> Tensor:
    """An array in NumPy's format, of a dtype that torch has."""
    import io

    import numpy as np
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise FormatError(f"{what}: is in version {version} of NumPy's format; 1.0 and 2.0 are read")
        shape, is_fortran, dtype = read(file, max_header_size=10_000)
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(f"{what}: has a damaged header: {first_line(error)}") from None
    if dtype.hasobject or dtype.kind not in "fiubc" or dtype.itemsize > 16:
        raise FormatError(f"{what}: has dtype {dtype}; weights are float32, float64 or float16")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell() or len(shape) > 16:
        raise FormatError(f"{what}: claims shape {list(shape)} of {dtype}, but has {len(data) - file.tell()} bytes")
    array = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C")
    try:
        return torch.from_numpy(array.astype(dtype.newbyteorder("="), order="C"))
    except TypeError:
        raise FormatError(f"{what}: has dtype {dtype}; weights are float32, float64 or float16") from None


def optional(package: str, path: Path | str) -> Any:
    """An optional package.

    Raises:
        FormatError: it isn't installed.
    """
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise FormatError(f"{path}: reading it needs the package {package}: pip install 'weft[formats]'") from None


def _write_torch(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save(tensors, path)


def _write_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    optional("safetensors.torch", path).save_file({name: tensor.clone() for name, tensor in tensors.items()}, path)


def _write_npz(tensors: dict[str, Tensor], path: Path) -> None:
    import numpy as np

    for name, tensor in tensors.items():
        if tensor.dtype == torch.bfloat16:
            raise FormatError(f"{path}: {name} is bfloat16, which NumPy files don't have; .safetensors do")
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})


def _write_msgpack(tensors: dict[str, Tensor], path: Path) -> None:
    path.write_bytes(msgpack.pack(optional("msgpack", path), tensors))


#: Readers by container (`sniff.CONTAINERS`).
READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    "torch": _read_torch,
    "safetensors": _read_safetensors,
    "npz": _read_npz,
    "npy": _read_npy,
    "msgpack": _read_msgpack,
}
#: Writers by extension.
WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
    ".npz": _write_npz,
    ".msgpack": _write_msgpack,
}
