"""Donated tensors: the caller of a program gives up their memory, and finds results in it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import trees
from weft._base.torch_private import pytree

#: Pairs of an input's number and the number of the result that takes its memory.
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
    """`call_` with the program's donations given."""
    if any(tensor.device.type == "weft" for tensor in inputs):
        return _call_pairs_on_device(program, inputs, pairs)
    taken = {source for source, _ in pairs}
    donated = [tensor for i, tensor in enumerate(inputs) if i in taken]
    others = [tensor for i, tensor in enumerate(inputs) if i not in taken]
    fresh = torch.ops.weft.call_(program, donated, others)
    of_result = {result: inputs[source] for source, result in pairs}
    rest = iter(fresh)
    return [of_result[i] if i in of_result else next(rest) for i in range(len(fresh) + len(pairs))]


def _call_pairs_on_device(program: str, inputs: Sequence[Tensor], pairs: Pairs) -> list[Tensor]:
    """`call_pairs` for tensors of the device, whose memory isn't their own to give up: a donated tensor gets the result
    as its new value."""
    taken = {source for source, _ in pairs}
    _C.check_donated("weft::call_", list(inputs), [i in taken for i in range(len(inputs))])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        raise RuntimeError(
            "weft::call_: has no derivative, but one of its inputs requires grad; call it under torch.no_grad()"
        )
    results = torch.ops.weft.call(program, inputs)
    for source, result in pairs:
        results[result] = inputs[source].copy_(results[result])
    return results


@dataclasses.dataclass
class Donated:
    """The donated positional arguments of one call. The first parts of the result are their new values, in the order of
    `which`; for a single donated argument the whole result is its new value."""

    which: Sequence[int]
    specs: list[pytree.TreeSpec]  #: of these arguments
    leaves: list[tuple[int, Any]]  #: leaves of these arguments, each with its number among the tensors of all arguments

    @classmethod
    def of(cls, which: Sequence[int], leaves: Sequence[Any], spec: pytree.TreeSpec) -> Donated:
        """Made for the arguments `which`, from the leaves and the structure of (args, kwargs)."""
        numbers = itertools.accumulate((isinstance(leaf, Tensor) for leaf in leaves), initial=0)
        numbered = list(zip(numbers, leaves, strict=False))
        arguments = spec.children()[0].children()
        ends = list(itertools.accumulate(argument.num_leaves for argument in arguments))
        chosen = [numbered[ends[i] - arguments[i].num_leaves : ends[i]] for i in which]
        return cls(which, [arguments[i] for i in which], list(itertools.chain(*chosen)))

    def pairs(self, results: Sequence[Any], spec: pytree.TreeSpec) -> Pairs:
        """Pairs of a donated tensor of the arguments and its new value in the result, both by number.

        Raises:
            TypeError: the result doesn't begin with the new values, or one has another shape or dtype than before.
        """
        begins = spec.type is tuple and spec.children()[: len(self.specs)] == self.specs
        if not begins and [spec] != self.specs:
            wanted = ", ".join(map(trees.structure, self.specs))
            raise TypeError(
                f"weft.jit: the function must return a tuple that begins with the new values of the donated arguments "
                f"{tuple(self.which)}, ({wanted}, ...), but returned {trees.structure(spec)}"
            )
        pairs: Pairs = []
        count = 0
        for (number, before), after in zip(self.leaves, results, strict=False):
            if isinstance(before, Tensor):
                if not isinstance(after, Tensor) or after.dtype != before.dtype or after.shape != before.shape:
                    raise TypeError(
                        f"weft.jit: the new value of a tensor in the donated arguments {tuple(self.which)} must be "
                        f"{trees.describe(before)}, as the old one is, but is {trees.describe(after)}"
                    )
                pairs.append((number, count))
            count += isinstance(after, Tensor)
        return pairs


def run_plainly(fn: Callable[..., Any], arguments: Sequence[Any], kwargs: Any, donate: Sequence[int]) -> Any:
    """A call that gives up the arguments `donate`, in plain PyTorch."""
    given, given_spec = trees.flatten((arguments, kwargs))
    leaves, spec = trees.flatten(fn(*arguments, **kwargs))
    pairs = Donated.of(donate, given, given_spec).pairs(leaves, spec)
    # Results may be views of the arguments that are written below.
    leaves = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    inputs = [leaf for leaf in given if isinstance(leaf, Tensor)]
    if not torch.compiler.is_dynamo_compiling():
        taken = {source for source, _ in pairs}
        _C.check_donated("weft.jit", inputs, [i in taken for i in range(len(inputs))])
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for source, number in pairs:
        leaves[places[number]] = inputs[source].copy_(leaves[places[number]])
    return pytree.tree_unflatten(leaves, spec)
