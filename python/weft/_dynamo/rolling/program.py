"""Writes nodes as one program, in an order in which each follows its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx

from weft import _C
from weft._base.errors import UnsupportedError
from weft._capture.fx_nodes import Importer, example_of
from weft._capture.traced import Noise
from weft._dynamo.rolling.direct import TAKE_PAIRS, direct
from weft._dynamo.rolling.known import Kind, Known, call, is_complex, on_tensors, program_of
from weft._dynamo.rolling.memory import is_same_view
from weft._dynamo.rolling.nodes import (
    Source,
    is_grad_mode,
    is_number,
    key_of,
    sources_of,
    takes_output,
)


@dataclasses.dataclass(frozen=True)
class Draw:
    """Random numbers that a node draws: inputs of the program."""

    noise: Noise
    shape: list[int]


@dataclasses.dataclass
class Outputs:
    """The program's nodes that are read outside."""

    nodes: list[fx.Node]  #: nodes whose values the program returns
    kept: set[fx.Node]  #: views that stay outside, since somebody may write to them or to their roots
    same: dict[fx.Node, fx.Node]  #: nodes whose results are one of the outputs, or a tensor from outside
    #: for each tensor from outside that is written to, the last node that is written to: a view of it or the tensor
    #: itself
    written: dict[fx.Node, fx.Node]


class Writer(Importer):
    """Writes nodes one by one.

    After a node that writes to a tensor, the tensor has another value. Views that were taken before are taken again
    when something reads them.
    """

    def __init__(self, known: Known) -> None:
        super().__init__(known.types)
        self.known, self.memory = known, known.memory
        self.members: dict[fx.Node, None] = {}
        self.written: dict[fx.Node, fx.Node] = {}  #: by root: the tensor of its memory that was written to last

    def add(self, node: fx.Node) -> None:
        if is_number(node) or is_grad_mode(node):
            return  # readers find a number in its example; `Known` has seen the switch
        if (value := self._value_of(node, is_first=True)) is not None:
            self.values[node] = value
            self._check(node, example_of(node))
        self.members[node] = None

    def _check(self, node: fx.Node, example: Any) -> None:
        """PyTorch and the program must agree on what the value is."""
        values = self.values[node]
        examples = example if isinstance(example, list | tuple) else [example]
        values = values if isinstance(values, tuple) else (values,)
        if len(examples) != len(values):
            raise UnsupportedError("it has other results than the graph says")
        for each, value in zip(examples, values, strict=True):
            if str(self.types.of(each)) != str(self.region.type(value)):
                raise UnsupportedError(
                    f"it computes {self.region.type(value)}, but the graph says {self.types.of(each)}"
                )

    # ---- values

    def _value_of(self, node: fx.Node, *, is_first: bool) -> Any:
        """The node's value; None for a node without a result. `is_first`: the value isn't computed again after a write
        to its root."""
        if takes_output(node):
            return self.value(node.args[0])[node.args[1]]
        write = direct(node) if node not in self.known.without_grad else None
        if write not in TAKE_PAIRS and is_complex(node):
            write = None  # it would compute with the pairs
        value = write(self, node) if write is not None else None
        return value if value is not None else self._recorded(node, is_first=is_first)

    def read(self, node: fx.Node) -> Any:
        root = self.memory.root(node)
        if root in self.written:
            return self._taken_again(root, node)
        if self.memory.is_view_of_several(node):
            return self._value_of(node, is_first=False)
        return super().read(node)

    def _taken_again(self, root: fx.Node, node: fx.Node) -> Any:
        """A view, computed again from its root's value of now."""
        if node is root or is_same_view(root, node):
            return self.value(root)
        if self.known.kind(node).writes and not takes_output(node):
            raise UnsupportedError("it reads a result of a change in place, which is changed again")
        return self._value_of(node, is_first=False)

    def _recorded(self, node: fx.Node, *, is_first: bool) -> Any:
        kind, sources = self.known.kind(node), sources_of(node)
        results = self._inlined(kind, sources)
        count = len(results) - len(kind.writes)
        if kind.writes and not is_first:
            raise UnsupportedError("it reads a result of a change in place, which is changed again")
        for place, value in zip(kind.writes, results[count:], strict=True):
            self._write(node, sources[place], value)
        if example_of(node) is None:
            return None
        return results[0] if isinstance(example_of(node), Tensor) else tuple(results[:count])

    def _inlined(self, kind: Kind, sources: Sequence[Source]) -> list[Any]:
        if kind.refusal:
            raise UnsupportedError(kind.refusal)
        values = [self.value(s.node) if s.index is None else self.value(s.node)[s.index] for s in sources]
        shapes = [source.example.shape for source in sources]
        for noise in kind.noise:
            shape = noise.shape(shapes)
            if not all(isinstance(size, int) for size in shape):
                raise UnsupportedError("random numbers whose shape isn't known as numbers")
            values.append(self.region.input(self.types.type(noise.dtype, shape)))
            self.inputs.append(Draw(noise, shape))
        return list(self.inline(kind.program, values))

    # ---- changes in place

    def _write(self, by: fx.Node, source: Source, value: Any) -> None:
        node = source.node
        if source.index is not None:
            raise UnsupportedError("it writes to one of several results of an operation")
        root = self.memory.check_written(node)
        if by in self.known.without_grad and example_of(root).requires_grad:
            raise UnsupportedError("it writes within torch.no_grad to a tensor that requires a gradient")
        if str(self.region.type(value)) != str(self.region.type(self.value(node))):
            raise UnsupportedError("it changes a tensor's shape in place")
        whole = value if node is root or is_same_view(root, node) else self._through(root, node, value)
        for view in self.memory.views[root]:
            self.values.pop(view, None)
        self.values[root], self.values[node] = whole, value
        self.written[root] = node

    def _through(self, root: fx.Node, node: fx.Node, value: Any) -> Any:
        """The root's value after a write of `value` to its view `node`."""
        path = [each for each in self.memory.path(root, node) if not self._is_result_of_change(each)]
        if any(len(sources_of(each)) != len(sources_of(each)[:1]) and not takes_output(each) for each in path):
            raise UnsupportedError("it writes to a view whose place isn't known")
        key = ("through", *(key_of(each, sources_of(each)) for each in path))

        def run(whole: Tensor, part: Tensor) -> Tensor:
            whole = whole.clone()
            value: Any = whole
            for each in path:
                value = call(each, lambda _, value=value: value) if takes_output(each) else self._on(each, value)
            value.copy_(part)
            return whole

        kind = self.known.program(key, lambda: program_of(run, [example_of(root), example_of(node)]))
        self.values[node] = value
        (result,) = self._inlined(kind, [Source(root), Source(node)])
        return result

    def _on(self, node: fx.Node, tensor: Tensor) -> Any:
        return on_tensors(node, sources_of(node), [tensor])

    def _is_result_of_change(self, node: fx.Node) -> bool:
        return not takes_output(node) and bool(self.known.kind(node).writes)

    # ---- the program

    def outputs(self) -> Outputs:
        """The values of members that other nodes read."""
        found = Outputs([], set(), {}, {})
        nodes: dict[fx.Node, None] = {}
        for node in reversed(self.members):  # a view that is kept reads its root or another view
            if any(user not in self.members or user in found.kept for user in node.users):
                self._add_output(node, found, nodes)
        for root, node in self.written.items():
            if root not in self.members:
                nodes[root] = None
                found.written[root] = self._target(root, node, found)
        found.nodes = [node for node in (*self.members, *found.written) if node in nodes]
        if any(isinstance(self.value(node), tuple) for node in found.nodes):
            raise UnsupportedError("a node with several results is read elsewhere")
        return found

    def _add_output(self, node: fx.Node, found: Outputs, nodes: dict[fx.Node, None]) -> None:
        root = self.memory.root(node)
        if node is root:
            nodes[node] = None
        elif not self._is_result_of_change(node):
            if node in self.known.without_grad:
                raise UnsupportedError("a view made within torch.no_grad is read elsewhere")
            found.kept.add(node)
        elif is_same_view(root, node):
            found.same[node] = root
            if root in self.members:
                nodes[root] = None
        else:
            raise UnsupportedError("a result of a change in place is read elsewhere")

    def _target(self, root: fx.Node, node: fx.Node, found: Outputs) -> fx.Node:
        """The tensor to which the root's last value is written: the root itself. Refuses a leaf that requires a
        gradient."""
        example = example_of(root)
        if not (example.requires_grad and example.is_leaf):
            return root
        raise UnsupportedError("it writes to a leaf that requires a gradient")

    def check_grad_mode(self) -> None:
        """Refuses members that end where autograd is switched off, since one call replaces all members."""
        are_off = [node in self.known.without_grad for node in self.members]
        if are_off[-1] and not all(are_off):
            raise UnsupportedError("the loop ends within torch.no_grad")

    def finish(self, outputs: Sequence[fx.Node]) -> _C.Program:
        return self.region.finish([self.value(node) for node in outputs])
