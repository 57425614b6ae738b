"""Recurrent modules that PyTorch lacks: supersets of `nn.GRU`, `nn.LSTM` and `nn.RNN`, every variant compiled by Weft.

    rnn = weft.nn.LSTM(64, 128, num_layers=2, layer_norm=True, zoneout=(0.05, 0.5))
    y, (h, c) = rnn(x, is_init=first_steps)
    report = weft.nn.convert(model, recurrent_dropout=0.25)

Without an option of its own a module here is PyTorch's: the same parameters, the same forward.
"""

from weft.nn._convert import Converted, ConvertReport, convert
from weft.nn._modules import GRU, LSTM, RNN
from weft.nn._quantize import quantize

__all__ = ["GRU", "LSTM", "RNN", "ConvertReport", "Converted", "convert", "quantize"]
