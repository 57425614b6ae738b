"""The part of a model that a change is in, and code that is about it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from weft.formats import FormatError, Layer
from weft.formats._stacks import stacks_of


@dataclasses.dataclass(frozen=True)
class Where:
    """layer: one of those that are changed, as it was; direction: -1 for all of the layer's."""

    layer: Layer
    direction: int = -1

    def constructor(self, **fields: Any) -> str:
        """The line that makes the layer with some of its fields (of `Layer`) changed."""
        changed = dataclasses.replace(without_states(self.layer), **fields)
        try:
            (stack,) = stacks_of("weft.nn", [changed])
        except (FormatError, ValueError):
            options = ", ".join(f"{name}={value!s}" for name, value in fields.items())
            return f"# {options}, which weft.nn.{changed.kind} can't be with the rest of it: a step for weft.scan"
        return stack.constructor()

    def biases(self) -> list[str]:
        """Those of bias_ih and bias_hh that PyTorch's module of the layer has: none or both."""
        directions = self.layer.directions
        return ["bias_ih", "bias_hh"] if any(d.bias_x is not None or d.bias_h is not None for d in directions) else []

    def parameters(self, *names: str) -> list[str]:
        """m.weight_hh_l0, ...: of the directions that are changed, as PyTorch names them in the layer's module."""
        number = re.search(r"(?:^|\.)l(\d+)$", self.layer.name)
        return [
            f"m.{name}_l{number[1] if number else 0}{'_reverse' if direction else ''}"
            for direction in self._directions()
            for name in names
        ]

    def each(self, line: str) -> str:
        """A line of code for each of these directions; {weight_hh} in it is such a name."""
        names = re.findall(r"\{(\w+)\}", line)
        lines = []
        for direction in self._directions():
            parameters = Where(self.layer, direction).parameters(*names)
            lines.append(line.format(**dict(zip(names, parameters, strict=True))))
        return "; ".join(lines)

    def loop(self, names: list[str], expression: str) -> str:
        """`for p in (...): p.data = expression`."""
        parameters = self.parameters(*names)
        return f"for p in ({', '.join(parameters)}{',' if len(parameters) == 1 else ''}): p.data = {expression}"

    def _directions(self) -> list[int]:
        return list(range(len(self.layer.directions))) if self.direction < 0 else [self.direction]


def without_states(layer: Layer) -> Layer:
    """The layer without initial states, which a module doesn't hold."""
    directions = [dataclasses.replace(direction, h0=None, c0=None) for direction in layer.directions]
    return dataclasses.replace(layer, directions=directions)


#: Of a form of a change and where it is: what somebody does who gets these numbers, beginning with a verb; and code.
Text = Callable[[str, Where], tuple[str, str]]
