"""`weft.scan`: a recurrence from one step in plain PyTorch."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _guards, _recorder, _trace, _trees
from weft._aten import UnsupportedError

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
            gradients reach parameters that it uses. It is run on small tensors when it is first met, and again when
            something that it depends on has changed; then the program runs without it.
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
    call = _Call.of("weft.scan", step, init, xs, reverse, length)
    if not _C.active():
        return call.loop()
    try:
        return call.run()
    except UnsupportedError as error:
        _C.report_fallback("weft.scan", str(error))
        return call.loop()


@dataclasses.dataclass
class _Call:
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
    def of(cls, what: str, step: Step, init: Any, xs: Any, reverse: bool, length: int | None) -> _Call:
        if not callable(step):
            raise TypeError(f"{what}: step must be callable, but is {type(step).__name__}")
        if not isinstance(reverse, bool):
            raise TypeError(f"{what}: reverse must be True or False, but is {reverse!r}")
        carry, carry_spec = _tensors(what, "init", init)
        leaves, xs_spec = _tensors(what, "xs", xs)
        return cls(what, step, carry, leaves, carry_spec, xs_spec, reverse, _length(what, xs, leaves, length))

    # ---- as a loop

    def loop(self) -> tuple[Any, Any]:
        """What the call means, in plain PyTorch."""
        carry = pytree.tree_unflatten(self.carry, self.carry_spec)
        steps: list[list[Any]] = []
        ys_spec = None
        for t in reversed(range(self.length)) if self.reverse else range(self.length):
            x = pytree.tree_unflatten([None if leaf is None else leaf[t] for leaf in self.xs], self.xs_spec)
            leaves, y, ys_spec = self.checked_step(carry, x)
            carry = pytree.tree_unflatten(leaves, self.carry_spec)
            steps.append(y)
        if self.reverse:
            steps.reverse()
        ys = [None if column[0] is None else torch.stack(column) for column in zip(*steps, strict=True)]
        assert ys_spec is not None
        return carry, pytree.tree_unflatten(ys, ys_spec)

    def checked_step(self, carry: Any, x: Any) -> tuple[list[Any], list[Any], pytree.TreeSpec]:
        """The next carry's leaves, y's leaves and structure."""
        result = self.step(carry, x)
        if not isinstance(result, tuple | list) or len(result) != 2:
            kind = type(result).__name__
            count = f" of {len(result)}" if isinstance(result, tuple | list) else ""
            raise TypeError(f"{self.what}: the step must return (carry, y), but returned a {kind}{count}")
        leaves, spec = _trees.flatten(result[0])
        if spec != self.carry_spec:
            raise ValueError(
                f"{self.what}: the step must return a carry of the structure that it got: "
                f"{_trees.structure(self.carry_spec)} in, {_trees.structure(spec)} out"
            )
        before = _trees.flatten(carry)[0]
        names = _trees.paths("carry", result[0])
        leaves = [self._next(*leaf) for leaf in zip(names, before, leaves, strict=True)]
        ys, ys_spec = _trees.flatten(result[1])
        ys = [
            _trees.as_tensor(y, f"{self.what}: {name}")
            for name, y in zip(_trees.paths("y", result[1]), ys, strict=True)
        ]
        return leaves, ys, ys_spec

    def _next(self, name: str, before: Tensor | None, after: Any) -> Tensor | None:
        if (before is None) != (after is None):
            raise ValueError(f"{self.what}: {name}: {_trees.describe(before)} in, {_trees.describe(after)} out")
        if before is None:
            return None
        after = _trees.as_tensor(after, f"{self.what}: {name}")
        assert after is not None
        if torch.is_autocast_enabled("cpu") and before.is_floating_point() and after.is_floating_point():
            after = after.to(before.dtype)
        if before.shape != after.shape or before.dtype != after.dtype:
            raise ValueError(
                f"{self.what}: a carry must keep its shape and dtype: "
                f"{name}: {_trees.describe(before)} in, {_trees.describe(after)} out"
            )
        return after

    # ---- as a program

    def run(self) -> tuple[Any, Any]:
        entry, captured = self._find()
        carry = [leaf for leaf in self.carry if leaf is not None]
        xs = [leaf for leaf in self.xs if leaf is not None]
        noise = self._draw(entry.noise, [list(t.shape) for t in carry] + [list(t.shape[1:]) for t in xs], carry + xs)
        stacks = [*xs, *noise] or [torch.empty(self.length, 0)]
        results = iter(torch.ops.weft.call(entry.program, [*carry, *stacks, *captured]))
        last = [None if leaf is None else next(results) for leaf in self.carry]
        ys = [None if is_none else next(results) for is_none in entry.ys_none]
        return pytree.tree_unflatten(last, self.carry_spec), pytree.tree_unflatten(ys, entry.ys_spec)

    def _draw(self, noise: Sequence[_trace.Noise], shapes: list[list[Any]], inputs: list[Tensor]) -> list[Tensor]:
        """Random numbers for all steps: the loop's own, in its order, where they can be drawn one by one."""
        if not noise:
            return []
        stacks = [torch.empty([self.length, *draw.shape(shapes)], dtype=draw.dtype) for draw in noise]
        if _recorder.current() or not all(_recorder.is_plain(t) for t in inputs) or _is_traced():
            return [getattr(s, n.draw.method)(*n.draw.arguments) for s, n in zip(stacks, noise, strict=True)]
        for t in reversed(range(self.length)) if self.reverse else range(self.length):
            for stack, draw in zip(stacks, noise, strict=True):
                getattr(stack[t], draw.draw.method)(*draw.draw.arguments)
        return stacks

    def _find(self) -> tuple[_Entry, list[Tensor]]:
        """The program for this step and these inputs, captured now unless it is known; and the tensors that it reads
        from outside."""
        around = _guards.surroundings(self.step)
        key = (self._key(), around.key)
        sizes = [tuple(leaf.shape) for leaf in self.carry if leaf is not None]
        sizes += [tuple(leaf.shape[1:]) for leaf in self.xs if leaf is not None]
        for entry in _cache.get(key):
            captured = entry.captured_from(around.tensors)
            if entry.fits(sizes + [tuple(t.shape) for t in captured]):
                return entry, captured
        entry, captured = self._capture(around)
        if entry.sources is not None:
            _cache.put(key, entry)
        return entry, captured

    def _key(self) -> tuple[Any, ...]:
        return (
            self.carry_spec,
            self.xs_spec,
            tuple(None if leaf is None else (leaf.dtype, leaf.dim()) for leaf in (*self.carry, *self.xs)),
            self.reverse,
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
            torch.get_default_dtype(),
        )

    def _capture(self, around: _guards.Surroundings) -> tuple[_Entry, list[Tensor]]:
        ys_none: list[bool] = []
        ys_spec = None

        def body(carry: Any, x: Any) -> list[Tensor]:
            nonlocal ys_none, ys_spec
            leaves, ys, ys_spec = self.checked_step(carry, x)
            ys_none = [y is None for y in ys]
            return [leaf for leaf in (*leaves, *ys) if leaf is not None]

        at = -1 if self.reverse else 0
        examples = [None if leaf is None else _slice(leaf, at) for leaf in self.xs]
        arguments = (
            pytree.tree_unflatten(self.carry, self.carry_spec),
            pytree.tree_unflatten(examples, self.xs_spec),
        )
        try:
            traced = _trace.trace(body, arguments, what=f"{self.what}: the step")
        except _trace.MutatesCapturedError as error:
            raise _trace.MutatesCapturedError(_name(error, around)) from None
        if _guards.surroundings(self.step).key != around.key:
            raise _trace.SideEffectError(
                f"{self.what}: the step has a side effect: it changes a variable or an attribute that it reads from "
                "outside; keep what changes from step to step in the carry"
            )
        carries, xs = _count(self.carry), _count(self.xs) + len(traced.noise)
        program = _C.scan_program(traced.program, carries, xs, self.reverse)
        assert ys_spec is not None
        entry = _Entry.of(traced, program, ys_spec, ys_none, around, _shapes(arguments))
        return entry, traced.captured


@dataclasses.dataclass
class _Entry:
    """A captured step."""

    program: str
    noise: list[_trace.Noise]
    ys_spec: pytree.TreeSpec
    ys_none: list[bool]
    sizes: list[tuple[Any, ...]]  #: of each input, by dim: a number, or a symbol's name
    sources: list[int | Tensor] | None  #: where captured tensors are in the surroundings; None: some aren't there
    pinned: list[Any]

    @classmethod
    def of(
        cls,
        traced: _trace.Traced,
        program: str,
        ys_spec: pytree.TreeSpec,
        ys_none: list[bool],
        around: _guards.Surroundings,
        shapes: list[tuple[Any, ...]],
    ) -> _Entry:
        places = {id(tensor): i for i, tensor in enumerate(around.tensors)}
        sources: list[int | Tensor] | None = [
            t if i >= len(traced.captured) - traced.constants else places.get(id(t), -1)
            for i, t in enumerate(traced.captured)
        ]
        if any(isinstance(source, int) and source < 0 for source in sources or []):
            sources = None
        sizes = [tuple(traced.sizes[i][d] for d in range(len(shape))) for i, shape in enumerate(shapes)]
        sizes += [tuple(size) for size in traced.sizes[len(shapes) :]]
        return cls(program, traced.noise, ys_spec, ys_none, sizes, sources, around.pinned)

    def captured_from(self, tensors: list[Tensor]) -> list[Tensor]:
        assert self.sources is not None
        return [tensors[source] if isinstance(source, int) else source for source in self.sources]

    def fits(self, shapes: list[tuple[Any, ...]]) -> bool:
        bound: dict[str, Any] = {}
        for shape, wanted in zip(shapes, self.sizes, strict=True):
            if len(shape) != len(wanted):
                return False
            for size, want in zip(shape, wanted, strict=True):
                if isinstance(want, str):
                    if size < 2 or bound.setdefault(want, size) != size:
                        return False
                elif size != want:
                    return False
        return True


class _Cache:
    """Captured steps, the latest few hundred."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Any, list[_Entry]] = OrderedDict()

    def get(self, key: Any) -> list[_Entry]:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return []
            self._entries.move_to_end(key)
            return list(found)

    def put(self, key: Any, entry: _Entry) -> None:
        with self._lock:
            self._entries.setdefault(key, []).insert(0, entry)
            del self._entries[key][8:]
            self._entries.move_to_end(key)
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)


_cache = _Cache(512)


def _tensors(what: str, name: str, tree: Any) -> tuple[list[Tensor | None], pytree.TreeSpec]:
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
    for name, leaf, size in zip(_trees.paths("xs", xs), leaves, sizes, strict=True) if known else ():
        if size is not None and size != total:
            against = "length is" if length is not None else "the first has"
            raise ValueError(f"{what}: {name}: {_trees.describe(leaf)} has {size} steps, but {against} {total}")
    if isinstance(total, int) and total <= 0:
        raise ValueError(f"{what}: there must be at least one step, but the length is {total}")
    return total


def _count(leaves: list[Tensor | None]) -> int:
    return sum(leaf is not None for leaf in leaves)


def _shapes(arguments: Any) -> list[tuple[Any, ...]]:
    return [tuple(leaf.shape) for leaf in pytree.tree_leaves(arguments) if leaf is not None]


def _slice(leaf: Tensor, at: int) -> Tensor:
    """One x, to be looked at; nobody's graph or record has it."""
    if not _recorder.is_plain(leaf):
        return leaf[at]
    with _recorder.alone():
        return leaf.detach()[at]


def _is_traced() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


def _name(error: _trace.MutatesCapturedError, around: _guards.Surroundings) -> str:
    for tensor, path in zip(around.tensors, around.paths, strict=True):
        if tensor is error.tensor:
            return f"{error}: {path}: {_trees.describe(tensor)}; keep what changes from step to step in the carry"
    return f"{error}; keep what changes from step to step in the carry"
