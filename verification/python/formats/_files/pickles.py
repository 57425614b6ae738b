"""Looks through the pickle of a .pt file before torch.load does.

torch.load(weights_only=True) executes nothing, but it trusts sizes: a storage may claim more than its record has, and a
tensor type may be called with any size. So the pickle is first interpreted here, with placeholders for all names. Only
if everything that it would build fits the archive does torch.load get it.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickletools
from collections.abc import Mapping
from typing import Any

import torch

from weft._base.torch_private import REBUILD_TENSOR, REBUILDING
from weft.formats._layers import FormatError

_DEPTH = 16  # depth of tuples: a key of tuples that share their parts takes 2^depth steps to hash
_MOST_BYTES = 256 << 20

_STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
    "UntypedStorage": torch.uint8, "ComplexDoubleStorage": torch.complex128, "ComplexFloatStorage": torch.complex64,
}  # fmt: skip
#: The functions that a pickle may call, with their numbers of arguments.
_CALLS = {
    "collections.OrderedDict": range(2),
    "collections.Counter": range(2),
    "builtins.set": range(2),
    "builtins.complex": range(1, 3),
    "torch.Size": range(2),
    "torch.device": range(1, 3),
    "_codecs.encode": range(1, 3),
    **REBUILDING,
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = (
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "SHORT_BINUNICODE",
    "BINSTRING", "INT", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Global:
    name: str


@dataclasses.dataclass(frozen=True)
class _Storage:
    dtype: torch.dtype
    numel: int


class _Object:
    """The result of a call, not made."""


class _Tuple(tuple):
    """A tuple with its depth."""

    depth = 1


_MARK = object()


def check(data: bytes, records: Mapping[str, int]) -> None:
    """Raises FormatError unless the pickle builds dicts, lists and tensors only, each inside its record.

    Args:
        data: the pickle.
        records: of each storage's key the size in bytes.
    """
    if len(data) > _MOST_BYTES:
        raise FormatError(f"its pickle has {len(data)} bytes, which no state dict needs")
    _Machine(records, len(data)).run(data)


class _Machine:
    def __init__(self, records: Mapping[str, int], size: int) -> None:
        self._records = records
        self._size = size
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> None:
        try:
            for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
                self._do(opcode.name, argument)
        except FormatError:
            raise
        except Exception as error:
            raise FormatError(f"its pickle is malformed: {str(error)[:200] or type(error).__name__}") from None

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_global(argument if name == "GLOBAL" else f"{stack.pop(-2)} {stack.pop()}"))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"):
            stack.append(_Object())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("SETITEMS", "APPENDS", "ADDITEMS"):
            self._to_mark()
        elif name in ("SETITEM", "APPEND"):
            del stack[-2 if name == "SETITEM" else -1 :]
        elif name == "EMPTY_TUPLE":
            stack.append(_tuple(()))
        elif name == "TUPLE":
            stack.append(_tuple(self._to_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = stack[-count:]
            del stack[-count:]
            stack.append(_tuple(items))
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(self._call(stack.pop(), arguments))
        elif name == "BUILD":
            stack.pop()
        elif name == "PROTO" and argument > 2:
            raise FormatError(
                f"its pickle has protocol {argument}; torch.save without pickle_protocol writes one that is read"
            )
        elif name not in ("PROTO", "STOP"):
            raise FormatError(
                f"its pickle uses {name}, which no state dict needs; torch.save(model.state_dict(), path)"
            )

    def _to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while at >= 0 and self._stack[at] is not _MARK:  # from the end: every entry passed is popped
            at -= 1
        if at < 0:
            raise FormatError("its pickle is malformed: no mark is set")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _storage(self, identifier: Any) -> _Storage:
        kind, of, key, _, numel = identifier
        dtype = _STORAGES.get(of.name.removeprefix("torch.").removeprefix("storage."))
        if kind != "storage" or dtype is None:
            raise FormatError(f"a tensor has storage of {of.name}, which holds no weights that are read")
        if not _is_count(numel) or numel * dtype.itemsize != self._records.get(str(key), -1):
            held = self._records.get(str(key))
            has = "has no such record" if held is None else f"has {held} bytes in it"
            raise FormatError(f"storage {key!r} claims {numel} numbers of {dtype}, the file {has}")
        return _Storage(dtype, numel)

    def _call(self, function: Any, arguments: Any) -> _Object:
        if not isinstance(function, _Global) or function.name not in _CALLS:
            called = function.name if isinstance(function, _Global) else "what is no function"
            raise FormatError(f"its pickle calls {called}, which {_STATE_DICT}")
        if not isinstance(arguments, tuple) or len(arguments) not in _CALLS[function.name]:
            raise FormatError(f"its pickle calls {function.name} with other arguments than PyTorch writes")
        if function.name.startswith(REBUILD_TENSOR):
            _check_view(*arguments[:4])
        if function.name.endswith("_rebuild_from_type_v2") and arguments[0] not in map(_Global, _CALLS):
            raise FormatError("its pickle rebuilds a tensor by a function of its own")
        if function.name.endswith("_rebuild_from_type_v2"):
            self._call(arguments[0], arguments[2])
        return _Object()


_STATE_DICT = "isn't read; torch.save(model.state_dict(), path) writes a file of weights alone"


def _global(argument: str) -> _Global:
    name = ".".join(argument.split(" ", 1))
    name = name.replace("__builtin__.", "builtins.")
    plain = name.removeprefix("torch.").removeprefix("storage.")
    named = name.startswith("torch.") and (
        plain in _STORAGES
        or plain in ("Tensor", "nn.parameter.Parameter")
        or isinstance(getattr(torch, plain, None), torch.dtype)
    )
    if not named and name not in _CALLS:
        raise FormatError(f"it holds an object of {name}, which {_STATE_DICT}")
    return _Global(name)


def _tuple(items: Any) -> _Tuple:
    made = _Tuple(items)
    made.depth = 1 + max((item.depth for item in made if isinstance(item, _Tuple)), default=0)
    if made.depth > _DEPTH:
        raise FormatError(f"its pickle nests tuples {made.depth} deep, as no state dict does")
    return made


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_view(storage: Any, offset: Any, size: Any, stride: Any) -> None:
    if not isinstance(storage, _Storage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise FormatError("a tensor in its pickle has no storage, size and stride")
    if len(size) != len(stride) or not all(map(_is_count, (offset, *size, *stride))):
        raise FormatError(f"a tensor claims size {size} and stride {stride}, which are no sizes")
    last = offset + sum((s - 1) * step for s, step in zip(size, stride, strict=True)) if math.prod(size) else offset - 1
    if last >= storage.numel and math.prod(size):
        raise FormatError(f"a tensor of size {tuple(size)} reaches beyond its storage of {storage.numel} numbers")
    if math.prod(size) > storage.numel:
        raise FormatError(f"a tensor of size {tuple(size)} is a view that repeats its {storage.numel} numbers")
