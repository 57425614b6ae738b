"""`weft.quantize`: a model's recurrent modules with weights of 8 bits, for inference."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize

from weft.nn._modules import GRU, LSTM, RNN
from weft.nn._quantized import ByteWeights, QuantizedCell, QuantizedGRU, QuantizedLSTM, QuantizedPlainRNN, QuantizedRNN
from weft.nn._variant import Variant

_LAYERS: dict[type[nn.Module], type[QuantizedRNN]] = {
    nn.GRU: QuantizedGRU,
    nn.LSTM: QuantizedLSTM,
    nn.RNN: QuantizedPlainRNN,
    GRU: QuantizedGRU,
    LSTM: QuantizedLSTM,
    RNN: QuantizedPlainRNN,
}
_CELLS = (nn.GRUCell, nn.LSTMCell, nn.RNNCell)


def quantize(
    module: nn.Module,
    *,
    dtype: torch.dtype = torch.int8,
    carry: torch.dtype | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Gives every `nn.GRU`, `nn.LSTM`, `nn.RNN` and cell of theirs weights of 8 bits, for inference on the CPU.

    Each row of a weight has a scale of its own, its largest element divided by 127; a product is (x q^T) * scale, with
    activations as they are. Weights take a quarter of the memory of float32, and a step of one sequence, which only
    waits for them, about a third of the time. See docs/quantize.md for what it costs in accuracy.

    Args:
        module: any module, or a recurrent one. Parametrized weights are taken as they come out. Hooks of the modules
            that are replaced are not taken over. Subclasses and `weft.nn` modules with options of their own are left
            as they are, with a warning.
        dtype: torch.int8.
        carry: the dtype of the replaced modules' inputs (which are cast), states and outputs: torch.float32, bfloat16
            or float16; None takes that of their weights. Steps compute in float32.
        inplace: whether to change `module` (a recurrent module itself can't be changed in place).

    Returns:
        The module, a copy unless `inplace`.

    Raises:
        TypeError: `module` is no module.
        ValueError: another dtype or carry, weights of float64 and no carry, weights that aren't finite, or no module
            that can be quantized.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"weft.quantize: expected a torch.nn.Module, got: {type(module).__name__}")
    if dtype != torch.int8:
        raise ValueError(f"weft.quantize: dtype should be torch.int8, got: {dtype}")
    made: dict[nn.Module, nn.Module] = {}
    for name, each in module.named_modules():
        if (quantized := _quantized(each, name, carry)) is not None:
            made[each] = quantized
    if not made:
        raise ValueError("weft.quantize: nothing to quantize: no nn.GRU, nn.LSTM, nn.RNN or cell of theirs")
    if module in made:
        if inplace:
            raise ValueError("weft.quantize: a recurrent module itself can't be changed in place: take what it returns")
        return made[module]
    if not inplace:  # a copy that shares nothing, made without the weights that are replaced
        return copy.deepcopy(module, {id(old): new for old, new in made.items()})
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # a module may be there under several names
            if child in made:
                parent._modules[name] = made[child]
    return module


def _quantized(module: nn.Module, name: str, carry: torch.dtype | None) -> nn.Module | None:
    kind = parametrize.type_before_parametrizations(module)
    if isinstance(module, ByteWeights) or not isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return None
    if kind not in _LAYERS and kind not in _CELLS:
        warnings.warn(f"weft.quantize: '{name}' is left as it is: {kind.__name__} is a class of its own", stacklevel=3)
        return None
    if isinstance(module, Variant) and not module._is_plain():
        warnings.warn(
            f"weft.quantize: '{name}' is left as it is: it has options that nn.{module.kind} lacks", stacklevel=3
        )
        return None
    weights = module.weight_ih_l0 if isinstance(module, nn.RNNBase) else module.weight_ih
    assert isinstance(weights, torch.Tensor)
    if carry is None and weights.dtype == torch.float64:
        which = f"'{name}'" if name else "the module"
        raise ValueError(
            f"weft.quantize: {which} has weights of torch.float64, but weights of 8 bits "
            "take inputs of torch.float32, bfloat16 or float16: say which as carry=, or take module.float()"
        )
    used = carry or weights.dtype
    if isinstance(module, nn.RNNBase):
        return _LAYERS[kind](module, used)
    return QuantizedCell(module, used)
