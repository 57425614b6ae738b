"""Donated tensors: a call's caller gives their memory up, and finds results in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C
from weft._base import trees

#: Which tensor among the inputs gives its memory to which tensor among the results.
Pairs = list[tuple[int, int]]


def call_(program: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """`weft.call` in place: a result that the program returns as `%p2 in %p` is stored in the memory of the input %p.

    Such an input, a donated one, is changed as by PyTorch's functions in place, and is itself the result. It must be
    contiguous and share memory with no other input. Other results are new tensors. There is no derivative. After an
    error that the run itself finds (an index out of range), donated inputs hold anything; other errors leave them as
    they were.

    Raises:
        RuntimeError: the text doesn't parse, an input doesn't fit it, a donated input shares memory with another one,
            or an input requires grad while grad mode is on.
    """
    return call_pairs(program, inputs, _C.donations(program))


def call_pairs(program: str, inputs: Sequence[Tensor], pairs: Pairs) -> list[Tensor]:
    """The same, of the program's donations."""
    taken = {source for source, _ in pairs}
    donated = [tensor for i, tensor in enumerate(inputs) if i in taken]
    others = [tensor for i, tensor in enumerate(inputs) if i not in taken]
    fresh = torch.ops.weft.call_(program, donated, others)
    of_result = {result: inputs[source] for source, result in pairs}
    rest = iter(fresh)
    return [of_result[i] if i in of_result else next(rest) for i in range(len(fresh) + len(pairs))]


def pairs_of(arguments: Sequence[Any], donate: Sequence[int], result: Any) -> Pairs:
    """Which tensor of the arguments is given up for which of the result: the new values of the arguments `donate` are
    the first parts of the result, or, of one argument, the whole of it.

    Raises:
        TypeError: the result has no such parts, or one of another structure, shape or dtype than its argument.
    """
    if not donate:
        return []
    old = [trees.flatten(argument) for argument in arguments]
    new = _parts(result, [old[which][1] for which in donate], donate)
    first = [0]  # tensor of each argument
    for leaves, _ in old:
        first.append(first[-1] + sum(isinstance(leaf, Tensor) for leaf in leaves))
    pairs: Pairs = []
    count = 0
    for which, leaves in zip(donate, new, strict=True):
        number = first[which]
        for before, after in zip(old[which][0], leaves, strict=True):
            if isinstance(before, Tensor):
                _check_alike(which, before, after)
                pairs.append((number, count))
            number += isinstance(before, Tensor)
            count += isinstance(after, Tensor)
    return pairs


def run_plainly(fn: Callable[..., Any], arguments: Sequence[Any], kwargs: Any, donate: Sequence[int]) -> Any:
    """What a call means whose arguments `donate` are given up, in plain PyTorch."""
    result = fn(*arguments, **kwargs)
    pairs = pairs_of(arguments, donate, result)
    leaves, spec = trees.flatten(result)
    # Results may be views of what is written now.
    leaves = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    inputs = [leaf for leaf in trees.flatten((arguments, kwargs))[0] if isinstance(leaf, Tensor)]
    if not torch.compiler.is_dynamo_compiling():
        taken = {source for source, _ in pairs}
        _C.check_donated("weft.jit", inputs, [i in taken for i in range(len(inputs))])
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for source, number in pairs:
        leaves[places[number]] = inputs[source].copy_(leaves[places[number]])
    return pytree.tree_unflatten(leaves, spec)


def _parts(result: Any, specs: list[pytree.TreeSpec], donate: Sequence[int]) -> list[list[Any]]:
    """The leaves of the new values, by argument."""
    if isinstance(result, tuple) and len(result) >= len(donate):
        parts = [trees.flatten(part) for part in result[: len(donate)]]
        if [spec for _, spec in parts] == specs:
            return [leaves for leaves, _ in parts]
    leaves, whole = trees.flatten(result)
    if [whole] == specs:
        return [leaves]
    wanted = ", ".join(trees.structure(spec) for spec in specs)
    raise TypeError(
        f"weft.jit: the function must return a tuple that begins with the new values of the donated arguments "
        f"{tuple(donate)}, ({wanted}, ...), but returned {trees.structure(whole)}"
    )


def _check_alike(which: int, before: Tensor, after: Any) -> None:
    if isinstance(after, Tensor) and after.dtype == before.dtype and after.shape == before.shape:
        return
    raise TypeError(
        f"weft.jit: the new value of the donated argument {which} must be {trees.describe(before)} as it is, but is "
        f"{trees.describe(after)}"
    )
