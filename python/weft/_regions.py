"""Regions of an ATen graph that join the programs of `weft.call` next to them.

A region is a set of nodes that can run as one call: no path leaves it and comes back. Views have no place of their own:
inside a region they become part of the program, outside they stay what they are, and a view that both need is in both.
What an op means in the IR is decided in C++ (pytorch/capture); here is only which nodes go together.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils import _pytree as pytree

from weft import _C, _step_functions, _trace
from weft._aten import DTYPES, UnsupportedError

_CALL = torch.ops.weft.call.default
_aten = torch.ops.aten

_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default}
_PERMUTES = {_aten.t.default, _aten.transpose.int, _aten.permute.default}
_VIEWS = _PERMUTES | {
    _aten.view.default,
    _aten.unsqueeze.default,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.expand.default,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.detach.default,
    _aten.alias.default,
}
# Expressible, but ATen was measured to be faster at them, or they would only be copied: they join no region.
_LEFT_TO_ATEN = {
    _aten.amax.default,
    _aten.clone.default,
    _aten.flip.default,
    _aten.lift_fresh_copy.default,
    _aten.mean.default,
    _aten.sum.default,
    _aten._softmax.default,
    _aten._log_softmax.default,
}

# Regions leave these to ATen, which rounds after each op where a region would after several.
_HALVES = (torch.float16, torch.bfloat16)


class _Types:
    """IR types of a region's values. Symbols are renamed in order of appearance, so that equal regions print alike."""

    def __init__(self) -> None:
        self.names: dict[sympy.Symbol, str] = {}

    def of(self, node: fx.Node) -> _C.Type:
        return self.of_tensor(node.meta.get("val"))

    def of_tensor(self, value: object) -> _C.Type:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
            raise UnsupportedError("not a dense CPU tensor")
        if value.dtype not in DTYPES or value.dtype in _HALVES:
            raise UnsupportedError(f"{value.dtype}")
        return _C.Type(DTYPES[value.dtype], [self._size(size) for size in value.shape])

    def _size(self, size: int | torch.SymInt) -> tuple[int, list[str]]:
        if isinstance(size, int):
            return size, []
        factor, names = 1, []
        for base, power in size.node.expr.as_powers_dict().items():
            if base.is_Integer and power == 1:
                factor *= int(base)
            elif base.is_Symbol and power.is_Integer and power > 0:
                names += [self.names.setdefault(base, f"N{len(self.names)}")] * int(power)
            else:
                raise UnsupportedError(f"the size {size}")
        return factor, names


def _argument(argument: object, values: dict[fx.Node, _C.Value]) -> object:
    """An argument of a node as capture::Argument."""
    if isinstance(argument, fx.Node):
        return values.get(argument, _C.Unknown())
    if argument is None or isinstance(argument, bool | int | float | str):
        return argument
    if isinstance(argument, list | tuple):
        items = [_argument(item, values) for item in argument]
        if all(type(item) is int for item in items) or all(
            item is None or isinstance(item, _C.Value) for item in items
        ):
            return items
    return _C.Unknown()


def _arguments(node: fx.Node) -> list[object]:
    """All arguments in the schema's order, defaults filled in."""
    filled = []
    for i, parameter in enumerate(node.target._schema.arguments):
        if i < len(node.args):
            filled.append(node.args[i])
        else:
            filled.append(node.kwargs.get(parameter.name, parameter.default_value))
    return filled


def _tensor_inputs(node: fx.Node) -> list[fx.Node]:
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is _CALL


def _is_output(node: fx.Node) -> bool:
    """Whether the node takes an output of a weft.call; it goes where its call goes."""
    return node.op == "call_function" and node.target is operator.getitem and _is_call(node.args[0])


def _expressible(node: fx.Node) -> bool:
    """Whether the IR has it: asked by importing the node alone."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    value = node.meta.get("val")
    if node.target.namespace != "aten" or not isinstance(value, torch.Tensor) or torch.is_complex(value):
        return False
    if node.target not in _VIEWS and not value.is_contiguous():
        return False  # a program's outputs are
    types, region = _Types(), _C.Region()
    try:
        values = {n: region.input(types.of(n)) for n in _tensor_inputs(node)}
        _import(region, node, values, types)
    except (UnsupportedError, RuntimeError) as error:
        _raise_if_internal(error)
        return False
    return True


def _import(region: _C.Region, node: fx.Node, values: dict[fx.Node, _C.Value], types: _Types) -> _C.Value:
    """The node's value. An elementwise operation that the IR doesn't have is made of others, as in a step.

    Raises UnsupportedError or RuntimeError for what the IR can't express.
    """
    type_ = types.of(node)
    try:
        return region.aten(str(node.target), [_argument(a, values) for a in _arguments(node)], type_)
    except (UnsupportedError, RuntimeError) as error:
        _raise_if_internal(error)
        if not _step_functions.is_made_of_others(node.target):
            raise
    text, inputs = _made_of_others(node)
    (result,) = region.inline_program(text, [values[n] for n in inputs])
    return result


#: By operation and its arguments' types: programs of operations that are made of others; None where there is none.
_made: dict[Any, str | None] = {}
_MOST_MADE = 4096


def _made_of_others(node: fx.Node) -> tuple[str, list[fx.Node]]:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    values = [leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
    inputs = [leaf for leaf in leaves if isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], torch.Tensor)]
    described = [
        (v.dtype, tuple(map(str, v.shape))) if isinstance(v, torch.Tensor) else (type(v), str(v)) for v in values
    ]
    key = (str(node.target), str(spec), tuple(described))
    if key not in _made:
        if len(_made) >= _MOST_MADE:
            _made.clear()
        _made[key] = _trace_alone(node.target, values, spec)
    text = _made[key]
    if text is None:
        raise UnsupportedError(f"{node.target}")
    return text, inputs


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(map(str, value.shape))
    return type(value), str(value)


def _trace_alone(op: Any, values: list[Any], spec: pytree.TreeSpec) -> str | None:
    def run(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), spec)
        return op(*args, **kwargs)

    try:
        traced = _trace.trace(run, values, what=str(op), dynamic=lambda *_: ())
    except (UnsupportedError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        _raise_if_internal(error)
        return None
    is_whole = not traced.captured and not traced.noise and _C.is_elementwise(traced.program)
    return traced.program if is_whole else None


def _raise_if_internal(error: Exception) -> None:
    """What the IR can't express is an answer; a bug is not."""
    if "weft internal error" in str(error):
        raise error


def _is_pure(node: fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr", "output")
    if not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch.sym")
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def _is_barrier(impure: fx.Node) -> bool:
    """Whether it may change a tensor, as opposed to drawing random numbers only."""
    return impure.op == "call_function" and getattr(getattr(impure.target, "_schema", None), "is_mutable", True)


class _Graph:
    """The graph without its views: which nodes each node waits for, and the unit that each is in."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.expressible = {node for node in graph.nodes if _expressible(node)}
        self.members = {
            node for node in self.expressible if node.target not in _LEFT_TO_ATEN and node.target not in _VIEWS
        } | {node for node in graph.nodes if _is_call(node) or _is_output(node)}
        self.views: set[fx.Node] = set()
        for node in reversed(graph.nodes):
            if node in self.expressible and self._is_transparent(node):
                self.views.add(node)
        self.waits: dict[fx.Node, set[fx.Node]] = {}
        self._find_waits()
        self.unit: dict[fx.Node, set[fx.Node]] = {node: {node} for node in self.members}

    def _is_transparent(self, node: fx.Node) -> bool:
        """A view that becomes part of the program where a region reads it. A permutation does only as an operand of
        products, which read it in place; elsewhere the program would have to copy."""
        if node.target not in _VIEWS:
            return False
        return node.target not in _PERMUTES or self.is_read_by_products_only(node)

    def is_read_by_products_only(self, node: fx.Node, or_permuted: bool = False) -> bool:
        """Whether all readers that may be in a region are products, or views that permute for such."""
        for user in node.users:
            if or_permuted and user.target in _PERMUTES:
                continue
            if user in self.views and self._is_read_inside(user):
                return False
            if user in self.members and user.target not in _PRODUCTS:
                return False
        return True

    def _is_read_inside(self, view: fx.Node) -> bool:
        return any(user in self.members or (user in self.views and self._is_read_inside(user)) for user in view.users)

    def _find_waits(self) -> None:
        last_impure: fx.Node | None = None
        seen: list[fx.Node] = []
        barrier: fx.Node | None = None
        for node in self.graph.nodes:
            inputs = _tensor_inputs(node) if node in self.expressible else node.all_input_nodes
            waits: set[fx.Node] = set()
            for n in inputs:
                waits |= self.waits[n] if n in self.views else {n}
            if barrier is not None and node.op not in ("placeholder", "get_attr"):
                waits.add(barrier)
            if not _is_pure(node):  # random numbers and mutations stay in order
                waits |= {last_impure} if last_impure else set()
                last_impure = node
                if _is_barrier(node):  # after all that may read what it writes, before all that reads it then
                    waits.update(seen)
                    barrier = node
            self.waits[node] = waits
            seen.append(node)

    def merge_all(self) -> list[list[fx.Node]]:
        """Units of more than one node that contain a call, as lists in the graph's order."""
        for node in self.graph.nodes:
            if node not in self.members:
                continue
            for earlier in sorted(self.waits[node] & self.members, key=self.order.__getitem__):
                if self.unit[earlier] is not self.unit[node]:
                    self._merge(earlier, node)
        self._merge_siblings()
        units = {id(unit): unit for unit in self.unit.values()}.values()
        return [sorted(unit, key=self.order.__getitem__) for unit in units if any(map(_is_call, unit))]

    def _merge_siblings(self) -> None:
        """Members join a region that reads what they read, as the weight gradient of a linear next to it does."""
        readers: dict[fx.Node, list[fx.Node]] = {}
        for node in self.graph.nodes:
            if node in self.members:
                for source in self.waits[node]:
                    readers.setdefault(source, []).append(node)
        for nodes in readers.values():
            regions = [node for node in nodes if any(map(_is_call, self.unit[node]))]
            if not regions:
                continue
            for node in nodes:
                if self.unit[node] is not self.unit[regions[0]]:
                    self._merge(regions[0], node)

    def _merge(self, a: fx.Node, b: fx.Node) -> None:
        """Makes one unit of two nodes' units, unless a path from one to the other goes through a third."""
        one, other = self.unit[a], self.unit[b]
        if not self._reaches(one, other) and not self._reaches(other, one):
            merged = one | other
            for member in merged:
                self.unit[member] = merged

    def _reaches(self, start: set[fx.Node], goal: set[fx.Node]) -> bool:
        stack = [n for node in start for n in self.waits[node] if n not in start and n not in goal]
        seen: set[fx.Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            unit = self.unit.get(node, {node})
            seen |= unit
            for member in unit:
                for n in self.waits[member]:
                    if n in goal:
                        return True
                    if n not in seen and n not in start:
                        stack.append(n)
        return False


class _Program:
    """Writes one region as a program."""

    def __init__(self, graph: _Graph, members: list[fx.Node]) -> None:
        self.graph, self.members = graph, set(members)
        self.types, self.region = _Types(), _C.Region()
        self.values: dict[fx.Node, _C.Value] = {}
        self.inputs: list[fx.Node] = []
        self.transposed: set[fx.Node] = set()  #: inputs that the call gets transposed
        for node in members:
            if not _is_output(node):
                self._import(node)
        self.outputs = [node for node in members if self._is_read_outside(node)]
        self.text = self.region.finish([self.values[node] for node in self.outputs])

    def _is_read_outside(self, node: fx.Node) -> bool:
        """Whether it must be an output: views that are read outside stay there, and read it."""
        if _is_call(node):
            return False
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if user in self.graph.views:
                stack.extend(user.users)
            elif user not in self.members:
                return True
        return False

    def _value(self, node: fx.Node) -> _C.Value:
        if node not in self.values:
            if node in self.graph.views:
                self._import(node)
            else:
                self._add_input(node)
        return self.values[node]

    def _add_input(self, node: fx.Node) -> None:
        """A matrix that lies transposed, as a linear's weight saved for the backward does, goes in as it lies: the
        operator would copy it."""
        value, type_ = node.meta["val"], self.types.of(node)
        self.inputs.append(node)
        if self._lies_transposed(value) and self.graph.is_read_by_products_only(node, or_permuted=True):
            self.transposed.add(node)
            source = self.region.input(self.types.of_tensor(value.t()))
            self.values[node] = self.region.aten("aten.t.default", [source], type_)
        else:
            self.values[node] = self.region.input(type_)

    @staticmethod
    def _lies_transposed(value: torch.Tensor) -> bool:
        return value.dim() == 2 and not value.is_contiguous() and value.t().is_contiguous()

    def _import(self, node: fx.Node) -> None:
        if _is_call(node):
            text, inputs = node.args
            results = self.region.inline_program(text, [self._value(n) for n in inputs])
            for user in node.users:
                self.values[user] = results[user.args[1]]
            return
        for n in _tensor_inputs(node):
            self._value(n)
        self.values[node] = _import(self.region, node, self.values, self.types)


def _replace(graph: fx.Graph, members: list[fx.Node], program: _Program, analysis: _Graph) -> None:
    """Puts the program's call where the last member is; `_sort` mends the order."""
    place = analysis.order[members[-1]]
    with graph.inserting_after(members[-1]):
        call = graph.call_function(_CALL, (program.text, program.inputs))
    with graph.inserting_before(call):
        inputs = [graph.call_function(_aten.t.default, (n,)) if n in program.transposed else n for n in program.inputs]
    call.args = (program.text, inputs)
    for n in inputs:
        analysis.order.setdefault(n, place)
    call.meta["val"] = [node.meta["val"] for node in program.outputs]
    analysis.order[call] = place
    at = call
    for i, node in enumerate(program.outputs):
        with graph.inserting_after(at):
            at = graph.call_function(operator.getitem, (call, i))
        at.meta = dict(node.meta)
        analysis.order[at] = place
        node.replace_all_uses_with(at)
    gone = set(members)
    for node in reversed(list(graph.nodes)):
        if not node.users and (node in gone or node in analysis.views):
            graph.erase_node(node)


def _sort(graph: fx.Graph, place: dict[fx.Node, int]) -> None:
    """Puts every node after what it reads, and otherwise by `place`. Random numbers keep their order; nothing moves
    past a mutation."""
    nodes = list(graph.nodes)
    followers: dict[fx.Node, set[fx.Node]] = {node: set(node.users) for node in nodes}
    impure = sorted((node for node in nodes if not _is_pure(node)), key=place.__getitem__)
    for before, after in itertools.pairwise(impure):
        followers[before].add(after)
    for barrier in filter(_is_barrier, impure):
        for node in nodes:
            if node.op not in ("placeholder", "get_attr") and node is not barrier:
                pair = (node, barrier) if place[node] < place[barrier] else (barrier, node)
                followers[pair[0]].add(pair[1])
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for follower in followers[node]:
            waiting[follower] += 1
    index = {node: i for i, node in enumerate(nodes)}
    ready = [(place[node], index[node], node) for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    previous = graph._root
    while ready:
        *_, node = heapq.heappop(ready)
        previous.append(node)
        previous = node
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (place[follower], index[follower], follower))
    graph.lint()


def tidy(graph: fx.Graph) -> None:
    """Takes out views that a graph without autograd doesn't need: detach, views of views, transposes undone."""
    (output,) = graph.find_nodes(op="output")
    for node in list(graph.nodes):
        same, outputs = _same_without_view(node), output.all_input_nodes
        if same is None or (node in outputs and (same in outputs or same.op == "placeholder")):
            continue  # an output stays a tensor of its own
        node.replace_all_uses_with(same)
        graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node.target in _VIEWS and not node.users:
            graph.erase_node(node)


def _same_without_view(node: fx.Node) -> fx.Node | None:
    """The node that may stand in this one's place. Shortens a view of a view."""
    if node.op != "call_function" or not node.args or not isinstance(source := node.args[0], fx.Node):
        return None
    if node.target in (_aten.detach.default, _aten.alias.default):
        return source
    if node.target is _aten.t.default and source.target is _aten.t.default:
        return source.args[0]
    if node.target is _aten.view.default and source.target is _aten.view.default:
        base = source.args[0].meta.get("val")
        if isinstance(base, torch.Tensor) and base.is_contiguous():
            node.args = (source.args[0], *node.args[1:])
    return None


def drop_unused_outputs(graph: fx.Graph) -> None:
    """Programs compute only what the graph reads."""
    for node in graph.find_nodes(op="call_function", target=_CALL):
        taken = sorted(node.users, key=lambda user: user.args[1])
        used = [user for user in taken if user.users]
        for user in taken:
            if not user.users:
                graph.erase_node(user)
        text, inputs = node.args
        count = len(node.meta["val"]) if "val" in node.meta else len(taken)
        if not used or len({user.args[1] for user in used}) == count:
            continue
        indices = sorted({user.args[1] for user in used})
        node.args = (_C.keep_outputs(text, [i in indices for i in range(count)]), inputs)
        if "val" in node.meta:
            node.meta["val"] = [node.meta["val"][i] for i in indices]
        for user in used:
            user.args = (node, indices.index(user.args[1]))


def fuse_regions(graph: fx.Graph) -> int:
    """Replaces regions by calls of one program each; returns how many there were."""
    if not any(_is_call(node) for node in graph.nodes):
        return 0
    analysis, fused = _Graph(graph), 0
    for members in analysis.merge_all():
        real = [node for node in members if not _is_output(node)]
        if len(real) < 2:
            continue
        try:
            program = _Program(analysis, members)
        except (UnsupportedError, RuntimeError) as error:
            _raise_if_internal(error)
            continue
        if not program.outputs:
            continue
        _replace(graph, members, program, analysis)
        fused += 1
    if fused:
        _sort(graph, analysis.order)
    return fused
