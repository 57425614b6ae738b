"""`weft.scan`: a recurrence from one step in plain PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _programs, _record, _trace, _trees
from weft._dynamo import without_dynamo

Step = Callable[[Any, Any], tuple[Any, Any]]


def scan(step: Step, init: Any, xs: Any = None, *, reverse: bool = False, length: int | None = None) -> tuple[Any, Any]:
    """Runs `carry, y = step(carry, x)` for each x of a sequence, as one compiled program.

    As jax.lax.scan: the plain meaning is

        carry, ys = init, []
        for t in range(T):               # from T - 1 down to 0 with reverse=True; ys[t] is then step t's y all the same
            carry, y = step(carry, xs[t])
            ys.append(y)
        return carry, torch.stack(ys)

    Args:
        step: from a carry and one x to the next carry and a y. It may use any tensor, module or number from outside;
            gradients reach parameters that it uses. It is run once at every call, on tensors that hold
            nothing: what it does then is what the program does for all steps.
        init: the first carry: tensors (or numbers) in any pytree, dataclasses and named tuples included. Each step
            must give back the same structure, shapes and dtypes.
        xs: tensors [T, ...] in any pytree; None, with `length`, if the step needs no x, which it then gets as None.
        reverse: go through xs from the last to the first.
        length: T; needed only without xs.

    Returns:
        The last carry, and the ys stacked: every leaf [T, ...].

    Random numbers that the step draws (dropout, torch.rand_like, ...) follow torch.manual_seed: in eager mode they are
    the very numbers that the loop above draws.

    What Weft can't compile runs as that loop, which `weft.stats()` counts and a warning tells once.

    Raises:
        ValueError: T is 0, xs have different lengths, there are neither xs nor a length; the carry changes its
            structure, shape or dtype in the step.
        TypeError: a leaf that is no tensor; a step that doesn't return a pair.
        RuntimeError: the step has a side effect (it keeps a tensor, changes a captured one in place), or lets Python
            decide by a tensor's value.
    """
    if torch.compiler.is_dynamo_compiling():
        from weft import _under_dynamo

        return _under_dynamo.scan(step, init, xs, reverse=reverse, length=length)
    with without_dynamo():
        return run(Call.of("weft.scan", step, init, xs, reverse, length))


def run(call: Call) -> tuple[Any, Any]:
    """As a program; as a loop where there is no such program, or Weft is switched off."""
    if not _C.active():
        return call.loop()
    return _programs.or_else(call.what, call.run, call.loop)


@dataclasses.dataclass
class Call:
    """One call: arguments flat and checked."""

    what: str
    step: Step
    carry: list[Tensor | None]
    xs: list[Tensor | None]
    carry_spec: pytree.TreeSpec
    xs_spec: pytree.TreeSpec
    reverse: bool
    length: int

    @classmethod
    def of(cls, what: str, step: Step, init: Any, xs: Any, reverse: bool, length: int | None) -> Self:
        if not callable(step):
            raise TypeError(f"{what}: step must be callable, but is {type(step).__name__}")
        if not isinstance(reverse, bool):
            raise TypeError(f"{what}: reverse must be True or False, but is {reverse!r}")
        carry, carry_spec = tensors(what, "init", init)
        leaves, xs_spec = tensors(what, "xs", xs)
        return cls(what, step, carry, leaves, carry_spec, xs_spec, reverse, _length(what, xs, leaves, length))

    # ---- as a loop

    def loop(self) -> tuple[Any, Any]:
        """What the call means, in plain PyTorch."""
        carry = pytree.tree_unflatten(self.carry, self.carry_spec)
        steps: list[list[Any]] = []
        ys_spec = None
        for t in self.order():
            x = pytree.tree_unflatten([None if leaf is None else leaf[t] for leaf in self.xs], self.xs_spec)
            leaves, y, ys_spec = self.checked_step(carry, x)
            carry = pytree.tree_unflatten(leaves, self.carry_spec)
            steps.append(y)
        if self.reverse:
            steps.reverse()
        ys = [None if column[0] is None else torch.stack(column) for column in zip(*steps, strict=True)]
        assert ys_spec is not None
        return carry, pytree.tree_unflatten(ys, ys_spec)

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
            raise TypeError(f"{self.what}: the step must return (carry, y), but returned a {kind}{count}")
        leaves = checked_carry(f"{self.what}: the step", self.carry_spec, carry, result[0])
        ys, ys_spec = _trees.flatten(result[1])
        if not all(isinstance(y, Tensor) for y in ys):
            names = _trees.paths("y", result[1])
            ys = [_trees.as_tensor(y, f"{self.what}: {name}") for name, y in zip(names, ys, strict=True)]
        return leaves, ys, ys_spec

    # ---- as a program

    def run(self) -> tuple[Any, Any]:
        carry = [leaf for leaf in self.carry if leaf is not None]
        xs = [leaf for leaf in self.xs if leaf is not None]
        found = self.find()
        shapes: list[Any] = [t.shape for t in carry] + [t.shape[1:] for t in xs]
        noise = _programs.draw(found.program.noise, shapes, carry + xs, self.order, self.length)
        results = iter(self._results(found.program.text, carry, [*xs, *noise], found.inputs))
        ((ys_spec, ys_none),) = found.extra
        last = [None if leaf is None else next(results) for leaf in self.carry]
        ys = [None if is_none else next(results) for is_none in ys_none]
        return pytree.tree_unflatten(last, self.carry_spec), pytree.tree_unflatten(ys, ys_spec)

    def find(self) -> _programs.Found:
        key = (self.reverse, _count(self.carry), _count(self.xs))
        return _programs.find(self.what, key, [self.function()], lambda traces: self._compose_of(traces[0]))

    def function(self) -> _record.Function:
        """The step, of the leaves of a carry and of one x."""
        carries = len(self.carry)

        def body(*leaves: Any) -> tuple[list[Tensor], Any]:
            carry = _trees.unflatten(leaves[:carries], self.carry_spec)
            x = _trees.unflatten(leaves[carries:], self.xs_spec)
            after, ys, ys_spec = self.checked_step(carry, x)
            return [leaf for leaf in (*after, *ys) if leaf is not None], (ys_spec, [y is None for y in ys])

        first_dims = {carries + i: 1 for i in range(len(self.xs))}
        what = f"{self.what}: the step"
        return _record.Function(body, [*self.carry, *self.xs], None, what, (self.step,), first_dims=first_dims)

    def order(self) -> Sequence[int]:
        """The steps, the first taken first."""
        return range(self.length - 1, -1, -1) if self.reverse else range(self.length)

    def _results(self, program: Any, carry: list[Tensor], xs: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        xs = xs or [torch.empty(self.length, 0)]
        return torch.ops.weft.call(program, [*carry, *xs, *others])

    def _compose_of(self, traced: _trace.Traced) -> Any:
        return self._compose(traced.program, _count(self.carry), _count(self.xs) + len(traced.noise))

    def _compose(self, step: str, carries: int, xs: int) -> Any:
        """The program, or what else `_results` is to find."""
        return _C.scan_program(step, carries, xs, self.reverse)


def checked_carry(what: str, spec: pytree.TreeSpec, before: Any, after: Any) -> list[Tensor | None]:
    """The leaves of the next carry, which must be like those before; under autocast they get their dtype back."""
    leaves, new_spec = _trees.flatten(after)
    if new_spec != spec:
        raise ValueError(
            f"{what} must return a carry of the structure that it got: "
            f"{_trees.structure(spec)} in, {_trees.structure(new_spec)} out"
        )
    given = _trees.flatten(before)[0]
    if _are_alike(given, leaves):
        return leaves
    pairs = list(zip(given, leaves, strict=True))
    names = _trees.paths("carry", after)
    return [_next(what, name, *pair) for name, pair in zip(names, pairs, strict=True)]


def _are_alike(before: list[Any], after: list[Any]) -> bool:
    """Whether all are tensors and carries as they must be."""
    if not torch.compiler.is_dynamo_compiling():
        return _C.are_alike(before, after)
    pairs = zip(before, after, strict=True)
    return all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype for a, b in pairs
    )


def _next(what: str, name: str, before: Tensor | None, after: Any) -> Tensor | None:
    after = _trees.as_tensor(after, f"{what}: {name}")
    if before is None and after is None:
        return None
    if before is not None and after is not None:
        if torch.is_autocast_enabled("cpu") and before.is_floating_point() and after.is_floating_point():
            after = after.to(before.dtype)
        if before.shape == after.shape and before.dtype == after.dtype:
            return after
    raise ValueError(
        f"{what} must keep the carry's shapes and dtypes: "
        f"{name}: {_trees.describe(before)} in, {_trees.describe(after)} out"
    )


def tensors(what: str, name: str, tree: Any) -> tuple[list[Tensor | None], pytree.TreeSpec]:
    leaves, spec = _trees.flatten(tree)
    if all(isinstance(leaf, Tensor) for leaf in leaves):
        return leaves, spec
    names = _trees.paths(name, tree)
    return [_trees.as_tensor(leaf, f"{what}: {path}") for path, leaf in zip(names, leaves, strict=True)], spec


def _length(what: str, xs: Any, leaves: list[Tensor | None], length: int | None) -> int:
    sizes = [None if leaf is None else (leaf.shape[0] if leaf.dim() else -1) for leaf in leaves]
    if length is not None and not isinstance(length, int | torch.SymInt):
        raise TypeError(f"{what}: length must be an integer, but is {type(length).__name__}")
    known = [size for size in sizes if size is not None]
    if any(size is not None and size == -1 for size in sizes):
        name = _trees.paths("xs", xs)[sizes.index(-1)]
        raise ValueError(f"{what}: {name} has no dims, but every x needs a leading one, the time")
    if length is None and not known:
        raise ValueError(f"{what}: there are no xs, so length must say how many steps to take")
    total = length if length is not None else known[0]
    if any(size != total for size in known):
        for name, leaf, size in zip(_trees.paths("xs", xs), leaves, sizes, strict=True):
            if size is not None and size != total:
                against = "length is" if length is not None else "the first has"
                raise ValueError(f"{what}: {name}: {_trees.describe(leaf)} has {size} steps, but {against} {total}")
    if isinstance(total, int) and total <= 0:
        raise ValueError(f"{what}: there must be at least one step, but the length is {total}")
    return total


def _count(leaves: list[Tensor | None]) -> int:
    return sum(leaf is not None for leaf in leaves)
