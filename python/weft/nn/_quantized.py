"""What `weft.quantize` puts in the place of PyTorch's recurrent modules: the same call, with 8-bit weights.

The operator `weft::_rnn_quantized` (pytorch/override) writes the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from weft import _C
from weft._base.torch_private import len_torch_function_stack
from weft.nn._variant import Variant


def rows_as_int8(weight: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """A weight `[N, K]` as int8 and a scale for each row, `[N]`: the row's largest element becomes 127 or -127.

    Raises:
        ValueError: an element is no finite number.
    """
    exact = weight.detach().to(torch.float32)
    most = exact.abs().amax(1)
    if not bool(torch.isfinite(most).all()):
        raise ValueError(f"weft.quantize: {name} has elements that are not finite")
    scale = torch.where(most > 0, most / 127, torch.ones_like(most))
    return (exact / scale.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8), scale


def _operator(*tensors: Tensor) -> Callable[..., list[Tensor]]:
    """A function that calls weft::_rnn_quantized: C++'s, which takes half the time, or PyTorch's where something in
    Python must see the call."""
    if torch.compiler.is_compiling() or len_torch_function_stack() > 0:
        return torch.ops.weft._rnn_quantized
    return _C.rnn_quantized if all(type(t) is Tensor for t in tensors) else torch.ops.weft._rnn_quantized


class ByteWeights(nn.Module):
    """Holds weights as int8 with a float32 scale a row, `<name>_scale`, and biases as float32, all of them buffers.

    `carry` is the dtype of inputs, states and outputs; steps compute in float32.
    """

    carry: torch.dtype

    def _take(self, module: nn.Module, names: list[str], carry: torch.dtype) -> None:
        """Registers the buffers, made from the module's parameters of these names."""
        self.carry = carry
        self._operand_names: list[str] = []
        for name in names:
            value = getattr(module, name)
            self._operand_names.append(name)
            if name.startswith("weight"):
                rows, scale = rows_as_int8(value, name)
                self.register_buffer(name, rows)
                self.register_buffer(name + "_scale", scale)
                self._operand_names.append(name + "_scale")
            else:
                self.register_buffer(name, value.detach().to(torch.float32, copy=True))

    def _operands(self) -> list[Tensor]:
        """The operator's arguments after a call's tensors: the weights, each followed by its scales, and biases."""
        buffers = self._buffers  # a look-up of an attribute for each name takes as long as a small step
        return [buffers[name] if name in buffers else getattr(self, name) for name in self._operand_names]

    def _carried(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype is self.carry else tensor.to(self.carry)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """A change of dtype, as by .bfloat16(), changes the carry's; scales and biases stay float32."""
        floating = {n: b for n, b in self.named_buffers(recurse=False) if b.is_floating_point()}
        super()._apply(fn, recurse)
        for name, before in floating.items():
            after = getattr(self, name)
            if after.dtype != torch.float32:
                self.carry = _carry_checked(after.dtype)
                setattr(self, name, before.to(after.device))
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name, own in self.named_buffers(recurse=False):
            given = state_dict.get(prefix + name)
            if own.dtype == torch.int8 and given is not None and given.dtype != torch.int8:
                error_msgs = args[-1]
                error_msgs.append(
                    f"{prefix}{name} is {given.dtype}, but this module has weights of 8 bits: load it into the module "
                    "that weft.quantize is given, and quantize that"
                )
                return
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _repr_of_bytes(self, shown: str) -> str:
        carry = "" if self.carry == torch.float32 else f", carry={self.carry}"
        return f"{shown}{carry}, weights=int8"

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(f"torch.jit.script can't compile {type(self).__name__}; torch.export and torch.compile can")


def _carry_checked(dtype: torch.dtype) -> torch.dtype:
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"weft.quantize: carry should be torch.float32, bfloat16 or float16, got: {dtype}")
    return dtype


class QuantizedRNN(ByteWeights, Variant):
    """Made by `weft.quantize` from `nn.GRU`, `nn.LSTM` or `nn.RNN`, whose forward it has. No dropout between layers."""

    def __init__(self, module: nn.RNNBase, carry: torch.dtype) -> None:
        nn.Module.__init__(self)
        for name in ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional"):
            setattr(self, name, getattr(module, name))
        self.dropout = 0.0
        self.proj_size = module.proj_size
        self._all_weights = [list(names) for names in module._all_weights]
        self._flat_weights_names: list[str] = []
        self._flat_weights: list[Tensor | None] = []
        self._flat_weight_refs: list[Any] = []
        self._take(module, [name for names in self._all_weights for name in names], _carry_checked(carry))
        self.train(module.training)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """PyTorch's forward, padded, unbatched or of a PackedSequence. The input and hx are cast to the carry's dtype.

        Raises:
            RuntimeError, ValueError: a shape that doesn't fit, in PyTorch's words; a tensor that requires a gradient.
        """
        is_packed = isinstance(input, nn.utils.rnn.PackedSequence)
        input = input._replace(data=self._carried(input.data)) if is_packed else self._carried(input)
        if hx is not None:
            hx = tuple(self._carried(h) for h in hx) if self.kind == "LSTM" else self._carried(hx)
        if is_packed or input.dim() != 3:
            return self._run(input, hx, None)
        # The operator checks sizes and makes the states that aren't given: in Python that takes as long as a step of
        # 512 units.
        states = () if hx is None else hx if self.kind == "LSTM" else (hx,)
        outputs = self._call(input, None, states, None)
        return outputs[0], self._state_of(outputs)

    def _call(self, input: Tensor, batch_sizes: Tensor | None, states: Any, is_init: Tensor | None) -> list[Tensor]:
        return _operator(input, *states)(
            input,
            batch_sizes,
            list(states),
            self._operands(),
            self.mode.lower(),
            self.bias,
            self.num_layers,
            self.bidirectional,
            self.batch_first,
        )

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """PyTorch's check of sizes; the dtype is the carry's."""
        dims = 3 if batch_sizes is None else 2
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def flatten_parameters(self) -> None:
        """Does nothing: weights are read as they are."""

    def reset_parameters(self) -> None:
        """Does nothing: the weights come from the module that this one was made from."""

    def extra_repr(self) -> str:
        return self._repr_of_bytes(nn.RNNBase.extra_repr(self))


class QuantizedGRU(QuantizedRNN, nn.GRU):
    """An `nn.GRU` with weights of 8 bits: see `weft.quantize`."""

    kind = "GRU"
    forward = QuantizedRNN.forward


class QuantizedLSTM(QuantizedRNN, nn.LSTM):
    """An `nn.LSTM` with weights of 8 bits: see `weft.quantize`."""

    kind = "LSTM"
    forward = QuantizedRNN.forward


class QuantizedPlainRNN(QuantizedRNN, nn.RNN):
    """An `nn.RNN` with weights of 8 bits: see `weft.quantize`."""

    kind = "RNN"
    forward = QuantizedRNN.forward


class QuantizedCell(ByteWeights):
    """Made by `weft.quantize` from `nn.GRUCell`, `nn.LSTMCell` or `nn.RNNCell`, whose forward it has."""

    def __init__(self, module: nn.RNNCellBase, carry: torch.dtype) -> None:
        super().__init__()
        self.kind = {nn.GRUCell: "gru", nn.LSTMCell: "lstm"}.get(type(module)) or f"rnn_{module.nonlinearity}"
        self.input_size, self.hidden_size, self.bias = module.input_size, module.hidden_size, module.bias
        names = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if module.bias else [])
        self._take(module, names, _carry_checked(carry))
        self.train(module.training)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """One step: input `[B, I]` or `[I]`, state `[B, H]` or `[H]` (of an LSTM (h, c)); the next state.

        Raises:
            ValueError, RuntimeError: a shape that doesn't fit; a tensor that requires a gradient.
        """
        if input.dim() not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        is_batched = input.dim() == 2
        is_lstm = self.kind == "lstm"
        states = [] if hx is None else list(hx) if is_lstm else [hx]
        if not is_batched:
            input, states = input.unsqueeze(0), [h.unsqueeze(0) for h in states]
        outputs = _operator(input, *states)(
            self._carried(input),
            None,
            [self._carried(h) for h in states],
            self._operands(),
            self.kind,
            self.bias,
            1,
            False,
            False,
        )
        if not is_batched:
            outputs = [output.squeeze(0) for output in outputs]
        return tuple(outputs) if is_lstm else outputs[0]

    def extra_repr(self) -> str:
        bias = "" if self.bias else ", bias=False"
        return self._repr_of_bytes(f"{self.kind}, {self.input_size}, {self.hidden_size}{bias}")
