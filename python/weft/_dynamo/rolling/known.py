"""The effects of the nodes of Dynamo's graph. Each kind of node is recorded once. The schemas of its operations say
which tensors it writes to, which random numbers it draws and what its results are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError, raise_if_internal
from weft._capture import runs
from weft._capture.fx_nodes import Types, example_of
from weft._capture.trace import trace
from weft._capture.traced import Noise
from weft._dynamo.rolling import functions
from weft._dynamo.rolling.direct import is_direct
from weft._dynamo.rolling.memory import Memory
from weft._dynamo.rolling.nodes import (
    Source,
    attribute_of,
    is_grad_mode,
    is_number,
    is_of_transform,
    is_users,
    key_of,
    name_of,
    sources_of,
    takes_output,
)

_MOST_ELEMENTS = 1 << 27  #: the largest tensor that a function is run on


@dataclasses.dataclass(frozen=True)
class Kind:
    """The common effect of all nodes that call one function in one way."""

    program: Any = None  #: from the node's tensors to its results, then the new values of the tensors that it writes to
    noise: tuple[Noise, ...] = ()  #: further inputs of the program
    writes: tuple[int, ...] = ()  #: the indices of the tensors that it writes to
    refusal: str = ""  #: why there is no program


class Known:
    """What is known about the graph's functions and sizes."""

    def __init__(self, graph: fx.Graph) -> None:
        self.types = Types(halves=True, pairs=True)
        self.memory = Memory(graph)
        self.without_grad = _without_grad(graph)
        self.kinds: dict[Any, Kind] = {}
        self.by_node: dict[fx.Node, Kind] = {}
        self.refused: dict[fx.Node, str] = {}  #: nodes that are part of no program, and why

    def kind(self, node: fx.Node) -> Kind:
        if node not in self.by_node:
            self.by_node[node] = self._kind(node)
        return self.by_node[node]

    def _kind(self, node: fx.Node) -> Kind:
        if is_users(node):
            return Kind(refusal=f"{name_of(node)} is a function of your own that Dynamo doesn't look into")
        sources = sources_of(node)
        try:
            key = key_of(node, sources), node in self.without_grad
        except UnsupportedError as error:
            return Kind(refusal=str(error))
        if key not in self.kinds:
            self.kinds[key] = _recorded(node, sources, node not in self.without_grad)
        return self.kinds[key]

    def refusal(self, node: fx.Node) -> str:
        """Why the node can't be part of a program in any context; empty if it can."""
        if is_of_transform(node):
            return "it is within torch.vmap or another of torch.func's transforms"
        if _only_computes(node) or is_grad_mode(node):
            return ""
        return self.kind(node).refusal

    def may_draw(self, node: fx.Node) -> bool:
        """Whether it may draw random numbers."""
        return not _only_computes(node) and (bool(self.refusal(node)) or bool(self.kind(node).noise))

    def may_write(self, node: fx.Node) -> bool:
        """Whether the node may change a tensor, or have any other effect than its result."""
        return not _only_computes(node) and (bool(self.refusal(node)) or bool(self.kind(node).writes))

    def program(self, key: Any, make: Callable[[], Kind]) -> Kind:
        """The kind that `make` returns, for something other than one node's function."""
        if key not in self.kinds:
            self.kinds[key] = make()
        return self.kinds[key]


def _only_computes(node: fx.Node) -> bool:
    """Whether the node certainly does nothing but compute, without a recording."""
    return is_number(node) or takes_output(node) or is_direct(node)


def _without_grad(graph: fx.Graph) -> set[fx.Node]:
    """The nodes within which the graph has switched autograd off."""
    found, is_off = set(), False
    for node in graph.nodes:
        if is_grad_mode(node):
            is_off = not node.args[0]
        elif is_off:
            found.add(node)
    return found


# ---- functions


def call(node: fx.Node, value: Callable[[fx.Node], Any]) -> Any:
    """Calls the node's function, with value(node) for each node that it reads."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), value)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    target = functions.apply if functions.is_function(node.target) else node.target
    return target(*args, **kwargs)


def on_tensors(node: fx.Node, sources: Sequence[Source], tensors: Sequence[Tensor]) -> Any:
    """Calls the node's function, with tensors in the place of its sources."""
    shown: dict[fx.Node, Any] = {}
    for source, tensor in zip(sources, tensors, strict=True):
        if source.index is None:
            shown[source.node] = tensor
        else:
            shown.setdefault(source.node, []).append(tensor)

    def value(each: fx.Node) -> Any:
        if each in shown:
            return shown[each]
        return attribute_of(each) if each.op == "get_attr" else _number(example_of(each), sources, tensors)

    return call(node, value)


def _number(example: Any, sources: Sequence[Source], tensors: Sequence[Tensor]) -> Any:
    """A number of the graph; a symbolic number is the size of one of the tensors."""
    if not isinstance(example, torch.SymInt):
        if isinstance(example, list | tuple) and not isinstance(example, torch.Size):
            return type(example)(_number(each, sources, tensors) for each in example)
        if isinstance(example, Tensor) or example is None:
            raise UnsupportedError("a value that is neither a tensor nor a number")
        return example
    if example.node.expr.is_number:
        return int(example)
    for source, tensor in zip(sources, tensors, strict=True):
        for dim, size in enumerate(source.example.shape):
            if isinstance(size, torch.SymInt) and size.node.expr == example.node.expr:
                return tensor.shape[dim]
    raise UnsupportedError(f"the number {example}, which is no size of a tensor that the loop reads")


def program_of(run: Callable[..., Any], examples: Sequence[Tensor]) -> Kind:
    """The program of a function that writes to no argument."""
    if any(_elements(example) > _MOST_ELEMENTS for example in examples):
        # the function would run on as many
        return Kind(refusal="it reads a tensor of more than 2^27 elements")
    try:
        traced = trace(run, examples, what="it", dynamic=lambda _, __: (), has_pairs=True)
    except UnsupportedError as error:
        return Kind(refusal=str(error))
    except Exception as error:  # anything that the tracer can't do stays a node of the graph
        raise_if_internal(error)
        return Kind(refusal=(str(error).splitlines() or [type(error).__name__])[0])
    if traced.captured:
        return Kind(refusal="it reads a tensor that the graph doesn't show, as torch.fft reads tables")
    return Kind(traced.program, tuple(traced.noise))


def _recorded(node: fx.Node, sources: Sequence[Source], with_grad: bool) -> Kind:
    """Records the function. If it writes to arguments, it is recorded again with copies of these, which become
    results."""
    examples = [source.example for source in sources]
    writes: tuple[int, ...] = ()

    def results(found: Any, tensors: Sequence[Tensor]) -> Any:
        return *tensors_of(found), *(tensors[i] for i in writes)

    def run(*tensors: Tensor) -> Any:
        nonlocal writes
        # copies of all: a change that autograd doesn't see would be refused if the tensors were visible to it
        if not with_grad:
            tensors = tuple(tensor.detach().clone() for tensor in tensors)
            with torch.no_grad():
                found = on_tensors(node, sources, tensors)
            writes = runs.changed(tensors)
            return results(found, tensors)
        tensors = tuple(tensor.clone() if i in writes else tensor for i, tensor in enumerate(tensors))
        found = on_tensors(node, sources, tensors)
        if writes:
            return results(found, tensors)
        writes = runs.changed(tensors)
        if writes:
            raise UnsupportedError("it writes to an argument")
        return found if found is not None else ()

    kind = program_of(run, examples)
    if writes and with_grad:
        kind = program_of(run, examples)
    if writes:
        kind = dataclasses.replace(kind, writes=writes)
    elif not kind.refusal and (example_of(node) is None or name_of(node).endswith("_") != name_of(node).endswith("__")):
        # The node is there for the sake of something that no operation shows.
        return Kind(refusal=f"{name_of(node)} does something other than computing")
    return kind


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors among a node's results."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, Tensor):
            yield each


def is_complex(node: fx.Node) -> bool:
    """Whether a tensor that the node reads or makes is complex."""
    return any(tensor.is_complex() for each in (node, *node.all_input_nodes) for tensor in tensors_of(example_of(each)))


def _elements(tensor: Tensor) -> int:
    return math.prod(size for size in tensor.shape if isinstance(size, int))
