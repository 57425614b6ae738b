"""Programs captured from functions, kept for as long as what the functions depend on stays the same."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _fork, _guards, _recorder, _trace, _trees
from weft._aten import UnsupportedError

Shape = Sequence[Any]


@dataclasses.dataclass
class Captured:
    """A program with all that is needed to call it again."""

    text: Any  #: its text; or several, as whoever captures it likes
    noise: list[_trace.Noise]
    sizes: list[list[int | str]]  #: of each argument and captured tensor, by dim: a number or a symbol's name
    tensors: list[Tensor]  #: the captured tensors of this call
    constants: int  #: how many of them, at the end, belong to the program itself
    extra: Any = None  #: what the caller wants to find again
    sources: list[int | Tensor] | None = None  #: where captured tensors are in the surroundings; None: some aren't
    pinned: list[Any] = dataclasses.field(default_factory=list)
    largest: int = 0  #: the largest size of a symbol for which the trace was borne out

    @classmethod
    def of(cls, text: Any, traces: Sequence[_trace.Traced], arguments: int, extra: Any = None) -> Captured:
        """Of functions of the same `arguments` (so many tensors), their captured tensors following each other."""
        noise = [noise for traced in traces for noise in traced.noise]
        sizes = traces[0].sizes[:arguments] + [size for traced in traces for size in traced.sizes[arguments:]]
        tensors = [tensor for traced in traces for tensor in traced.captured]
        return cls(text, noise, sizes, tensors, sum(traced.constants for traced in traces), extra)

    def find_sources(self, around: _guards.Surroundings) -> None:
        places = {id(tensor): i for i, tensor in enumerate(around.tensors)}
        own = {id(tensor) for tensor in self.tensors[len(self.tensors) - self.constants :]} if self.constants else set()
        sources = [t if id(t) in own else places.get(id(t)) for t in self.tensors]
        self.sources = None if any(source is None for source in sources) else sources  # type: ignore[assignment]
        self.pinned = around.pinned

    def captured_from(self, tensors: list[Tensor]) -> list[Tensor]:
        assert self.sources is not None
        return [tensors[source] if isinstance(source, int) else source for source in self.sources]

    def fits(self, shapes: Sequence[Shape]) -> bool:
        bound: dict[str, Any] = {}
        for shape, wanted in zip(shapes, self.sizes, strict=True):
            if len(shape) != len(wanted):
                return False
            for size, want in zip(shape, wanted, strict=True):
                if isinstance(want, str):
                    if isinstance(size, int) and size > self.largest:
                        return False  # a step may do something else from some size on (x[:100]): it is traced again
                    if size < 2 or not _same(bound.setdefault(want, size), size):
                        return False
                elif not _same(size, want):
                    return False
        return True


def _same(size: Any, other: Any) -> bool:
    """Whether two sizes are equal; those of an outer trace, whatever they will be."""
    if isinstance(size, torch.SymInt) or isinstance(other, torch.SymInt):
        return str(size) == str(other)
    return size == other


def find(
    what: str,
    functions: Sequence[Callable[..., Any]],
    key: Any,
    shapes: Sequence[Shape],
    capture: Callable[[], Captured],
) -> tuple[Captured, list[Tensor]]:
    """The program that `capture` makes of the functions, or made when they were called like this before, and the
    tensors that it reads from outside.

    `key`: what the program depends on besides the functions' surroundings, the shapes and the state of PyTorch.
    """
    around = _guards.surroundings(functions)
    full_key = (what, key, around.key, _state())
    for known in _cache.get(full_key):
        if isinstance(known.text, UnsupportedError):
            raise UnsupportedError(*known.text.args)
        captured = known.captured_from(around.tensors)
        if known.fits([*shapes, *(t.shape for t in captured)]):
            return known, captured
    try:
        fresh = capture()
    except _trace.MutatesCapturedError as error:
        raise _trace.MutatesCapturedError(_named(error, around)) from None
    except UnsupportedError as error:  # nor will it be the next time
        _cache.put(full_key, Captured(UnsupportedError(*error.args), [], [], [], 0, pinned=around.pinned))
        raise
    if _guards.surroundings(functions).key != around.key:
        raise _trace.SideEffectError(
            f"{what}: the step has a side effect: it changes a variable or an attribute that it reads from outside; "
            "keep what changes from step to step in the carry"
        )
    fresh.find_sources(around)
    fresh.largest = _largest([*shapes, *(t.shape for t in fresh.tensors)], fresh.sizes)
    tensors, fresh.tensors = fresh.tensors, []
    if fresh.sources is not None:
        _cache.put(full_key, fresh)
    else:
        _warn_of_unknown_tensors(what, around, tensors)
    return fresh, tensors


def _largest(shapes: Sequence[Shape], sizes: list[list[int | str]]) -> int:
    """The largest size that a trace of these shapes has looked at."""
    dims = [pair for shape, names in zip(shapes, sizes, strict=True) for pair in zip(shape, names, strict=True)]
    return max([_trace.LARGEST, *(n for n, name in dims if isinstance(name, str) and isinstance(n, int))])


def _warn_of_unknown_tensors(what: str, around: _guards.Surroundings, tensors: list[Tensor]) -> None:
    known = {id(tensor) for tensor in around.tensors}
    unknown = [_trees.describe(tensor) for tensor in tensors if id(tensor) not in known]
    warnings.warn(
        f"{what}: captures its function at each call, since it reads tensors that neither its closure nor what it "
        f"calls names: {', '.join(unknown[:3])}. Pass them as arguments, or keep them in variables, attributes, "
        "modules, lists or dicts",
        stacklevel=5,
    )


def draw(
    noise: Sequence[_trace.Noise],
    shapes: list[Shape],
    inputs: Sequence[Tensor],
    steps: Callable[[], Sequence[int]] | None,
    length: Any,
) -> list[Tensor]:
    """Random numbers, drawn in the order in which a plain loop over `steps()` draws them; without steps, once each."""
    if not noise:
        return []
    lead = [] if steps is None and length is None else [length]
    stacks = [torch.empty([*lead, *one.shape(shapes)], dtype=one.dtype) for one in noise]
    if not lead or _recorder.current() or not all(map(_recorder.is_plain, inputs)) or _is_traced():
        return [getattr(s, n.draw.method)(*n.draw.arguments) for s, n in zip(stacks, noise, strict=True)]
    for t in steps() if steps is not None else ():
        for stack, one in zip(stacks, noise, strict=True):
            getattr(stack[t], one.draw.method)(*one.draw.arguments)
    return stacks


def _state() -> tuple[Any, ...]:
    return (
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
    )


def _is_traced() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


def _named(error: _trace.MutatesCapturedError, around: _guards.Surroundings) -> str:
    for tensor, path in zip(around.tensors, around.paths, strict=True):
        if tensor is error.tensor:
            return f"{error}: {path}: {_trees.describe(tensor)}; keep what changes from step to step in the carry"
    return f"{error}; keep what changes from step to step in the carry"


class _Cache:
    """Captured programs by key, those of other sizes beside each other; the least recently used go."""

    _SIZES = 8

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.lock = threading.RLock()  # what a dropped key or program frees may come back here
        self._known: OrderedDict[Any, list[Captured]] = OrderedDict()

    def get(self, key: Any) -> list[Captured]:
        with self.lock:
            found = self._known.get(key)
            if found is None:
                return []
            self._known.move_to_end(key)
            return list(found)

    def put(self, key: Any, captured: Captured) -> None:
        with self.lock:
            same = self._known.setdefault(key, [])
            same.insert(0, captured)
            del same[self._SIZES :]
            self._known.move_to_end(key)
            while len(self._known) > self._limit:
                self._known.popitem(last=False)


_cache = _Cache(512)
_fork.hold_across_fork(_cache.lock, _fork.PROGRAMS)
