"""Python loops that Dynamo has unrolled become scans again, before AOTAutograd differentiates them.

Which nodes repeat is seen on the graph; they are written as one program, node by node, and the pass `roll` decides
whether there is a loop in it (src/passes/roll.h). If there is, a call of the program takes the nodes' place. What a
node is in the IR comes from tracing its function once for all nodes of its kind, so that a long loop costs little more
than a short one.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from weft import _C, _regions, _trace
from weft._aten import DTYPES, UnsupportedError
from weft._roll_direct import DIRECT
from weft._roll_stretches import OUT_OF_PLACE, is_view, repetitive, stretches

_CALL = torch.ops.weft.call.default


def roll(graph: fx.Graph) -> int:
    """Replaces unrolled loops by calls of programs with scans; returns how many scans there are."""
    scans, known = 0, _Known()
    for stretch in stretches(graph):
        scans += _roll_stretch(graph, stretch, known)
    if scans:
        graph.lint()
    return scans


# ---- one stretch


def _roll_stretch(graph: fx.Graph, stretch: list[fx.Node], known: _Known) -> int:
    writer = _Writer(known)
    for index, node in enumerate(stretch):
        try:
            writer.add(node)
        except UnsupportedError:
            parts = (stretch[:index], stretch[index + 1 :])
            return sum(_roll_stretch(graph, part, known) for nodes in parts for part in repetitive(nodes))
    outputs = writer.outputs()
    if not outputs:
        return 0
    before = writer.finish(outputs)
    after = _C.run_passes(before, ["roll"])
    scans = _count_scans(after) - _count_scans(before)
    if scans > 0:
        _replace(graph, writer, outputs, after)
    return max(scans, 0)


def _count_scans(text: str) -> int:
    return len(re.findall(r"= scan ", text))


def _replace(graph: fx.Graph, writer: _Writer, outputs: list[fx.Node], text: str) -> None:
    last = max(writer.members)
    after: list[fx.Node] = []  # what reads the stretch's values before its last node is: sizes
    moved = set(outputs)
    node = min(writer.members)
    while node is not last:
        node = node.next
        if node not in writer.members and any(n in moved for n in node.all_input_nodes):
            after.append(node)
            moved.add(node)
    with graph.inserting_after(last):
        call = graph.call_function(_CALL, (text, []))
    with graph.inserting_before(call):
        call.args = (text, [_draw(graph, n) if isinstance(n, _Noise) else n for n in writer.inputs])
    at = call
    for index, node in enumerate(outputs):
        with graph.inserting_after(at):
            at = graph.call_function(operator.getitem, (call, index))
        at.meta = dict(node.meta)
        node.replace_all_uses_with(at, delete_user_cb=lambda user: user not in writer.members)
    for node in after:
        at.append(node)
        at = node
    for node in reversed(writer.members):
        if not node.users:
            graph.erase_node(node)


class _Noise:
    """Random numbers that a node draws: inputs of the program."""

    def __init__(self, noise: _trace.Noise, shape: list[int]) -> None:
        self.noise, self.shape = noise, shape


def _draw(graph: fx.Graph, noise: _Noise) -> fx.Node:
    empty = graph.call_function(torch.empty, (noise.shape,), {"dtype": noise.noise.dtype, "device": "cpu"})
    return graph.call_method(noise.noise.method, (empty, *noise.noise.arguments))


# ---- nodes as a program


class _Snippet:
    """What a node's function is: a program of its tensor arguments."""

    def __init__(self, traced: _trace.Traced) -> None:
        if traced.captured:
            raise UnsupportedError("a tensor from nowhere")
        self.text, self.noise, self.spec = traced.program, traced.noise, traced.extra


class _Known:
    """What was found out about the graph's functions and sizes."""

    def __init__(self) -> None:
        self.types = _regions._Types()
        self.snippets: dict[Any, _Snippet | None] = {}


class _Writer:
    """Writes nodes, each after what it reads, as one program."""

    def __init__(self, known: _Known) -> None:
        self.region, self.types, self.snippets = _C.Region(), known.types, known.snippets
        self.values: dict[fx.Node, Any] = {}  #: a value, or several in a tuple
        self.members: dict[fx.Node, None] = {}
        self.inputs: list[fx.Node | _Noise] = []

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

    def type_of(self, tensor: Any) -> _C.Type:
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UnsupportedError("not a dense CPU tensor")
        if not isinstance(tensor, FakeTensor) and type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise UnsupportedError(f"a {type(tensor).__name__}")
        return self.type(tensor.dtype, tensor.shape)

    def type(self, dtype: torch.dtype, sizes: Sequence[Any]) -> _C.Type:
        if dtype not in DTYPES:
            raise UnsupportedError(f"{dtype}")
        return _C.Type(DTYPES[dtype], [self.types._size(size) for size in sizes])

    def value(self, node: fx.Node) -> Any:
        if node not in self.values:
            type_ = self.type_of(node.meta.get("example_value"))
            self.values[node] = self.region.input(type_)
            self.inputs.append(node)
        return self.values[node]

    def aten(self, name: str, arguments: list[Any], type_: _C.Type) -> Any:
        try:
            return self.region.aten(name, arguments, type_)
        except RuntimeError as error:
            _regions._raise_if_internal(error)
            raise UnsupportedError(str(error)) from None

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
            self.inputs.append(_Noise(noise, shape))
        try:
            results = self.region.inline_program(snippet.text, values)
        except RuntimeError as error:  # traced for sizes that happen to be those of now
            _regions._raise_if_internal(error)
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
            return _Snippet(_trace.trace(run, examples, what="a step", dynamic=lambda _, __: ()))
        except UnsupportedError:
            return None
        except Exception as error:  # what the tracer can't do, whatever it is, stays a node of the graph
            _regions._raise_if_internal(error)
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
