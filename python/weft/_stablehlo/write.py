"""`weft.stablehlo`: a program as StableHLO text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from weft import _C
from weft._base.dtypes import DTYPES
from weft._base.errors import FailedError, UnsupportedError
from weft._capture import record
from weft._control.jit import capture
from weft._stablehlo import packed
from weft._stablehlo.xla import Counts, Executable


@dataclasses.dataclass(frozen=True)
class StableHLO:
    """A program as StableHLO, for the sizes of `inputs`. `str()` of it is the text."""

    text: str  #: a module with one function, @main
    inputs: list[Tensor]  #: what @main takes first, with the values that the example had
    gradients: list[int]  #: the inputs whose gradients are @main's last results, given one cotangent a result

    def __str__(self) -> str:
        return self.text

    def compile(self, platform: str = "cpu") -> Executable:
        """The program compiled by jaxlib for one of its platforms: `compile()(inputs)` runs it.

        Raises:
            ImportError: jax is not installed.
            RuntimeError: jaxlib has no such platform.
        """
        return Executable(self.text, platform)

    def count(self, platform: str = "cpu") -> Counts:
        """The numbers of HLO operations and fusions that XLA makes of the program. Raises the errors of compile()."""
        return self.compile(platform).count()


def stablehlo(program: str | nn.Module | Callable[..., Any], *example: Any, gradients: bool = False) -> StableHLO:
    """A program as StableHLO text, for XLA's devices: a scan becomes a stablehlo.while. ::

        hlo = weft.stablehlo(nn.GRU(8, 16), torch.randn(5, 3, 8))
        print(hlo.text)
        y, h = hlo.compile()(hlo.inputs)  # by jaxlib, on the CPU

    `program` is the text of a Weft program, whose inputs `example` are, or a module or function, which is captured as
    weft.jit captures it. The text is for the sizes of these inputs alone: StableHLO has numbers for sizes. A program
    whose sizes are all numbers needs no example. Of a module or function @main takes the tensors among the arguments,
    then random numbers (as many as it draws), then tensors that it reads from outside, parameters for one: `.inputs`
    has all of them.

    The lengths of packed sequences are part of the text: of a PackedSequence @main takes and returns the data alone,
    and recurrent layers of PyTorch run over padded steps, in which rows that are over keep their state.

    With `gradients` @main also takes a cotangent for each result, of the result's type (one for an integer is ignored),
    and returns after the results the gradient of each input that requires grad.

    Raises:
        TypeError: `program` is neither text nor callable, or the example of a text has other things than tensors.
        RuntimeError: the text is no program or the example doesn't fit it; a function can't be one program; it calls
            an operator of PyTorch that the IR has no ops for, or has an op without a lowering, which is named;
            `gradients` where no input requires grad or there is no derivative.
    """
    if isinstance(program, str):
        made, inputs = _C.Program(program), list(example)
        for value in inputs:
            if not isinstance(value, Tensor):
                raise TypeError(f"weft.stablehlo: the inputs of a program are tensors, not {type(value).__name__}")
            if value.dtype not in DTYPES:
                raise TypeError(f"weft.stablehlo: a program has no inputs like a tensor of {value.dtype}")
    elif callable(program):
        made, inputs = _captured_padded(program, example)
    else:
        raise TypeError(f"weft.stablehlo: takes a program's text, a module or a function, not {type(program).__name__}")
    wanted = [tensor.requires_grad for tensor in inputs] if gradients else None
    if wanted is not None and not any(wanted):
        raise RuntimeError("weft.stablehlo: gradients=True needs an input that requires grad")
    types = [_C.Type(DTYPES[tensor.dtype], [(size, ()) for size in tensor.shape]) for tensor in inputs]
    written = _C.write_stablehlo(made, types or None, wanted, True)
    return StableHLO(written, inputs, [i for i, is_wanted in enumerate(wanted or ()) if is_wanted])


def _captured_padded(function: Callable[..., Any], example: tuple[Any, ...]) -> tuple[_C.Program, list[Tensor]]:
    """Captures the function with packed sequences as padded ones, also those that it makes itself."""
    of_data, data = packed.unpacked(function, example)
    if any(each is not value for each, value in zip(data, example, strict=True)):
        return _captured(of_data, data)
    try:
        return _captured(function, example)
    except RuntimeError as error:
        if not any(words in str(error) for words in ("looks at values", "'lengths' argument")):
            raise
    try:
        return _captured(of_data, data)
    except RuntimeError as error:
        if "'lengths' argument" not in str(error):
            raise
        raise RuntimeError(
            "weft.stablehlo: the lengths of sequences are computed in the function, or are among its arguments: known "
            "lengths are part of the text, so the function has to read them from outside"
        ) from None


def _captured(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[_C.Program, list[Tensor]]:
    try:
        call = capture("weft.stablehlo", function, arguments, {})
    except FailedError as failure:
        said = str(failure.__cause__)
        if "cannot resize" in said:  # what only the recording's tensors refuse
            said = record.in_words(said)
        raise RuntimeError(f"weft.stablehlo: the function failed: {said}") from failure.__cause__
    except UnsupportedError as error:
        raise RuntimeError(f"weft.stablehlo: the function can't be one program: {error}") from error
    return call.program, call.inputs
