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
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from weft import _C, _regions, _trace
from weft._aten import DTYPES, UnsupportedError

_CALL = torch.ops.weft.call.default
_FEWEST = 3  #: steps of a loop


def roll(graph: fx.Graph) -> int:
    """Replaces unrolled loops by calls of programs with scans; returns how many scans there are."""
    scans, known = 0, _Known()
    for stretch in _stretches(graph):
        scans += _roll_stretch(graph, stretch, known)
    if scans:
        graph.lint()
    return scans


# ---- where loops may be


def _stretches(graph: fx.Graph) -> list[list[fx.Node]]:
    """Runs of nodes without side effects in which something repeats."""
    found, nodes, in_autocast = [], [], 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node.op == "output" or in_autocast or _has_effect(node):
            in_autocast += {"_enter_autocast": 1, "_exit_autocast": -1}.get(_name(node), 0)
            found += _repetitive(nodes)
            nodes = []
        else:
            nodes.append(node)
    return found


#: What stands for a change in place of a tensor that nothing else reads.
_OUT_OF_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
_EFFECTS = {
    operator.setitem, operator.delitem, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
    operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul, operator.iconcat,
}  # fmt: skip


def _has_effect(node: fx.Node) -> bool:
    """Whether the node may do more than compute its value."""
    if node.op not in ("call_function", "call_method"):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if node.op == "call_function" and not _is_of_pytorch(node.target):
        return True
    if node.target in _OUT_OF_PLACE:
        return not _changes_own(node)
    if node.target in _EFFECTS or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True:
        return True
    name = _name(node)
    return (name.endswith("_") and not name.endswith("__")) or name.startswith(("_set_grad", "_enter_", "_exit_"))


def _is_of_pytorch(function: Any) -> bool:
    """What else Dynamo leaves in a graph is the user's, and runs once a step."""
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "_operator", "math", "") or isinstance(
        function, torch._ops.OpOverloadPacket
    )


def _changes_own(node: fx.Node) -> bool:
    """Whether `a += b` may as well be `a = a + b`: a is a new tensor, which nothing else reads from here on."""
    own = node.args[0]
    if not isinstance(own, fx.Node) or own.op not in ("call_function", "call_method") or _is_view(own):
        return False
    return all(user is node or (user < node and not _is_view(user)) for user in own.users)


_VIEW_NAMES = {
    "getitem", "unbind", "chunk", "split", "tensor_split", "select", "narrow", "view", "view_as", "reshape", "flatten",
    "unflatten", "transpose", "permute", "t", "movedim", "swapaxes", "unsqueeze", "squeeze", "expand", "expand_as",
    "contiguous", "detach", "to", "float", "type_as", "getattr", "dropout",
}  # fmt: skip


def _name(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[-1]
    return getattr(node.target, "__name__", "")


def _is_view(node: fx.Node) -> bool:
    """Whether the value may share memory with another node's."""
    return _name(node) in _VIEW_NAMES


def _repetitive(nodes: list[fx.Node]) -> list[list[fx.Node]]:
    """The part of the nodes, if any, from the first to the last that does what others do with the same values, with
    what is around it and does what others do."""
    kinds, anchors = _kinds(nodes)
    if not anchors:
        return []
    first, last = anchors[0], anchors[-1]
    counts = Counter(kinds)
    while first > 0 and counts[kinds[first - 1]] >= _FEWEST:
        first -= 1
    while last + 1 < len(nodes) and (counts[kinds[last + 1]] >= _FEWEST or _collects(nodes[last + 1])):
        last += 1
    stretch = nodes[first : last + 1]
    inside = set(stretch)
    for node in nodes[last + 1 :]:
        if _may_draw(node):
            break  # random numbers keep their order
        if _collects(node) and all(n in inside or (n < node and n < nodes[last]) for n in node.all_input_nodes):
            stretch.append(node)
            inside.add(node)
    for node in list(stretch):  # results of one node go together
        if isinstance(node.meta.get("example_value"), list | tuple):
            stretch += [user for user in node.users if user not in inside]
    return [stretch]


def _collects(node: fx.Node) -> bool:
    """Whether it joins values, as torch.stack does the steps' results."""
    return any(isinstance(argument, list | tuple) and len(argument) >= _FEWEST for argument in node.args[:1]) and _name(
        node
    ) in ("stack", "cat", "concat", "concatenate", "hstack", "vstack", "dstack")


_DRAWS = re.compile("drop|rand|bernoulli|normal|multinomial|poisson|exponential|gumbel|uniform")


def _may_draw(node: fx.Node) -> bool:
    """Whether it may draw random numbers."""
    if isinstance(node.target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in node.target.tags
    return _DRAWS.search(_name(node)) is not None


def _kinds(nodes: list[fx.Node]) -> tuple[list[Any], list[int]]:
    """What each node does, whatever with; and which nodes do with the same values what others do with them too."""
    shapes = [_shape_of(node) for node in nodes]
    uses = Counter(
        (shape, i, source)
        for node, shape in zip(nodes, shapes, strict=True)
        for i, source in enumerate(node.all_input_nodes)
    )
    anchors = [
        index
        for index, (node, shape) in enumerate(zip(nodes, shapes, strict=True))
        if _is_anchor(node, [uses[shape, i, source] >= _FEWEST for i, source in enumerate(node.all_input_nodes)])
    ]
    return shapes, anchors


def _is_anchor(node: fx.Node, is_shared: list[bool]) -> bool:
    """Whether it reads something that others of its kind read too, and otherwise what was computed: not the same
    tensor with weights of its own, as several heads do."""
    rest = [source for source, shared in zip(node.all_input_nodes, is_shared, strict=True) if not shared]
    return any(is_shared) and all(source.op not in ("placeholder", "get_attr") for source in rest)


def _shape_of(node: fx.Node) -> Any:
    """The node's function and the structure of its arguments."""

    def shape(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return "value"
        if isinstance(argument, list | tuple):
            return tuple(shape(item) for item in argument) if len(argument) < 8 else len(argument)
        if isinstance(argument, bool) or argument is None or isinstance(argument, str):
            return argument
        return type(argument).__name__

    return (node.op, node.target, shape(node.args), tuple((k, shape(v)) for k, v in node.kwargs.items()))


# ---- one stretch


def _roll_stretch(graph: fx.Graph, stretch: list[fx.Node], known: _Known) -> int:
    writer = _Writer(known)
    for index, node in enumerate(stretch):
        try:
            writer.add(node)
        except UnsupportedError:
            parts = (stretch[:index], stretch[index + 1 :])
            return sum(_roll_stretch(graph, part, known) for nodes in parts for part in _repetitive(nodes))
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
    return graph.call_method(noise.noise.draw.method, (empty, *noise.noise.draw.arguments))


# ---- nodes as a program


class _Snippet:
    """What a node's function is: a program of its tensor arguments."""

    def __init__(self, traced: _trace.Traced) -> None:
        if traced.captured:
            raise UnsupportedError("a tensor from nowhere")
        self.text, self.noise, self.spec = traced.program, traced.noise, traced.outputs


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
        direct = _DIRECT.get(node.target if node.op == "call_function" else str(node.target))
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
        target = _OUT_OF_PLACE.get(node.target, node.target) if node.op == "call_function" else node.target

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
            if _is_view(node) and all(n not in self.members or n in outside for n in node.all_input_nodes):
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


# ---- functions that differ from step to step in a number: not traced each time


def _getitem(writer: _Writer, node: fx.Node) -> Any:
    """x[t], x[:, t], x[2:5] and the like."""
    source, index = node.args
    tensor = source.meta.get("example_value")
    if not isinstance(tensor, Tensor):
        return None
    index = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is Ellipsis or type(item) is int or _is_range(item) for item in index):
        return None
    return _indexed(writer, source, list(index))


def _is_range(item: Any) -> bool:
    return (
        isinstance(item, slice)
        and item.step in (None, 1)
        and all(bound is None or type(bound) is int for bound in (item.start, item.stop))
    )


def _indexed(writer: _Writer, source: fx.Node, index: list[Any]) -> Any:
    value, tensor = writer.value(source), source.meta["example_value"]
    sizes = list(tensor.shape)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        taken = sum(item is not None and item is not Ellipsis for item in index)
        index[at : at + 1] = [slice(None)] * (len(sizes) - taken)
    dim = 0
    for item in index:
        if item is None:
            sizes.insert(dim, 1)
            value = writer.aten("aten.unsqueeze.default", [value, dim], writer.type(tensor.dtype, sizes))
            dim += 1
        elif type(item) is int:
            del sizes[dim]
            value = writer.aten("aten.select.int", [value, dim, item], writer.type(tensor.dtype, sizes))
        else:
            if item.start is not None or item.stop is not None:
                if not isinstance(sizes[dim], int):
                    raise UnsupportedError("a range of a symbolic size")
                full = sizes[dim]
                start, stop, _ = item.indices(full)
                sizes[dim] = max(stop - start, 0)
                if sizes[dim] != full:
                    arguments = [value, dim, start, max(stop, start), 1]
                    value = writer.aten("aten.slice.Tensor", arguments, writer.type(tensor.dtype, sizes))
            dim += 1
    return value


def _select(writer: _Writer, node: fx.Node) -> Any:
    arguments = [*node.args, *node.kwargs.values()]
    if list(node.kwargs) not in ([], ["index"], ["dim", "index"]) or len(arguments) != 3:
        return None
    source, dim, index = arguments
    if type(dim) is not int or type(index) is not int:
        return None
    rank = source.meta["example_value"].dim()
    return _indexed(writer, source, [slice(None)] * (dim % rank) + [index])


def _slice(writer: _Writer, node: fx.Node) -> Any:
    """aten.slice.Tensor(x, dim, start, end)"""
    source, *bounds = node.args
    bounds += [0, None, None, 1][len(bounds) :]
    dim, start, end, step = bounds
    if node.kwargs or step != 1 or any(type(each) not in (int, type(None)) for each in bounds):
        return None
    rank = source.meta["example_value"].dim()
    return _indexed(writer, source, [slice(None)] * (dim % rank) + [slice(start, end)])


def _arithmetic(name: str) -> Callable[[_Writer, fx.Node], Any]:
    """A floating tensor and a number."""

    def write(writer: _Writer, node: fx.Node) -> Any:
        if node.kwargs or len(node.args) != 2:
            return None
        numbers = [argument for argument in node.args if type(argument) in (int, float)]
        tensors = [argument for argument in node.args if isinstance(argument, fx.Node)]
        if len(numbers) != 1 or len(tensors) != 1:
            return None
        tensor = tensors[0].meta.get("example_value")
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_floating_point:
            return None
        arguments, type_ = [writer.value(tensors[0]), *numbers], writer.type_of(tensor)
        if node.args[1] is tensors[0]:
            arguments = [writer.aten("aten.full_like.default", arguments, type_), arguments[0]]
        return writer.aten(f"aten.{name}.Tensor", arguments + ([1] if name in ("add", "sub") else []), type_)

    return write


def _embedding(writer: _Writer, node: fx.Node) -> Any:
    """Not run on a table that may be large."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    if given.get("padding_idx") is not None or given.get("max_norm") is not None:
        return None  # a row gets no gradient; the table changes
    if given.get("scale_grad_by_freq") or given.get("sparse"):
        return None
    table, index = writer.value(given["weight"]), writer.value(given["input"])
    type_ = writer.type_of(node.meta["example_value"])
    return writer.aten("aten.embedding.default", [table, index, -1, False, False], type_)


_DIRECT: dict[Any, Callable[[_Writer, fx.Node], Any]] = {
    operator.getitem: _getitem,
    torch.nn.functional.embedding: _embedding,
    torch.select: _select,
    torch.ops.aten.select.int: _select,
    torch.ops.aten.slice.Tensor: _slice,
    "select": _select,
    operator.add: _arithmetic("add"),
    operator.sub: _arithmetic("sub"),
    operator.mul: _arithmetic("mul"),
    operator.truediv: _arithmetic("div"),
    torch.add: _arithmetic("add"),
    torch.sub: _arithmetic("sub"),
    torch.mul: _arithmetic("mul"),
    torch.div: _arithmetic("div"),
}
