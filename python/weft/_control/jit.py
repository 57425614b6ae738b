"""`weft.jit`: a whole function as one program."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from weft import _C
from weft._base import notes, trees
from weft._base.torch_private import pytree
from weft._capture import modes, programs
from weft._capture.complex_numbers import as_pairs, of_pairs
from weft._capture.runs import Function
from weft._capture.traced import Traced
from weft._control.donation import Donated, Pairs, call_pairs, run_plainly
from weft._control.eval_frame import without_dynamo

P = ParamSpec("P")
R = TypeVar("R")

Dims = Callable[[int, Tensor], Sequence[int]]  #: gives the dims of a tensor among the arguments that may be symbols


def jit(fn: Callable[P, R], *, donate: int | Sequence[int] = ()) -> Callable[P, R]:
    """`fn` as one program: its scans, what is before, between and behind them, compiled together. ::

        @weft.jit
        def loss(x, target):
            _, ys = weft.scan(step, h0, x)
            return ((ys @ w - target) ** 2).mean()

    Arguments and results are any pytrees; leaves that are no tensors are constants. `fn` is run once at every call, on
    tensors that hold nothing, and compiled anew where it did something else than before. Other sizes of a tensor's dims
    but the last (of four dims and more, of all) are the same program, and so are sizes that are sums and divisions of
    these: a cache that grows, a convolution's image. Another size of a last dim compiles once more. A loop in
    `fn` over the steps of a tensor becomes a scan, which is one program for all lengths. What `fn` may do is what a
    step of weft.scan may. It is differentiable like any function of PyTorch.

    `donate` names positional arguments whose memory the call may have for their new values, which `fn` returns first,
    in this order (of one argument alone, as its whole result). They are changed in place, nothing is allocated for
    them, and the result holds these same tensors::

        def sgd(params, grads):
            return [p - 0.1 * g for p, g in zip(params, grads)]

        with torch.no_grad():
            weft.jit(sgd, donate=0)(params, grads)

    A donated tensor must be contiguous and share memory with no other tensor that `fn` reads. There is no derivative
    then. After an error that the run itself finds (an index out of range), donated tensors hold anything.

    A function that can't be one program runs as it is, which `weft.stats()` counts and a warning tells once.

    Raises:
        TypeError: `fn` is not callable, `donate` names no positions; when called, if the results aren't the new values
            of donated arguments.
        RuntimeError: when called, if `fn` has a side effect or lets Python decide by a tensor's value; if a donated
            tensor shares memory with another, or one that is read requires grad while grad mode is on.
    """
    if not callable(fn):
        raise TypeError(f"weft.jit: takes a function, but got {type(fn).__name__}")
    given_up = tuple(donate) if isinstance(donate, Sequence) else (donate,)
    if len(set(given_up)) < len(given_up) or not all(type(i) is int and i >= 0 for i in given_up):
        raise TypeError(f"weft.jit: donate takes positions of arguments, each once, but got {donate!r}")

    loops = Loops()

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(i >= len(args) for i in given_up):
            raise TypeError(f"weft.jit: argument {max(given_up)} is donated, but there are {len(args)} positional ones")

        def plainly() -> R:
            if torch.compiler.is_dynamo_compiling():
                return run_plainly(fn, args, kwargs, given_up) if given_up else fn(*args, **kwargs)
            name = getattr(fn, "__qualname__", type(fn).__name__)
            with notes.on_errors(f"weft.jit of {name}", args=args, kwargs=kwargs or None):
                return run_plainly(fn, args, kwargs, given_up) if given_up else fn(*args, **kwargs)

        if torch.compiler.is_dynamo_compiling() or not _C.active():
            return plainly()
        with without_dynamo():
            return programs.or_else("weft.jit", lambda: _run(fn, args, kwargs, given_up, loops), plainly)

    return functools.update_wrapper(call, fn) if hasattr(fn, "__name__") else call


def _run(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], donate: tuple[int, ...], loops: Loops
) -> Any:
    call = capture("weft.jit", fn, args, kwargs, donate, loops, has_pairs=not donate and not modes.is_tracing())
    if call.pairs:
        return call.result(call_pairs(call.program.text, call.inputs, call.pairs))
    return call.result(torch.ops.weft.call(call.program.text, call.inputs))


#: Finds a scan with a carry in a program's text.
_CARRIES = re.compile(r"= scan [^\n]*carry\(%")


class Loops:
    """The sizes that are lengths of loops in a function's Python code. Tracing can't make a length a symbol, since
    another length means another number of operations; the pass `symbolic_lengths` makes it one."""

    def __init__(self) -> None:
        #: (tensor, dim)s of lengths, by the tensors' ranks
        self.lengths: dict[tuple[int, ...], set[tuple[int, int]]] = {}

    def without(self, ranks: tuple[int, ...], dims: Dims) -> Dims:
        """`dims` without lengths."""
        lengths = self.lengths.get(ranks, set())
        return lambda i, tensor: tuple(dim for dim in dims(i, tensor) if (i, dim) not in lengths)

    def rolled(self, ranks: tuple[int, ...], traced: Traced) -> _C.Program:
        """The program, with a scan for each loop whose steps the trace has one after the other. Operations that are
        alike but have no carry, such as the projections to queries, keys and values, are not taken for a loop."""
        rolled = _C.run_passes(traced.program, ["roll"])
        if rolled.count("scan") == traced.program.count("scan") or not _CARRIES.search(rolled.text):
            return traced.program
        sizes = enumerate(traced.sizes[: len(ranks)])
        numbers = {
            (i, dim) for i, shape in sizes for dim, size in enumerate(shape) if isinstance(size, int) and size > 1
        }
        self.lengths[ranks] = self.lengths.get(ranks, numbers) & numbers
        return _C.run_passes(rolled, ["symbolic_lengths"])


@dataclasses.dataclass(frozen=True)
class Capture:
    """A call of a function, as a call of a program."""

    program: _C.Program
    inputs: list[Tensor]  #: the arguments' tensors, random numbers, then tensors from outside
    pairs: Pairs  #: arguments that are given up, and the results in their memory
    constants: list[tuple[Any] | None]  #: by leaf of the function's result: a constant, or None for a tensor
    spec: pytree.TreeSpec  #: of the function's result
    are_complex: list[bool]  #: by tensor of the result

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The function's result, made of the program's results."""
        results = iter(tensors)
        if any(self.are_complex):
            each = zip(tensors, self.are_complex, strict=True)
            results = iter([of_pairs(tensor) if is_complex else tensor for tensor, is_complex in each])
        return pytree.tree_unflatten([next(results) if c is None else c[0] for c in self.constants], self.spec)


def capture(
    what: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    donate: tuple[int, ...] = (),
    loops: Loops | None = None,
    *,
    has_pairs: bool = False,
) -> Capture:
    """`fn(*args, **kwargs)` as a call of a program, which is looked up as weft.jit documents. Messages begin with
    `what`. `has_pairs`: the program may take and give complex tensors, as pairs.

    Raises the errors of programs.find.
    """
    leaves, spec = trees.flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    donated = Donated.of(donate, leaves, spec) if donate else None

    def flat(args: Any, kwargs: Any) -> tuple[list[Tensor], Any]:
        results, results_spec = trees.flatten(fn(*args, **kwargs))
        constants = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in results]
        try:
            pairs = donated.pairs(results, results_spec) if donated else []
        except TypeError:  # the pairs of these arguments, whose sizes differ while the function is traced
            pairs = Donated.of(donate, *trees.flatten((args, kwargs))).pairs(results, results_spec)
        found = [leaf for leaf in results if isinstance(leaf, Tensor)]
        return found, (results_spec, constants, pairs, [leaf.is_complex() for leaf in found])

    known, ranks = loops or Loops(), tuple(tensor.dim() for tensor in tensors)
    dims, more_dims = (known.without(ranks, each) for each in (_dynamic_dims, _more_dynamic_dims))

    def compose(traces: list[Traced]) -> _C.Program:
        program, pairs = known.rolled(ranks, traces[0]), traces[0].extra[2]
        return _C.donate(program, pairs) if pairs else program

    lengths = frozenset(known.lengths.get(ranks, ()))
    function = Function(
        flat, leaves, spec, f"{what}: the function", (fn,), dims, more_dims,
        never_dynamic=lengths, has_pairs=has_pairs,
    )  # fmt: skip
    found = programs.find("weft.jit", donate, [function], compose)
    shapes = [tensor.shape for tensor in tensors]
    noise = programs.draw(found.captured.noise, shapes, tensors, None, None)
    ((results_spec, constants, pairs, are_complex),) = found.extra
    inputs = [*as_pairs(tensors), *noise, *found.inputs]
    return Capture(found.captured.program, inputs, pairs, constants, results_spec, are_complex)


def _more_dynamic_dims(_: int, tensor: Tensor) -> tuple[int, ...]:
    """All dims but the last, since code for a fixed number of features is faster; all dims of images (batch, channels,
    height, ...)."""
    return tuple(range(tensor.dim() if tensor.dim() > 3 else max(tensor.dim() - 1, 1)))


def _dynamic_dims(_: int, tensor: Tensor) -> tuple[int, ...]:
    return (0, 1) if tensor.dim() >= 3 else (0,)
