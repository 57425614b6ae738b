"""Nodes, each after what it reads, written as one program."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError, raise_if_internal
from weft._capture.aten_nodes import Types
from weft._capture.trace import trace
from weft._capture.traced import Traced
from weft._dynamo.rolling.direct import DIRECT
from weft._dynamo.rolling.stretches import OUT_OF_PLACE, is_view
from weft._dynamo.rolling.values import Draw, Values


class _Snippet:
    """What a node's function is: a program of its tensor arguments."""

    def __init__(self, traced: Traced) -> None:
        if traced.captured:
            raise UnsupportedError("a tensor from nowhere")
        self.text, self.noise = traced.program, traced.noise


class Known:
    """What was found out about the graph's functions and sizes."""

    def __init__(self) -> None:
        self.types = Types()
        self.snippets: dict[Any, _Snippet | None] = {}


class Writer(Values):
    """Writes nodes one by one."""

    def __init__(self, known: Known) -> None:
        super().__init__(known.types)
        self.snippets = known.snippets
        self.members: dict[fx.Node, None] = {}

    def add(self, node: fx.Node) -> None:
        example = node.meta.get("example_value")
        if isinstance(example, int | float | bool | torch.SymInt | torch.Size) or example is None:
            if example is None:
                raise UnsupportedError("a node without an example")
            return  # what it is, its readers see in its example
        direct = DIRECT.get(node.target if node.op == "call_function" else str(node.target))
        value = direct(self, node) if direct is not None else None
        self.values[node] = self._traced(node) if value is None else value
        self._check(node, example)
        self.members[node] = None

    def _check(self, node: fx.Node, example: Any) -> None:
        """PyTorch and the program must agree on what the value is."""
        values = self.values[node]
        examples = example if isinstance(example, list | tuple) else [example]
        values = values if isinstance(values, tuple) else (values,)
        if len(examples) != len(values):
            raise UnsupportedError("other results than the example")
        for each, value in zip(examples, values, strict=True):
            if str(self.type_of(each)) != str(self.region.type(value)):
                raise UnsupportedError(f"{self.region.type(value)}, but the graph says {self.type_of(each)}")

    # ---- any function

    def _traced(self, node: fx.Node) -> Any:
        if _takes_output(node):
            return self.value(node.args[0])[node.args[1]]
        sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("example_value"), Tensor)]
        values = [self.value(n) for n in sources]
        key = self._key(node, sources)
        if key not in self.snippets:
            self.snippets[key] = self._snippet(node, sources)
        snippet = self.snippets[key]
        if snippet is None:
            raise UnsupportedError("as before")
        shapes = [n.meta["example_value"].shape for n in sources]
        for noise in snippet.noise:
            shape = noise.shape(shapes)
            if not all(isinstance(size, int) for size in shape):
                raise UnsupportedError("random numbers of a symbolic shape")
            values.append(self.region.input(self.type(noise.dtype, shape)))
            self.inputs.append(Draw(noise, shape))
        try:
            results = self.region.inline_program(snippet.text, values)
        except RuntimeError as error:  # traced for sizes that happen to be those of now
            raise_if_internal(error)
            raise UnsupportedError(str(error)) from None
        is_one = isinstance(node.meta["example_value"], Tensor)
        return results[0] if is_one else tuple(results)

    def _key(self, node: fx.Node, sources: list[fx.Node]) -> Any:
        place = {n: i for i, n in enumerate(sources)}

        def key(argument: Any) -> Any:
            if isinstance(argument, fx.Node):
                if argument in place:
                    return ("tensor", place[argument])
                return ("number", str(argument.meta.get("example_value")))
            if isinstance(argument, list | tuple):
                return (type(argument).__name__, *map(key, argument))
            if isinstance(argument, slice):
                return ("slice", key(argument.start), key(argument.stop), key(argument.step))
            return (type(argument).__name__, repr(argument))

        types = tuple(str(self.region.type(self.values[n])) for n in sources)
        return node.op, node.target, key(node.args), tuple((k, key(v)) for k, v in node.kwargs.items()), types

    def _snippet(self, node: fx.Node, sources: list[fx.Node]) -> _Snippet | None:
        place = {n: i for i, n in enumerate(sources)}
        target = OUT_OF_PLACE.get(node.target, node.target) if node.op == "call_function" else node.target

        def run(*tensors: Tensor) -> Any:
            def given(n: fx.Node) -> Any:
                if n in place:
                    return tensors[place[n]]
                return _number(n.meta.get("example_value"), sources, tensors)

            args, kwargs = fx.map_arg((node.args, node.kwargs), given)
            if node.op == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            return target(*args, **kwargs)

        examples = [n.meta["example_value"] for n in sources]
        if any(_elements(example) > _MOST_ELEMENTS for example in examples):
            return None  # the function would be run on as many
        try:
            return _Snippet(trace(run, examples, what="a step", dynamic=lambda _, __: ()))
        except UnsupportedError:
            return None
        except Exception as error:  # what the tracer can't do, whatever it is, stays a node of the graph
            raise_if_internal(error)
            return None

    # ---- the program

    def outputs(self) -> list[fx.Node]:
        """Members that others read. Views of what is outside stay there too, and are read there."""
        outside: set[fx.Node] = set()
        outputs = []
        for node in self.members:
            if is_view(node) and all(n not in self.members or n in outside for n in node.all_input_nodes):
                outside.add(node)
            elif any(user not in self.members for user in node.users):
                outputs.append(node)
        if any(isinstance(self.values[node], tuple) for node in outputs):
            raise UnsupportedError("several results")
        return outputs

    def finish(self, outputs: list[fx.Node]) -> str:
        return self.region.finish([self.values[node] for node in outputs])


_MOST_ELEMENTS = 1 << 27


def _elements(tensor: Tensor) -> int:
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return math.prod(sizes)


def _takes_output(node: fx.Node) -> bool:
    """Whether it takes one of several results."""
    return (
        node.target is operator.getitem
        and isinstance(node.args[1], int)
        and isinstance(node.args[0].meta.get("example_value"), list | tuple)
    )


def _number(example: Any, sources: list[fx.Node], tensors: Sequence[Tensor]) -> Any:
    """A number of the graph; a symbolic one is a size of one of the tensors."""
    if not isinstance(example, torch.SymInt):
        if isinstance(example, Tensor) or example is None:
            raise UnsupportedError("a value of another kind")
        return example
    if example.node.expr.is_number:
        return int(example)
    for source, tensor in zip(sources, tensors, strict=True):
        for dim, size in enumerate(source.meta["example_value"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr == example.node.expr:
                return tensor.shape[dim]
    raise UnsupportedError(f"the number {example}")
