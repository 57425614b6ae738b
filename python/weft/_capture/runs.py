"""Functions to be recorded, and the results of their runs."""

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
    """A function to be recorded, with its arguments."""

    fn: Callable[..., Any]  #: called with `arguments`; returns tensors, and what else is to be known of its result
    leaves: list[Any]  #: the arguments' leaves: tensors, and other values as they are
    spec: pytree.TreeSpec | None  #: the structure of the tuple of arguments; None: the leaves are the arguments
    what: str
    users: tuple[Callable[..., Any], ...] = ()  #: the user's own functions that `fn` calls
    dynamic: Callable[[int, Tensor], Sequence[int]] = lambda _, tensor: (0,)  #: dims that may be symbols
    #: dims that may be symbols where the function does the same for all their sizes
    more_dynamic: Callable[[int, Tensor], Sequence[int]] | None = None
    wider: Wider | None = None  #: sizes in which calls before differed
    has_gradient: bool = True  #: its program may be differentiated
    samples: Sequence[tuple[int, int]] = ()  #: numbers for its one symbol to try beside the usual ones
    #: whether a template that was found for all sizes holds beyond the runs that it was found in
    proof: Callable[[_C.Template], bool] | None = None
    #: operations that stay whole, and operations that stay whole if their decomposition depends on sizes; each op of
    #: the program then has a note with its operation
    whole: tuple[frozenset[str], frozenset[str]] | None = None
    #: (tensor leaf, dim)s whose size decides how many operations the function has
    never_dynamic: frozenset[tuple[int, int]] = frozenset()
    #: computes the shapes of the last tensor leaves, which depend on them, from those of the first
    follow: Callable[[list[list[int]]], list[list[int]]] | None = None
    #: whether complex arguments and results are given to the program, and come from it, as pairs (complex_numbers.py)
    has_pairs: bool = False
    #: whether the program runs without PyTorch: whatever its price, what could be left to PyTorch is made of other ops
    is_alone: bool = False
    #: whether its program has the operations whose results nobody reads, too: without them, the last step of a loop in
    #: Python that updates its state behind the output isn't like the others
    keeps_unread: bool = False
    #: by leaf: the first dim that the function sees
    first_dims: dict[int, int] = dataclasses.field(default_factory=dict)
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
    """The result of a function's run."""

    recording: _C.StepRecording
    extra: Any
    transformed: bool  #: whether transforms of torch.func are active
    backwards: list[Backward]  #: those of its torch.autograd.Functions and of hooks; kept until there is a program
    by_tensors: bool = False  #: whether it indexes by tensors that hold nothing (weft._capture.indexing)


def changed(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The indices of the tensors that the function under way has written to, by the schemas of its operations."""
    return tuple(i for i, tensor in enumerate(tensors) if under_way.run.recording.is_changed(tensor))


@dataclasses.dataclass
class Backward:
    """The backward of a torch.autograd.Function, or a hook on a gradient, recorded beside the function."""

    what: str
    function: Callable[[list[Tensor]], Function]  #: takes tensors like the inputs and the differentiable outputs
    run: Run


@dataclasses.dataclass
class Shown:
    """The arguments that a function is called with in the place of its own."""

    sizes: list[list[int]]  #: of the tensors among its leaves
    number: Callable[[Any], Any]  #: replaces a leaf that is no tensor
    #: The sizes of a stand-in for a tensor from outside, or None where the tensor itself is shown. If this is None,
    #: every tensor is.
    captured: Callable[[Tensor], Sequence[int] | None] | None
