"""A function to be recorded, and what a run of it did."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from weft import _C
from weft._base.torch_private import pytree

under_way = threading.local()  #: `run`: the Run that this thread is recording


@dataclasses.dataclass
class Function:
    """A function to be recorded, and what it is called with."""

    fn: Callable[..., Any]  #: of `arguments`; gives tensors, and what else is to be known of its result
    leaves: list[Any]  #: of the arguments: tensors, others as they are
    spec: pytree.TreeSpec | None  #: of the tuple of arguments; None: these are the leaves
    what: str
    users: tuple[Callable[..., Any], ...] = ()  #: the user's own functions in it
    dynamic: Callable[[int, Tensor], Sequence[int]] = lambda _, tensor: (0,)  #: dims that may be symbols
    #: dims that may be symbols where the function does the same for all their sizes
    more_dynamic: Callable[[int, Tensor], Sequence[int]] | None = None
    wider: Wider | None = None  #: what calls before had other sizes of
    has_gradient: bool = True  #: its program may be differentiated
    #: operations that stay whole, as do those of which the decomposition depends on sizes; ops then say which is theirs
    whole: frozenset[str] | None = None
    never_dynamic: frozenset[tuple[int, int]] = frozenset()  #: (tensor leaf, dim)s that say how much the function does
    #: from the shapes of the first tensor leaves to those of the last, which can't have others
    follow: Callable[[list[list[int]]], list[list[int]]] | None = None
    first_dims: dict[int, int] = dataclasses.field(default_factory=dict)  #: leaves of which only dims from there on are
    #: how many of the leaves are carries, whose next values its first results are; None: its arguments are tensors of
    #: the caller's own, not carries and slices
    carries: int | None = None


@dataclasses.dataclass
class Wider:
    """Sizes in which calls of a function differ."""

    widening: _C.Widening
    sizes: list[tuple[int, int, int]]  #: tensor leaf, dim, the size in a call before


@dataclasses.dataclass
class Run:
    """What a function did."""

    recording: _C.StepRecording
    extra: Any
    transformed: bool  #: whether transforms of torch.func are at work
    backwards: list[Backward]  #: of the torch.autograd.Functions that it called, and of hooks; until there is a program
    by_tensors: bool = False  #: whether it indexes by tensors that hold nothing (weft._capture.indexing)


def changed(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Which of the tensors the function that is under way has written to, by what its operations' schemas say."""
    return tuple(i for i, tensor in enumerate(tensors) if under_way.run.recording.is_changed(tensor))


@dataclasses.dataclass
class Backward:
    """What a torch.autograd.Function's backward, or a hook on a gradient, does, recorded beside the function."""

    what: str
    function: Callable[[list[Tensor]], Function]  #: of tensors like the inputs and the differentiable outputs
    run: Run


@dataclasses.dataclass
class Shown:
    """What a function is to see in the place of what it is called with."""

    sizes: list[list[int]]  #: of the tensors among its leaves
    number: Callable[[Any], Any]  #: for a leaf that is no tensor
    #: sizes of a stand-in for a tensor from outside, or None: itself; without the function, itself for each
    captured: Callable[[Tensor], Sequence[int] | None] | None
