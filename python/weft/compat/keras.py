"""Recurrent layers of Keras 3 on its PyTorch backend, as scans of Weft's.

    import weft.compat.keras
    weft.compat.keras.install()

From then on `keras.layers.RNN` and its kin (LSTM, GRU, SimpleRNN, Bidirectional, layers of cells of one's own)
run their steps by `weft.scan`, in `fit`, `predict` and eager calls, with masks, `go_backwards` and states as Keras has
them. Layers, weights and files stay Keras's. Under `weft run` nothing needs to be called.

A layer whose step Weft can't capture runs Keras's own loop, which `weft.stats()` counts among the fallbacks.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base.errors import ReadsValueError, SideEffectError
from weft._base.import_hooks import when_imported
from weft._control.scan import scan

__all__ = ["install", "install_when_imported", "uninstall"]

Step = Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]

#: Keras's own functions, by module and name; kept while Weft's take their place.
_before: dict[tuple[str, str], Any] = {}
#: The modules where Keras's layers find the functions of its backend.
_PLACES = ("keras.src.backend", "keras.src.backend.torch", "keras.src.backend.torch.rnn")


def install() -> None:
    """Makes Keras's recurrent layers run by Weft, in this process. Does nothing if they do already.

    Raises:
        RuntimeError: Keras's backend is not PyTorch.
    """
    backend = importlib.import_module("keras.src.backend")
    if backend.backend() != "torch":
        raise RuntimeError(f"Keras's backend is {backend.backend()}; set KERAS_BACKEND=torch before keras is imported")
    if _before:
        return
    own = importlib.import_module("keras.src.backend.torch.rnn")
    ours = {"rnn": _rnn(own), "lstm": _lstm(own), "gru": _gru(own)}
    for place in _PLACES:
        module = sys.modules.get(place)
        for name, function in ours.items():
            if module is not None and hasattr(module, name):
                _before[place, name] = getattr(module, name)
                setattr(module, name, function)


def uninstall() -> None:
    """Gives Keras its own functions back."""
    for (place, name), function in _before.items():
        setattr(sys.modules[place], name, function)
    _before.clear()


def install_when_imported() -> None:
    """`install` as soon as Keras is imported, if its backend is PyTorch."""

    def act(backend: ModuleType) -> None:
        if backend.backend() == "torch":
            install()

    when_imported("keras.src.backend", act)


# ---- the loop of any cell


def _rnn(own: ModuleType) -> Callable[..., Any]:
    tree = importlib.import_module("keras.src.tree")

    @functools.wraps(own.rnn)
    def rnn(
        step_function: Step,
        inputs: Any,
        initial_states: Any,
        go_backwards: bool = False,
        mask: Tensor | None = None,
        constants: Sequence[Any] | None = None,
        unroll: bool = False,
        input_length: Any = None,
        time_major: bool = False,
        zero_output_for_mask: bool = False,
        return_all_outputs: bool = True,
    ) -> Any:
        def as_keras_does() -> Any:
            return own_rnn(
                step_function, inputs, initial_states, go_backwards, mask, constants, unroll, input_length,
                time_major, zero_output_for_mask, return_all_outputs,
            )  # fmt: skip

        first = tree.flatten(inputs)[0]
        steps = first.shape[0 if time_major else 1]
        is_usual = isinstance(first, Tensor) and first.device.type in ("cpu", "weft") and steps
        if not is_usual or input_length not in (None, steps) or (unroll and mask is not None and go_backwards):
            return as_keras_does()
        loop = _Loop(tree, step_function, tuple(constants or ()), zero_output_for_mask)
        xs = inputs if time_major else tree.map_structure(_swapped, inputs)
        masks = _masks(mask, time_major)
        if go_backwards:
            xs = tree.map_structure(lambda x: torch.flip(x, [0]), xs)
            masks = None if masks is None else torch.flip(masks, [0])

        def by_weft() -> Any:
            outputs, states = loop.run(xs, masks, initial_states)
            last = tree.map_structure(lambda y: y[-1], outputs)
            if not return_all_outputs:
                outputs = tree.map_structure(lambda y: y[-1:], outputs)
            return last, outputs if time_major else tree.map_structure(_swapped, outputs), states

        return _or(as_keras_does, by_weft)

    own_rnn = own.rnn
    return rnn


class _Loop:
    """Keras's loop over time, with one step of it as a step for weft.scan."""

    def __init__(self, tree: ModuleType, step: Step, constants: tuple[Any, ...], zero_masked: bool) -> None:
        self.tree, self.step, self.constants, self.zero_masked = tree, step, constants, zero_masked

    def run(self, xs: Any, masks: Tensor | None, initial_states: Any) -> tuple[Any, Any]:
        """Runs xs [T, B, ...] with masks [T, B, 1]; returns outputs [T, B, ...] and states."""
        tree, states = self.tree, tuple(initial_states)
        if masks is None:

            def body(carry: Any, x: Any) -> Any:
                output, after = self.step(x, tuple(tree.pack_sequence_as(states, carry)) + self.constants)
                return tree.flatten(after), output

            last, outputs = scan(body, tree.flatten(states), xs)
            return outputs, tree.pack_sequence_as(initial_states, last)

        def masked(carry: Any, x: Any) -> Any:
            (flat, before), (x, mask) = carry, x
            output, after = self.step(x, tuple(tree.pack_sequence_as(states, flat)) + self.constants)
            flat = [_chosen(mask, *pair) for pair in zip(tree.flatten(after), flat, strict=True)]
            chosen = [_chosen(mask, *pair) for pair in zip(tree.flatten(output), before, strict=True)]
            return (flat, before if self.zero_masked else chosen), tree.pack_sequence_as(output, chosen)

        (last, _), outputs = scan(masked, (tree.flatten(states), self._zeros(xs, states)), (xs, masks))
        return outputs, tuple(tree.pack_sequence_as(states, last))

    def _zeros(self, xs: Any, states: tuple[Any, ...]) -> list[Tensor]:
        """Zeros like the outputs of a step, for the outputs before the first: Keras computes one step for these too."""
        with torch.no_grad():
            output, _ = self.step(self.tree.map_structure(lambda x: x[0], xs), states + self.constants)
        return [torch.zeros_like(each) for each in self.tree.flatten(output)]


def _chosen(mask: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Rows of one tensor where the mask [B, 1] holds, else of the other."""
    return torch.where(mask.reshape(mask.shape + (1,) * (one.dim() - mask.dim())), one, other)


def _swapped(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


def _masks(mask: Tensor | None, time_major: bool) -> Tensor | None:
    if mask is None:
        return None
    mask = mask.to(torch.bool)
    mask = mask.unsqueeze(-1) if mask.dim() == 2 else mask
    return mask if time_major else _swapped(mask)


def _or(as_keras_does: Callable[[], Any], by_weft: Callable[[], Any]) -> Any:
    """Keras's loop where a step can't be captured: a step that draws from Keras's generators, decides by values, or
    returns states of another dtype than it began with. Keras's loop raises an error of the user's own again."""
    try:
        return by_weft()
    except (SideEffectError, ReadsValueError, ValueError, TypeError) as error:
        _C.report_fallback("keras.layers.RNN", str(error).splitlines()[0])
        return as_keras_does()


# ---- LSTM and GRU


def _lstm(own: ModuleType) -> Callable[..., Any]:
    own_lstm = own.lstm

    @functools.wraps(own.lstm)
    def lstm(
        inputs: Any,
        initial_state_h: Any,
        initial_state_c: Any,
        mask: Any,
        kernel: Any,
        recurrent_kernel: Any,
        bias: Any,
        activation: Callable[[Tensor], Tensor],
        recurrent_activation: Callable[[Tensor], Tensor],
        return_sequences: bool = False,
        go_backwards: bool = False,
        unroll: bool = False,
        batch_first: bool = True,
    ) -> Any:
        if not _is_ours(own, mask, inputs, batch_first):
            return own_lstm(
                inputs, initial_state_h, initial_state_c, mask, kernel, recurrent_kernel, bias, activation,
                recurrent_activation, return_sequences, go_backwards, unroll, batch_first,
            )  # fmt: skip
        kernel, recurrent, bias = _tensors(own, kernel, recurrent_kernel, bias)
        xs = _steps(own, inputs, kernel, go_backwards, batch_first)

        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = carry
            i, f, g, o = (_projected(x, kernel, bias) + torch.matmul(h, recurrent)).chunk(4, dim=1)
            c = recurrent_activation(f) * c + recurrent_activation(i) * activation(g)
            h = recurrent_activation(o) * activation(c)
            return (h, c), h

        init = tuple(own.convert_to_tensor(state).to(kernel.dtype) for state in (initial_state_h, initial_state_c))
        (h, c), hs = scan(step, init, xs)
        return h, _outputs(h, hs, return_sequences, batch_first), [h, c]

    return lstm


def _gru(own: ModuleType) -> Callable[..., Any]:
    own_gru = own.gru

    @functools.wraps(own.gru)
    def gru(
        inputs: Any,
        initial_state: Any,
        mask: Any,
        kernel: Any,
        recurrent_kernel: Any,
        bias: Any,
        activation: Callable[[Tensor], Tensor],
        recurrent_activation: Callable[[Tensor], Tensor],
        return_sequences: bool = False,
        go_backwards: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
    ) -> Any:
        if not reset_after or not _is_ours(own, mask, inputs, True):
            return own_gru(
                inputs, initial_state, mask, kernel, recurrent_kernel, bias, activation, recurrent_activation,
                return_sequences, go_backwards, unroll, reset_after,
            )  # fmt: skip
        kernel, recurrent, bias = _tensors(own, kernel, recurrent_kernel, bias)
        xs = _steps(own, inputs, kernel, go_backwards, True)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            x_z, x_r, x_h = _projected(x, kernel, None if bias is None else bias[0]).chunk(3, dim=1)
            h_z, h_r, h_h = _projected(h, recurrent, None if bias is None else bias[1]).chunk(3, dim=1)
            z, r = recurrent_activation(x_z + h_z), recurrent_activation(x_r + h_r)
            h = z * h + (1.0 - z) * activation(x_h + r * h_h)
            return h, h

        h, hs = scan(step, own.convert_to_tensor(initial_state).to(kernel.dtype), xs)
        return h, _outputs(h, hs, return_sequences, True), [h]

    return gru


def _tensors(own: ModuleType, *weights: Any) -> list[Any]:
    """Keras's variables as tensors; None for a missing one."""
    return [None if weight is None else own.convert_to_tensor(weight) for weight in weights]


def _is_ours(own: ModuleType, mask: Any, inputs: Any, batch_first: bool) -> bool:
    return (
        mask is None
        and isinstance(inputs, Tensor)
        and inputs.device.type in ("cpu", "weft")
        and inputs.shape[1 if batch_first else 0] != 0
    )


def _steps(own: ModuleType, inputs: Tensor, kernel: Tensor, go_backwards: bool, batch_first: bool) -> Tensor:
    """The inputs as steps, [T, B, features]."""
    inputs = own.convert_to_tensor(inputs).to(kernel.dtype)
    inputs = _swapped(inputs) if batch_first else inputs
    return torch.flip(inputs, [0]) if go_backwards else inputs


def _projected(x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """A product of the inputs, which leaves the loop and is one product for all steps."""
    product = torch.matmul(x, kernel)
    return product if bias is None else product + bias


def _outputs(h: Tensor, hs: Tensor, return_sequences: bool, batch_first: bool) -> Tensor:
    hs = hs if return_sequences else h.unsqueeze(0)
    return _swapped(hs) if batch_first else hs
