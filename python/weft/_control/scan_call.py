"""One call of `weft.scan`: as a program, or as a plain loop."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from weft import _C
from weft._base import notes, trees
from weft._base.torch_private import pytree
from weft._capture import modes, programs
from weft._capture.complex_numbers import Kind, as_pairs, kind_of, next_leaf
from weft._capture.runs import Function, Run, under_way
from weft._capture.traced import Traced
from weft._control.carries import checked_carry, tensors

Step = Callable[[Any, Any], tuple[Any, Any]]
C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")
SomeCall = TypeVar("SomeCall", bound="Call")


def run(call: Call) -> tuple[Any, Any]:
    """Runs as a program, or as a loop where there is no program or Weft is switched off."""
    if not _C.active():
        return call.loop()
    return programs.or_else(call.what, call.run, call.loop)


@dataclasses.dataclass
class Call:
    """The arguments of one call, flat and checked."""

    what: str
    step: Step
    carry: list[Tensor | None]
    xs: list[Tensor | None]  #: [T, ...]
    carry_spec: pytree.TreeSpec
    xs_spec: pytree.TreeSpec
    reverse: bool
    length: int
    dim: int  #: the time's dim, in the xs as they were given and in the ys
    body: str = "the step"  #: the step's name in messages
    user: Callable[..., Any] | None = None  #: the user's function, where the step calls it
    run_before: Run | None = None  #: the step's run, where it has been run for this call (_C.scan_again)

    has_pairs: ClassVar[bool] = True  #: whether its program takes and gives complex tensors, as pairs

    @classmethod
    def of(
        cls: type[SomeCall],
        what: str,
        step: Step,
        init: Any,
        xs: Any,
        length: int | None,
        reverse: bool,
        dim: int,
        *,
        body: str = "the step",
        user: Callable[..., Any] | None = None,
    ) -> SomeCall:
        if not callable(step):
            raise TypeError(f"{what}: step must be callable, but is {type(step).__name__}")
        if not isinstance(reverse, bool):
            raise TypeError(f"{what}: reverse must be True or False, but is {reverse!r}")
        carry, carry_spec = tensors(what, "init", init)
        leaves, xs_spec = tensors(what, "xs", xs)
        dim = front_dim(what, xs, leaves, dim)
        total = _length(what, xs, leaves, length, dim)
        if dim:
            leaves = [None if leaf is None else leaf.movedim(dim, 0) for leaf in leaves]
        return cls(what, step, carry, leaves, carry_spec, xs_spec, reverse, total, dim, body, user)

    # ---- as a loop

    def loop(self) -> tuple[Any, Any]:
        """The call as a loop in plain PyTorch. As in a program, the step may change its carry and its x in place."""
        carry = trees.unflatten([None if leaf is None else leaf.clone() for leaf in self.carry], self.carry_spec)
        xs = [
            None if leaf is None else leaf.clone() for leaf in self.xs
        ]  # as a whole: a step may see elements beside x
        steps: list[list[Any]] = []
        ys_spec = None
        for t in self.order():
            x = trees.unflatten([None if leaf is None else leaf[t] for leaf in xs], self.xs_spec)
            with notes.on_errors(f"step {t} of {self.length} of {self.what}", carry=carry, x=x):
                leaves, y, ys_spec = self.checked_step(carry, x)
            carry = trees.unflatten(leaves, self.carry_spec)
            steps.append(y)
        if self.reverse:
            steps.reverse()
        ys = [None if column[0] is None else torch.stack(column) for column in zip(*steps, strict=True)]
        assert ys_spec is not None
        return carry, self.placed(ys, ys_spec)

    def placed(self, ys: list[Tensor | None], spec: pytree.TreeSpec) -> Any:
        """The ys [T, ...] as the caller gets them, with the time at the dim that it has in the xs. As in PyTorch's
        scan, a y with too few dims for that has the time first."""
        if self.dim:
            ys = [y if y is None or y.dim() <= self.dim else y.movedim(0, self.dim) for y in ys]
        return trees.unflatten(ys, spec)

    def checked_step(
        self, carry: Any, x: Any, look: Callable[[Any], None] | None = None
    ) -> tuple[list[Any], list[Any], pytree.TreeSpec]:
        """The next carry's leaves, y's leaves and structure. `look` sees what the step returned first."""
        result = self.step(carry, x)
        if look is not None:
            look(result)
        if not isinstance(result, tuple | list) or len(result) != 2:
            kind = type(result).__name__
            count = f" of {len(result)}" if isinstance(result, tuple | list) else ""
            raise TypeError(f"{self.what}: {self.body} must return (carry, y), but returned a {kind}{count}")
        leaves = checked_carry(f"{self.what}: {self.body}", self.carry_spec, carry, result[0])
        ys, ys_spec = trees.flatten(result[1])
        if not trees.are_tensors(ys):
            names = trees.paths("y", result[1])
            ys = [trees.as_tensor(y, f"{self.what}: {name}") for name, y in zip(names, ys, strict=True)]
        return leaves, ys, ys_spec

    # ---- as a program

    def run(self) -> tuple[Any, Any]:
        carry = as_pairs([leaf for leaf in self.carry if leaf is not None])
        xs = as_pairs([leaf for leaf in self.xs if leaf is not None])
        found = self.find()
        if found.captured.noise:
            shapes: list[Any] = [t.shape for t in carry] + [t.shape[1:] for t in xs]
            xs = xs + programs.draw(found.captured.noise, shapes, carry + xs, self.order, self.length)
        results = iter(self._results(found.captured.program, carry, xs, found.inputs))
        ((ys_spec, kinds),) = found.extra
        last = [next_leaf(results, kind_of(leaf)) for leaf in self.carry]
        ys = [next_leaf(results, kind) for kind in kinds]
        placed = self.placed(ys, ys_spec)
        self._know(found, placed)
        return trees.unflatten(last, self.carry_spec), placed

    def _know(self, found: programs.Found, ys: Any) -> None:
        """Lets _C.scan_again find the program by itself from now on, where the call is of a usual kind."""
        (made,) = found.runs
        is_usual = type(self) is Call and self.user is None and not self.dim
        is_usual = is_usual and isinstance(made, Run) and not made.by_tensors
        captured = found.captured
        if is_usual and isinstance(captured.program, _C.Program) and not captured.noise:
            captured.scan = _C.known_scan(self.step, captured.program, captured.constants[0], ys)

    def find(self) -> programs.Found:
        key = (self.reverse, _count(self.carry), _count(self.xs))
        before = None if self.run_before is None else [self.run_before]
        return programs.find(self.what, key, [self.function()], lambda traces: self._compose_of(traces[0]), before)

    def function(self) -> Function:
        """The step as a function of the leaves of a carry and of one x."""
        carries = len(self.carry)

        def body(*leaves: Any) -> tuple[list[Tensor], Any]:
            carry = trees.unflatten(leaves[:carries], self.carry_spec)
            x = trees.unflatten(leaves[carries:], self.xs_spec)
            after, ys, ys_spec = self.checked_step(carry, x)
            return [leaf for leaf in (*after, *ys) if leaf is not None], (ys_spec, list(map(kind_of, ys)))

        first_dims = {carries + i: 1 for i in range(len(self.xs))}
        what = f"{self.what}: {self.body}"
        leaves = [*self.carry, *self.xs]
        has_pairs = self.has_pairs and not modes.is_tracing()
        return Function(
            body, leaves, None, what, (self.users,), has_pairs=has_pairs, first_dims=first_dims, carries=carries
        )

    @property
    def users(self) -> Callable[..., Any]:
        """The function that the user wrote."""
        return self.user or self.step

    def order(self) -> Sequence[int]:
        """The indices of the steps, in the order in which they run."""
        return range(self.length - 1, -1, -1) if self.reverse else range(self.length)

    def _results(self, program: Any, carry: list[Tensor], xs: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        xs = xs or [only_steps(self.length)]
        return torch.ops.weft.call(program.text, [*carry, *xs, *others])

    def _compose_of(self, traced: Traced) -> Any:
        return self._compose(traced.program, _count(self.carry), _count(self.xs) + len(traced.noise))

    def _compose(self, step: _C.Program, carries: int, xs: int) -> Any:
        """The program, or several programs, in the form that `_results` takes."""
        return _C.scan_program(step, carries, xs, self.reverse)


def _described(ys: Any) -> tuple[pytree.TreeSpec, list[Kind]]:
    """The ys' part of a Run's `extra`."""
    leaves, spec = trees.flatten(ys)
    return spec, list(map(kind_of, leaves))


_C.set_scans_python(under_way, Run, _described, torch.nn.Module, programs.table)


def only_steps(length: int) -> Tensor:
    """A stand-in for xs where there are none, [length, 0], of float32 on the CPU whatever PyTorch's defaults are."""
    return torch.empty(length, 0, dtype=torch.float32, device="cpu")


def front_dim(what: str, xs: Any, leaves: list[Tensor | None], dim: int) -> int:
    """`dim` counted from the front of the first x."""
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"{what}: dim must be an integer, but is {dim!r}")
    if dim == 0:
        for i, leaf in enumerate(leaves):
            if leaf is not None and leaf.dim() == 0:
                raise ValueError(
                    f"{what}: {trees.paths('xs', xs)[i]} has no dims, but every x needs a leading one, the time"
                )
        return 0
    given = [(i, leaf) for i, leaf in enumerate(leaves) if leaf is not None]
    if not given:
        raise ValueError(f"{what}: dim is {dim}, but there are no xs to have it")
    first = given[0][1].dim()
    counted = dim + first if dim < 0 else dim
    for i, leaf in given:
        if not 0 <= counted < leaf.dim():
            name = trees.paths("xs", xs)[i]
            raise ValueError(f"{what}: {name}: {trees.describe(leaf)} has no dim {dim}, which is the time's")
    return counted


def _length(what: str, xs: Any, leaves: list[Tensor | None], length: int | None, dim: int) -> int:
    if length is not None and (not isinstance(length, int | torch.SymInt) or isinstance(length, bool)):
        raise TypeError(f"{what}: length must be an integer, but is {type(length).__name__}")
    with modes.without_tracing() if modes.is_tracing() else contextlib.nullcontext():
        known = [leaf.shape[dim] for leaf in leaves if leaf is not None]  # in a trace the sizes would be tensors
    if length is None and not known:
        raise ValueError(f"{what}: there are no xs, so length must say how many steps to take")
    total = length if length is not None else known[0]
    if known.count(total) != len(known):
        for name, leaf in zip(trees.paths("xs", xs), leaves, strict=True):
            if leaf is not None and (size := leaf.shape[dim]) != total:
                against = "length is" if length is not None else "the first has"
                raise ValueError(f"{what}: {name}: {trees.describe(leaf)} has {size} steps, but {against} {total}")
    if isinstance(total, int) and total <= 0:
        raise ValueError(f"{what}: there must be at least one step, but the length is {total}")
    return total


def _count(leaves: list[Tensor | None]) -> int:
    return len([leaf for leaf in leaves if leaf is not None])
