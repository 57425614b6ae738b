"""The part of a model that a change affects, and code for that part."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from weft.formats import FormatError, Layer
from weft.formats._stacks import stacks_of


@dataclasses.dataclass(frozen=True)
class Where:
    """model: the original layers, each fed by the one before; changed: the indices of the changed layers, all of one
    kind; direction: -1 for all directions of a layer; fields: what other changes have changed."""

    model: Sequence[Layer]
    changed: Sequence[int]
    direction: int = -1
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def layer(self) -> Layer:
        """The first changed layer."""
        return self.model[self.changed[0]]

    def constructor(self, **fields: Any) -> str:
        """The line of code that makes the module with some of its layers' fields (of `Layer`) changed; several lines if
        no single module can hold the result."""
        self.fields.update(fields)
        plain = [without_states(layer) for layer in self.model]
        module = self._module(plain)
        after = [
            dataclasses.replace(plain[index], **self.fields) if index in self.changed else plain[index]
            for index in module
        ]
        try:
            stacks = stacks_of("weft.nn", after)
        except (FormatError, ValueError):
            options = ", ".join(f"{name}={value!s}" for name, value in self.fields.items())
            return f"# {options}, which weft.nn.{self.layer.kind} can't be with the rest of it: a step for weft.scan"
        if len(stacks) == 1:
            return stacks[0].constructor()
        lines, first = [], module[0]
        for stack in stacks:
            last = first + len(stack.layers) - 1
            lines.append(f"{stack.constructor()}  # layer{f' {first}' if first == last else f's {first} to {last}'}")
            first = last + 1
        return "\n".join(lines)

    def _module(self, layers: Sequence[Layer]) -> range:
        """The layers of the module with the changed ones; only the changed layers if no module holds them all."""
        first, last = min(self.changed), max(self.changed)
        try:
            stacks = stacks_of("weft.nn", layers)
        except (FormatError, ValueError):
            return range(first, last + 1)
        begin = 0
        for stack in stacks:
            if begin <= first < begin + len(stack.layers):
                return range(begin, max(begin + len(stack.layers), last + 1))
            begin += len(stack.layers)
        return range(first, last + 1)

    def biases(self) -> list[str]:
        """The biases, of bias_ih and bias_hh, that PyTorch's module of the layer has: none or both."""
        directions = self.layer.directions
        return ["bias_ih", "bias_hh"] if any(d.bias_x is not None or d.bias_h is not None for d in directions) else []

    def parameters(self, *names: str) -> list[str]:
        """The names of the changed directions' parameters in PyTorch's module of the layer: m.weight_hh_l0, ..."""
        return [part for index, direction in self._parts() for part in self._names(index, direction, names)]

    def _names(self, index: int, direction: int, names: Sequence[str]) -> list[str]:
        number = re.search(r"(?:^|\.)l(\d+)$", self.model[index].name)
        suffix = "_reverse" if direction else ""
        return [f"m.{name}_l{number[1] if number else 0}{suffix}" for name in names]

    def each(self, line: str) -> str:
        """A line of code for each changed direction; a name in braces, as {weight_hh}, is replaced by the
        parameter's."""
        names = re.findall(r"\{(\w+)\}", line)
        lines = []
        for index, direction in self._parts():
            parameters = self._names(index, direction, names)
            lines.append(line.format(**dict(zip(names, parameters, strict=True))))
        return "; ".join(lines)

    def loop(self, names: list[str], expression: str) -> str:
        """`for p in (...): p.data = expression`."""
        parameters = self.parameters(*names)
        return f"for p in ({', '.join(parameters)}{',' if len(parameters) == 1 else ''}): p.data = {expression}"

    def _parts(self) -> list[tuple[int, int]]:
        """The layer and direction of each changed part."""
        return [
            (index, direction)
            for index in self.changed
            for direction in range(len(self.model[index].directions))
            if self.direction in (-1, direction)
        ]


def without_states(layer: Layer) -> Layer:
    """The layer without its initial states, which a module doesn't hold."""
    directions = [dataclasses.replace(direction, h0=None, c0=None) for direction in layer.directions]
    return dataclasses.replace(layer, directions=directions)


#: Takes the form and the place of a change. Returns what a model with this change does, in words that begin with a
#: verb; and code that makes the change.
Text = Callable[[str, Where], tuple[str, str]]
