"""MessagePack files as flax.serialization writes them: nested dicts of arrays, each a packed shape, dtype and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from weft.formats._layers import FormatError

_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3  # flax.serialization's extension types
_NAMES = (
    "float16", "bfloat16", "float32", "float64", "bool", "complex64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
)  # fmt: skip
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
# Decoders allocate a list before its entries have arrived, and lists can be nested. States are dicts, not lists.
_MOST_LIST = 4096
_MOST_RANK = 32
_CHUNK = 1 << 30  # bytes: a longer array is in pieces
_CHUNKED = "__msgpack_chunked_array__"


def unpack(msgpack: Any, data: bytes) -> Any:
    """Unpacks the bytes, with tensors for arrays; memory is bounded by a small multiple of the bytes.

    Args:
        msgpack: the package.

    Raises:
        FormatError: they aren't MessagePack, or have something that flax doesn't write.
    """

    def extension(code: int, packed: bytes) -> Any:
        if code in (_ARRAY, _SCALAR):
            return _tensor(msgpack, packed)
        return None

    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            ext_hook=extension,
            max_array_len=_MOST_LIST,
            max_map_len=len(data) // 2,
        )
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("is nested deeper than any state") from None
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise FormatError(
            f"is no MessagePack as flax.serialization writes it: {text or type(error).__name__}"
        ) from None
    if isinstance(value, dict) and {"metadata", "item"} <= value.keys():
        raise FormatError("is a record of Burn's NamedMpkFileRecorder, which isn't read; one of SafetensorsStore is")
    return _joined(value, 0)


def pack(msgpack: Any, tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by path ("params/cell/hn/kernel") as flax.serialization.to_bytes packs nested dicts of arrays."""
    tree: dict[str, Any] = {}
    for path, tensor in tensors.items():
        *groups, leaf = path.split("/")
        inner = tree
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[leaf] = _packed(msgpack, tensor)
    return msgpack.packb(tree, strict_types=True)


def _packed(msgpack: Any, tensor: Tensor) -> Any:
    flat = tensor.detach().contiguous().flatten()
    most = _CHUNK // tensor.itemsize
    pieces = [flat[start : start + most] for start in range(0, flat.numel(), most)] or [flat]
    name = str(tensor.dtype).removeprefix("torch.")

    def array(piece: Tensor, shape: tuple[int, ...]) -> Any:
        content = piece.view(torch.uint8).numpy().tobytes()
        return msgpack.ExtType(_ARRAY, msgpack.packb((shape, name, content), use_bin_type=True))

    if len(pieces) == 1:
        return array(flat, tuple(tensor.shape))
    return {
        _CHUNKED: True,
        "shape": {str(i): extent for i, extent in enumerate(tensor.shape)},
        "chunks": {str(i): array(piece, tuple(piece.shape)) for i, piece in enumerate(pieces)},
    }


def _tensor(msgpack: Any, packed: bytes) -> Tensor:
    value = msgpack.unpackb(packed, raw=False, max_array_len=_MOST_RANK, max_map_len=0, max_ext_len=0)
    if not isinstance(value, list) or len(value) != 3:
        raise FormatError("has an array that isn't a shape, a dtype and bytes")
    shape, name, content = value
    shapes = isinstance(shape, list) and all(type(extent) is int and extent >= 0 for extent in shape)
    if not shapes or not isinstance(name, str) or not isinstance(content, bytes):
        raise FormatError("has an array that isn't a shape, a dtype and bytes")
    if name not in _DTYPES:
        raise FormatError(f"has an array of dtype {name[:40]!r}; {', '.join(_DTYPES)} are read")
    dtype = _DTYPES[name]
    if math.prod(shape) * dtype.itemsize != len(content):
        raise FormatError(f"has an array that claims shape {shape} of {name}, but {len(content)} bytes")
    if not content:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)


def _joined(value: Any, depth: int) -> Any:
    """Joins arrays that are in pieces."""
    if not isinstance(value, dict) or depth > 100:
        return value
    if _CHUNKED not in value:
        return {key: _joined(below, depth + 1) for key, below in value.items()}
    shape, chunks = value.get("shape"), value.get("chunks")
    if not isinstance(shape, dict) or not isinstance(chunks, dict):
        raise FormatError("has an array in pieces without its shape or its pieces")
    extents, pieces = [shape[key] for key in _counted(shape)], [chunks[key] for key in _counted(chunks)]
    if not all(type(extent) is int and extent >= 0 for extent in extents) or not pieces:
        raise FormatError("has an array in pieces without its shape or its pieces")
    if any(not isinstance(piece, Tensor) or piece.ndim != 1 or piece.dtype != pieces[0].dtype for piece in pieces):
        raise FormatError("has an array whose pieces are of different kinds")
    if math.prod(extents) != sum(piece.numel() for piece in pieces):
        raise FormatError(f"has an array in pieces that claims shape {extents}, but another number of elements")
    return torch.cat(pieces).reshape(extents)


def _counted(entries: dict[Any, Any]) -> list[str]:
    names = [str(i) for i in range(len(entries))]
    if set(entries) != set(names):
        raise FormatError("has an array whose pieces aren't counted from 0")
    return names
