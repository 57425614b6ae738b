"""Steps that can be packaged, as one program of one step with its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from weft import _C
from weft._base import trees
from weft._base.dtypes import DTYPES
from weft._base.errors import FailedError, UnsupportedError
from weft._capture import record
from weft._capture.complex_numbers import as_pairs
from weft._capture.runs import Function
from weft._control.scan_call import Call
from weft._packages.module_steps import step_of_module
from weft._streaming.capture import check_initialised

WHAT = "weft.package"


@dataclasses.dataclass(frozen=True)
class Step:
    """A step's program: (states, inputs, weights) -> (new states, outputs). Complex tensors are pairs [..., 2]."""

    program: _C.Program
    states: dict[str, Tensor]  #: as they are at a start, by name
    inputs: dict[str, Tensor]  #: an example of each
    weights: list[Tensor]
    outputs: list[str]
    #: the line of the user's code that calls an operator first, named as aten::sort; empty where it isn't found
    place_of: Callable[[str], str] = lambda name: ""
    chunk: int = 1  #: of a model over time: how many of its steps a call is
    lags: list[int] | None = None  #: of its outputs: call c holds elements from c * those of a call - lag on

    def model(self, name: str, stored: str = "f32", activations: str = "f32") -> _C.StepModel:
        """The step, ready to be compiled. `name` is an identifier of C; `stored` the type of product weights in
        objects: f32, i8, bf16 or f16; `activations` what products round their other factor to: f32 or i8."""
        return _C.StepModel(
            name,
            self.program,
            [_as_bytes(f"{WHAT}: {path}", tensor) for path, tensor in self.states.items()],
            [(_dtype(f"{WHAT}: {path}", tensor), list(tensor.shape)) for path, tensor in self.inputs.items()],
            [_as_bytes(f"{WHAT}: a tensor that the step reads", tensor) for tensor in self.weights],
            [list(self.states), list(self.inputs), self.outputs],
            stored,
            activations,
        )


class _OneStep(Call):
    """A call of weft.scan of which only the step is wanted."""

    def function(self) -> Function:
        return dataclasses.replace(super().function(), is_alone=True)

    def _compose(self, step: _C.Program, carries: int, xs: int) -> Any:
        return step


def step_of(model: nn.Module | Callable[..., Any], example: Any) -> Step:
    """The step of a recurrent module of PyTorch's, or the step itself with `example` (carry, x).

    Raises:
        TypeError: it is neither, or the example doesn't fit it.
        RuntimeError: the step can't be one program.
    """
    check_initialised(model, WHAT)
    if isinstance(model, nn.Module) and (made := step_of_module(model, example)) is not None:
        step, init, x = made
    else:
        if not callable(model):
            raise TypeError(f"{WHAT}: takes a module or a step, but got {type(model).__name__}")
        if not isinstance(example, tuple) or len(example) != 2:
            raise TypeError(
                f"{WHAT}: the example of a step is a tuple (carry, x), what the step is called with first, but got "
                f"{trees.describe(example) if isinstance(example, Tensor) else type(example).__name__}"
            )
        step, (init, x) = model, example
    with torch.no_grad():
        return _captured(step, init, x)


def _captured(step: Callable[..., Any], init: Any, x: Any) -> Step:
    leaves, spec = trees.flatten(x)
    tensors = [trees.as_tensor(leaf, f"{WHAT}: {path}") for leaf, path in zip(leaves, trees.paths("x", x), strict=True)]
    xs = trees.unflatten([None if leaf is None else leaf.unsqueeze(0) for leaf in tensors], spec)
    none = all(leaf is None for leaf in tensors)
    call = _OneStep.of(WHAT, step, init, None if none else xs, 1 if none else None, False, 0)
    try:
        found = call.find()
    except FailedError as failure:
        raise (failure.__cause__ or failure) from None  # an error of the step's own, as it is
    except UnsupportedError as error:
        raise RuntimeError(f"{WHAT}: the step can't be one program: {error}") from error
    if found.captured.noise:
        raise RuntimeError(
            f"{WHAT}: the step draws random numbers, and a package has no generator: give them as a part of x "
            "(dropout does nothing after .eval())"
        )
    (run,) = found.runs

    def place_of(name: str) -> str:
        operation = run.recording.first_of(name)
        return "" if operation is None else record.place_of(call.function(), operation)

    ((ys_spec, kinds),) = found.extra
    ys = trees.paths("y", trees.unflatten(list(range(len(kinds))), ys_spec))
    states, inputs = _named("carry", init, call.carry), _named("x", x, tensors)
    program, weights = _with_constant_calls(found.captured.program, len(states) + len(inputs), found.inputs)
    return Step(
        program,
        states,
        inputs,
        weights,
        [path for path, kind in zip(ys, kinds, strict=True) if kind is not None],
        place_of,
    )


def _with_constant_calls(program: _C.Program, first: int, weights: list[Tensor]) -> tuple[_C.Program, list[Tensor]]:
    """The program and its weights, with what PyTorch computes from weights alone (a matrix exponential, an orthogonal
    parametrization) as further weights."""
    found = _C.constant_calls(program, first)
    if found is None:
        return program, weights
    calls, rest = found
    return rest, [*weights, *torch.ops.weft.call(calls.text, weights)]


def _named(name: str, tree: Any, leaves: list[Tensor | None]) -> dict[str, Tensor]:
    paths = trees.paths(name, tree)
    given = [(path, leaf) for path, leaf in zip(paths, leaves, strict=True) if leaf is not None]
    return dict(zip([path for path, _ in given], as_pairs([leaf for _, leaf in given]), strict=True))


def _dtype(what: str, tensor: Tensor) -> str:
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{what} is {trees.describe(tensor)}: there are no packages with that type")
    return DTYPES[tensor.dtype]


def _as_bytes(what: str, tensor: Tensor) -> tuple[str, list[int], bytes]:
    plain = tensor.detach().to("cpu").contiguous()
    flat = plain.reshape(-1).view(torch.uint8) if plain.numel() else plain.new_empty(0, dtype=torch.uint8)
    return _dtype(what, tensor), list(tensor.shape), flat.numpy().tobytes()
