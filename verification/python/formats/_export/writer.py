"""Layers as a torch.export program."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from weft.formats._files.sniff import first_line
from weft.formats._layers import FormatError, Layer
from weft.formats._stacks import SUPPORTED, Stack, stacks_of


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes a program x [T, B, I] -> y [T, B, D*H] with any T and B; one x and y for each chain of layers.

    What only `weft.nn` has needs `import weft` before torch.export.load.

    Raises:
        FormatError: what no module of PyTorch's or `weft.nn` can be.
    """
    stacks = stacks_of("a torch.export program", layers, (*SUPPORTED, "state"))
    chains: list[list[Stack]] = []
    for stack in stacks:
        before = chains[-1][-1].layers[-1] if chains else None
        if before is not None and stack.layers[0].continues and before.output_size == stack.layers[0].input_size:
            chains[-1].append(stack)
        else:
            chains.append([stack])
    model = _Model(chains)
    batches = {d.h0.shape[0] for layer in layers for d in layer.directions if d.h0 is not None and d.h0.dim() == 2}
    batches |= {d.c0.shape[0] for layer in layers for d in layer.directions if d.c0 is not None and d.c0.dim() == 2}
    if len(batches) > 1:
        raise FormatError(f"the layers have initial states of several batches, {sorted(batches)}")
    _save(model, chains, path, batches.pop() if batches else None)
    notes = [note for stack in stacks for note in stack.notes()]
    if any(stack.options()[0] for stack in stacks):
        notes.append("the program calls an operator of Weft's: import weft before torch.export.load")
    return notes


def _save(model: nn.Module, chains: list[list[Stack]], path: Path, batch: int | None) -> None:
    inputs = tuple(torch.zeros(5, batch or 3, chain[0].layers[0].input_size, dtype=chain[0].dtype) for chain in chains)
    sizes = {0: torch.export.Dim.DYNAMIC} | ({1: torch.export.Dim.DYNAMIC} if batch is None else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(model, inputs, dynamic_shapes=((sizes,) * len(inputs),))
        except Exception as error:
            raise FormatError(f"torch.export can't export the layers: {first_line(error)}") from None
        torch.export.save(program, path)


class _Model(nn.Module):
    def __init__(self, chains: list[list[Stack]]) -> None:
        super().__init__()
        self._names: list[list[str]] = []
        for chain in chains:
            self._names.append([])
            for stack in chain:
                name = stack.name or "rnn"
                self.add_module(name, _WithState(stack) if _states(stack) else stack.make())
                self._names[-1].append(name)

    def forward(self, *xs: Tensor) -> Tensor | tuple[Tensor, ...]:
        ys = []
        for x, names in zip(xs, self._names, strict=True):
            for name in names:
                module = getattr(self, name)
                x = module(x.to(next(module.parameters()).dtype))[0]
            ys.append(x)
        return tuple(ys) if len(ys) > 1 else ys[0]


class _WithState(nn.Module):
    """A module with an initial state of its own."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.rnn = stack.make()
        for name, value in _states(stack).items():
            self.register_buffer(name, value)
        self._is_lstm = stack.kind == "LSTM"

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        states = [
            state if state.dim() == 3 and state.shape[1] > 1 else state.expand(-1, x.shape[1], -1)
            for state in self.buffers(recurse=False)
        ]
        return self.rnn(x, tuple(states) if self._is_lstm else states[0])


def _states(stack: Stack) -> dict[str, Tensor]:
    """[layers*D, B, H], B 1 where all rows have the same; {} where all are zeros."""
    directions = [d for layer in stack.layers for d in layer.directions]
    found: dict[str, Tensor] = {}
    units = stack.layers[0].hidden_size
    for name, size in (("h0", directions[0].output_size), ("c0", units))[: 2 if stack.kind == "LSTM" else 1]:
        own = [getattr(d, name) for d in directions]
        rows = max((state.shape[0] for state in own if state is not None and state.dim() == 2), default=1)
        blocks = [torch.zeros(rows, size) if state is None else state.expand(rows, size) for state in own]
        found[name] = torch.stack([block.to(stack.dtype) for block in blocks])
    return found if any(state.any() for state in found.values()) else {}
