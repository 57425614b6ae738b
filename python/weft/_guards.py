"""What a function depends on besides its arguments, and whether that is still what it was.

A step is mostly a closure made anew for each call. What it can reach is found by reading its code, once: the names and
attributes that it loads from its closure, its globals and its `self`. Before each call these are looked up again, which
gives a key (code, constants, the make-up of modules) and the tensors, in an order that depends on the key alone.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import os
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_CONSTANTS = (
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    type(Ellipsis),
    range,
    slice,
)
_MAX_DEPTH = 12


@dataclasses.dataclass
class Surroundings:
    """What a function reaches."""

    key: tuple[Any, ...]  #: equal where the function would be traced to the same program
    tensors: list[Tensor]
    paths: list[str]  #: what the user calls each tensor
    pinned: list[Any]  #: objects that the key knows by their id


def surroundings(functions: Sequence[Callable[..., Any]]) -> Surroundings:
    walk = _Walk()
    for fn in functions:
        walk.value(fn, "", 0)
    return Surroundings(tuple(walk.key), walk.tensors, walk.paths, walk.pinned)


class _Walk:
    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[Tensor] = []
        self.paths: list[str] = []
        self.pinned: list[Any] = []
        self._seen: dict[int, int] = {}

    def value(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, _CONSTANTS):
            # -0.0 is no 0.0, and True no 1, though they compare equal.
            self.key.append((type(value), repr(value) if isinstance(value, float | slice) else value))
        elif id(value) in self._seen:
            self.key.append(("again", self._seen[id(value)]))
        elif isinstance(value, Tensor):
            self._remember(value)
            self.key.append((type(value), value.dtype, value.device, value.layout))
            self.tensors.append(value)
            self.paths.append(path)
        elif depth > _MAX_DEPTH:
            self._identity(value)
        else:
            self._compound(value, path, depth)

    def _remember(self, value: Any) -> None:
        self._seen[id(value)] = len(self._seen)

    def _identity(self, value: Any) -> None:
        self.key.append(("id", id(value)))
        self.pinned.append(value)

    def _compound(self, value: Any, path: str, depth: int) -> None:
        self._remember(value)
        if isinstance(value, types.FunctionType):
            self._function(value, path, depth)
        elif isinstance(value, types.MethodType):
            self._function(value.__func__, path, depth, receiver=value.__self__)
        elif isinstance(value, functools.partial):
            self._items([value.func, value.args, value.keywords], path, depth)
        elif isinstance(value, torch.nn.Module):
            self._module(value, path, depth)
        elif isinstance(value, list | tuple):
            self._items(value, path, depth)
        elif isinstance(value, dict):
            self.key.append((type(value), tuple(k if isinstance(k, _CONSTANTS) else id(k) for k in value)))
            for name, item in value.items():
                self.value(item, f"{path}[{name!r}]", depth + 1)
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType) or not hasattr(value, "__dict__"):
            self._identity(value)
        else:
            self._object(value, path, depth)

    def _items(self, items: Any, path: str, depth: int) -> None:
        self.key.append((type(items), len(items)))
        for i, item in enumerate(items):
            self.value(item, f"{path}[{i}]", depth + 1)

    def _object(self, value: Any, path: str, depth: int) -> None:
        """Any other object: what it holds, and what calling it would run."""
        self.key.append(type(value))
        self.pinned.append(type(value))
        call = getattr(type(value), "__call__", None)  # noqa: B004
        if isinstance(call, types.FunctionType):
            self._function(call, path, depth + 1, receiver=value)
        self._attributes(value.__dict__, path, depth)

    def _attributes(self, attributes: dict[str, Any], path: str, depth: int) -> None:
        for name, item in attributes.items():
            self.key.append(name)
            self.value(item, f"{path}.{name}" if path else name, depth + 1)

    def _module(self, module: torch.nn.Module, path: str, depth: int) -> None:
        self.key.append(type(module))
        self.pinned.append(type(module))
        attributes = module.__dict__
        for name in ("_parameters", "_buffers", "_modules"):
            self._attributes(attributes[name], path, depth)
        for name, item in attributes.items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            if isinstance(item, _CONSTANTS) or (item and not name.startswith("_non_persistent")):
                self.key.append(name)
                self.value(item, f"{path}.{name}", depth + 1)
        for name in ("__init_subclass__", "forward"):
            if name in attributes:
                self.value(attributes[name], path, depth + 1)

    def _function(self, function: Any, path: str, depth: int, receiver: Any = None) -> None:
        code = function.__code__
        self.key.append(("code", id(code)))
        self.pinned.append(code)
        if _is_pytorch(function):
            if receiver is not None:
                self.value(receiver, path, depth + 1)
            return
        installed = _is_installed(code.co_filename)
        for chain in _loads(code):
            if chain[0] != "global" or not installed:
                self._chain(chain, function, receiver, depth)
        for default in (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).values())):
            for item in default:
                self.value(item, f"a default of {function.__name__}", depth + 1)

    def _chain(self, chain: tuple[str, ...], function: Any, receiver: Any, depth: int) -> None:
        kind, name, *attributes = chain
        value = _root(kind, name, function, receiver)
        path = name
        for attribute in attributes:
            if value is _MISSING or _is_library(value):
                break
            getter = _property(type(value), attribute)
            if getter is not None:  # its code is read, not run
                value, path = types.MethodType(getter, value), f"{path}.{attribute}"
                break
            following = _attribute(value, attribute)
            if following is _MISSING:
                break
            value, path = following, f"{path}.{attribute}"
        if value is _MISSING:
            self.key.append("missing")
        elif _is_library(value):
            self.key.append(("id", id(value)))
            self.pinned.append(value)
        else:
            self.value(value, path, depth + 1)


_MISSING = object()


def _root(kind: str, name: str, function: Any, receiver: Any) -> Any:
    if kind == "self":
        return receiver if receiver is not None else _MISSING
    if kind == "free":
        names = function.__code__.co_freevars
        try:
            return function.__closure__[names.index(name)].cell_contents if name in names else _MISSING
        except ValueError:  # not assigned yet
            return _MISSING
    value = function.__globals__.get(name, _MISSING)
    return value if value is not _MISSING else _MISSING


@functools.lru_cache(4096)
def _property(cls: type, name: str) -> Any:
    """What a property of that name calls, if it is Python."""
    found = inspect.getattr_static(cls, name, None)
    getter = found.fget if isinstance(found, property) else getattr(found, "func", None)
    return getter if isinstance(getter, types.FunctionType) else None


def _attribute(value: Any, name: str) -> Any:
    if isinstance(value, Tensor):
        return _MISSING
    try:
        return getattr(value, name)
    except Exception:
        return _MISSING


def _is_library(value: Any) -> bool:
    """A module such as torch or math, whose functions don't change."""
    return isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in _LIBRARIES


_LIBRARIES = {"torch", "math", "operator", "functools", "itertools", "weft", "numpy", "einops", "typing", "dataclasses"}


def _is_pytorch(function: Any) -> bool:
    return (function.__module__ or "").split(".")[0] == "torch"


@functools.cache
def _is_installed(filename: str) -> bool:
    """Whether the code belongs to a library, whose globals are taken for constants."""
    return (
        filename.startswith(("<frozen", _STDLIB, _WEFT)) or "site-packages" in filename or "dist-packages" in filename
    )


_STDLIB = os.path.dirname(os.__file__)
_WEFT = os.path.dirname(__file__)

_loads_cache: weakref.WeakKeyDictionary[types.CodeType, tuple[tuple[str, ...], ...]] = weakref.WeakKeyDictionary()


def _loads(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """What the code loads from outside: ("free" | "global" | "self", name, attribute, ...), each once."""
    found = _loads_cache.get(code)
    if found is None:
        found = _loads_cache[code] = tuple(dict.fromkeys(_scan_code(code)))
    return found


def _scan_code(code: types.CodeType) -> list[tuple[str, ...]]:
    chains: list[list[str]] = []
    receiver = code.co_varnames[0] if code.co_argcount else None
    current: list[str] | None = None
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in ("LOAD_ATTR", "LOAD_METHOD") and current is not None:
            current.append(str(instruction.argval))
            continue
        current = None
        if name in ("LOAD_DEREF", "LOAD_CLASSDEREF") and instruction.argval in code.co_freevars:
            current = ["free", instruction.argval]
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            current = ["global", instruction.argval]
        elif name in ("LOAD_FAST", "LOAD_DEREF") and instruction.argval == receiver:
            current = ["self", instruction.argval]
        if current is not None:
            chains.append(current)
    found = [tuple(chain) for chain in chains]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a lambda or comprehension in it
            inner = [chain for chain in _scan_code(constant) if chain[0] != "self"]
            found += [chain for chain in inner if chain[0] == "global" or chain[1] in code.co_freevars]
            if receiver in constant.co_freevars:
                found += [("self", *chain[1:]) for chain in inner if chain[1] == receiver]
    return found
