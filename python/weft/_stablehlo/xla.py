"""Compiles and runs StableHLO with jaxlib, and counts what XLA makes of it. Needs the package jax when it is used."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: HLO instructions that compute nothing: they name or group values.
_BOOKKEEPING = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
#: HLO instructions that run other computations; the instructions of these are counted themselves.
_CALLS = {"fusion", "while", "conditional", "call"}


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of XLA's code for a program. Each place in the code counts once, however often a loop runs it."""

    operations: dict[str, int]  #: HLO operations after optimisation by opcode, those inside fusions too
    fusions: int  #: kernels made of operations
    kernels: int  #: fusions, and operations outside of fusions

    @property
    def total(self) -> int:
        """The number of operations."""
        return sum(self.operations.values())


class Executable:
    """A program compiled by jaxlib."""

    def __init__(self, text: str, platform: str) -> None:
        """Raises ImportError without jax, RuntimeError if there is no such platform or the text is no StableHLO."""
        self._jax = _jax()
        from jax.extend.backend import get_backend
        from jaxlib import xla_client

        client = get_backend(platform)
        self._device = client.local_devices()[0]
        devices = xla_client.DeviceList((self._device,))
        self._loaded = client.compile_and_load(text, devices, xla_client.CompileOptions())

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """@main's results for these inputs, on the CPU."""
        jax = self._jax
        with jax.enable_x64(True):  # without this jax makes 32 bits of 64
            # Copies: XLA writes results over donated inputs.
            arrays = [jax.dlpack.from_dlpack(tensor.detach().cpu().contiguous()) for tensor in inputs]
            results = self._loaded.execute([jax.device_put(one, self._device, may_alias=False) for one in arrays])
            cpu = jax.local_devices(backend="cpu")[0]
            return [torch.from_dlpack(jax.device_put(result, cpu)).clone() for result in results]

    def hlo(self) -> str:
        """The HLO after XLA's optimisations."""
        return str(self._loaded.hlo_modules()[0].to_string())

    def count(self) -> Counts:
        """Counts the HLO's operations, fusions and kernels."""
        module = self._loaded.hlo_modules()[0]
        # computations that a reduction applies to elements
        applied = set(re.findall(r"to_apply=%?([\w.-]+)", module.to_string()))
        launched = {one.name for one in module.make_nonfusion_computations()} - applied
        operations: collections.Counter[str] = collections.Counter()
        fusions = kernels = 0
        for computation in module.computations():
            for instruction in computation.instructions():
                opcode = _opcode(instruction)
                if opcode in _BOOKKEEPING:
                    continue
                fusions += opcode == "fusion"
                kernels += computation.name in launched and opcode not in _CALLS - {"fusion"}
                if opcode not in _CALLS - {"while", "conditional"}:
                    operations[opcode] += 1
        return Counts(dict(operations.most_common()), fusions, kernels)


def _opcode(instruction: Any) -> str:
    """The opcode in HLO's text: dynamic-update-slice for HloOpcode.kDynamicUpdateSlice."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", str(instruction.opcode).rpartition(".k")[2]).lower()


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise ImportError("weft.stablehlo: compiling StableHLO needs the package jax: pip install jax") from error
    return jax
