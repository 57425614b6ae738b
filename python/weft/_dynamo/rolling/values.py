"""Values of a graph's nodes in the program that they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from weft import _C
from weft._base.dtypes import DTYPES
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._base.torch_private import FakeTensor
from weft._capture.aten_nodes import Types
from weft._capture.traced import Noise


class Draw:
    """Random numbers that a node draws: inputs of the program."""

    def __init__(self, noise: Noise, shape: list[int]) -> None:
        self.noise, self.shape = noise, shape


class Values:
    """The program so far: what has been written, and what it reads from outside."""

    def __init__(self, types: Types) -> None:
        self.region, self.types = _C.Region(), types
        self.values: dict[fx.Node, Any] = {}  #: a value, or several in a tuple
        self.inputs: list[fx.Node | Draw] = []

    def type_of(self, tensor: Any) -> _C.Type:
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UnsupportedError("not a dense CPU tensor")
        if not isinstance(tensor, FakeTensor) and type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise UnsupportedError(f"a {type(tensor).__name__}")
        return self.type(tensor.dtype, tensor.shape)

    def type(self, dtype: torch.dtype, sizes: Sequence[Any]) -> _C.Type:
        if dtype not in DTYPES:
            raise UnsupportedError(f"{dtype}")
        return _C.Type(DTYPES[dtype], [self.types.size(size) for size in sizes])

    def value(self, node: fx.Node) -> Any:
        if node not in self.values:
            self.values[node] = self._read(node)
        return self.values[node]

    def _read(self, node: fx.Node) -> Any:
        """From outside."""
        value = self.region.input(self.type_of(node.meta.get("example_value")))
        self.inputs.append(node)
        return value

    def aten(self, name: str, arguments: list[Any], type_: _C.Type) -> Any:
        try:
            return self.region.aten(name, arguments, type_)
        except RuntimeError as error:
            raise_if_internal(error)
            raise UnsupportedError(str(error)) from None
