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
    """`data` with `move` of each tensor that `moves` in its place: in tuples, lists, sets and dicts and what is derived
    of them, in dataclasses, in PackedSequence, whose lengths stay on the CPU, and in any object's attributes. What has
    no tensor that moves is given back itself, other objects are copied. What stands in several places does so
    afterwards."""
    return with_others(data, lambda value: isinstance(value, Tensor) and moves(value), move)


def with_others(data: Any, selects: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """As `with_tensors`, for values of any kind: replaces each value that `selects` is true for by `change` of it.
    Doesn't look at the parts of such a value."""
    return _Exchange(selects, change).of(data)


def tensors_in(data: Any) -> Iterator[Tensor]:
    """The tensors in `data`, each once."""
    return values_in(data, lambda value: isinstance(value, Tensor))


def values_in(data: Any, selects: Callable[[Any], bool]) -> Iterator[Any]:
    """The values in `data` that `selects` is true for, each once. Doesn't look at the parts of such a value."""
    return _values_in(data, selects, set())


def _values_in(value: Any, selects: Callable[[Any], bool], seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if selects(value):
        yield value
        return
    if isinstance(value, DataWrapper):
        for each in value.get_tensors():
            yield from _values_in(each, selects, seen)
        return
    if isinstance(value, dict):
        parts: list[Any] = [part for item in value.items() for part in item]
    else:
        parts = list(value) if isinstance(value, (list, tuple, set, frozenset)) else []
    for each in (*parts, *(each for _, each in _attributes(value))):
        yield from _values_in(each, selects, seen)


class _Exchange:
    def __init__(self, selects: Callable[[Any], bool], change: Callable[[Any], Any]) -> None:
        self.selects, self.change = selects, change
        self.done: dict[int, Any] = {}  #: by the id of the object before
        self.kept: list[Any] = []  #: keeps objects alive, so that their ids stay unique

    def of(self, value: Any) -> Any:
        if id(value) in self.done:
            return self.done[id(value)]
        self.kept.append(value)
        if self.selects(value):
            found: Any = self._changed(value)
        elif isinstance(value, Tensor):
            found = value
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

    def _changed(self, value: Any) -> Any:
        changed = self.change(value)
        if isinstance(value, nn.Parameter) and type(changed) is Tensor:
            return nn.Parameter(changed.detach(), value.requires_grad)
        return changed

    def _mutable(self, value: Any) -> Any:
        """Copies the container before its items, since it may contain itself."""
        if next(values_in(value, self.selects), self) is self:
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
