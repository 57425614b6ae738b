"""Finds and replaces tensors within data of any kind: a loader's batches, the contents of a saved file."""

from __future__ import annotations

import copy
import dataclasses
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from weft._base.torch_private import pytree

#: Types that hold no tensors, or none that can be replaced, although they have attributes.
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, weakref.ref, torch.device, torch.dtype)


class DataWrapper:
    """Base of a program's classes that list their tensors themselves (`torch_xla.utils.utils.DataWrapper`)."""

    def get_tensors(self) -> list[Tensor]:
        """The tensors that may move."""
        raise NotImplementedError("The method is missing an implementation")

    def from_tensors(self, tensors: list[Tensor]) -> Any:
        """A copy of this object with these tensors in the place of those of `get_tensors()`."""
        raise NotImplementedError("The method is missing an implementation")


def with_tensors(data: Any, moves: Callable[[Tensor], bool], move: Callable[[Tensor], Tensor]) -> Any:
    """`data` with each tensor for which `moves` holds replaced by `move(tensor)`: in tuples, lists, sets, dicts and
    classes derived from them, in dataclasses, in PackedSequence, whose lengths stay on the CPU, and in any object's
    attributes. An object without such tensors is returned itself; others are copied. An object that occurs several
    times still does so in the copy."""
    return _Exchange(moves, move).of(data)


def tensors_in(data: Any) -> Iterator[Tensor]:
    """The tensors in it, each once."""
    return _tensors_in(data, set())


def _tensors_in(value: Any, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
        return
    if isinstance(value, DataWrapper):
        for each in value.get_tensors():
            yield from _tensors_in(each, seen)
        return
    if isinstance(value, dict):
        parts: list[Any] = [*value.keys(), *value.values()]
    else:
        parts = list(value) if isinstance(value, (list, tuple, set, frozenset)) else []
    for each in (*parts, *(each for _, each in _attributes(value))):
        yield from _tensors_in(each, seen)


class _Exchange:
    def __init__(self, moves: Callable[[Tensor], bool], move: Callable[[Tensor], Tensor]) -> None:
        self.moves, self.move = moves, move
        self.done: dict[int, Any] = {}  #: by the id of the object before
        self.kept: list[Any] = []  #: keeps objects alive, so that their ids stay unique

    def of(self, value: Any) -> Any:
        if id(value) in self.done:
            return self.done[id(value)]
        self.kept.append(value)
        if isinstance(value, Tensor):
            found: Any = self._tensor(value)
        elif isinstance(value, PackedSequence):
            found = PackedSequence(self.of(value.data), value.batch_sizes, *map(self.of, value[2:]))
        elif isinstance(value, DataWrapper):
            found = value.from_tensors([self.of(each) for each in value.get_tensors()])
        elif isinstance(value, (tuple, set, frozenset)):
            found = _rebuilt(value, [self.of(each) for each in value])
        else:
            return self._mutable(value)
        self.done[id(value)] = found
        return found

    def _tensor(self, tensor: Tensor) -> Tensor:
        if not self.moves(tensor):
            return tensor
        moved = self.move(tensor)
        if isinstance(tensor, nn.Parameter) and type(moved) is Tensor:
            return nn.Parameter(moved.detach(), tensor.requires_grad)
        return moved

    def _mutable(self, value: Any) -> Any:
        """Copies the container before its items, since it may contain itself."""
        if not any(map(self.moves, tensors_in(value))):
            self.done[id(value)] = value
            return value
        made = self.done[id(value)] = copy.copy(value)
        if isinstance(value, list):
            made[:] = [self.of(each) for each in value]
        elif isinstance(value, dict):
            made.clear()
            made.update({self.of(key): self.of(each) for key, each in value.items()})
        for name, each in _attributes(value):
            object.__setattr__(made, name, self.of(each))
        return made


def _rebuilt(value: Any, items: list[Any]) -> Any:
    if all(one is other for one, other in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if pytree.is_namedtuple(value) else type(value)(items)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _OPAQUE):
        return
    names = dict.fromkeys(vars(value)) if hasattr(value, "__dict__") else {}
    if dataclasses.is_dataclass(value):  # a dataclass may have slots
        names |= dict.fromkeys(field.name for field in dataclasses.fields(value))
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
