"""`weft.nn.GRU`, `LSTM` and `RNN`: their options and what a step of each computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from weft.nn import _options
from weft.nn._activations import Activation
from weft.nn._variant import Variant


class GRU(Variant, nn.GRU):
    """`nn.GRU`'s superset. With every option at its default it is `nn.GRU`, parameters, state_dict, errors and all.

    With s the gate activation and g the activation, a step is ::

        r = s(W_ir x + b_ir + W_hr h + b_hr)
        z = s(W_iz x + b_iz + W_hz h + b_hz)
        n = g(W_in x + b_in + r (W_hn h + b_hn))      reset_after=True: PyTorch, cuDNN, Keras's default
        n = g(W_in x + b_in + W_hn (r h) + b_hn)      reset_after=False: Cho et al. 2014, arXiv:1406.1078
        h' = (1 - z) n + z h

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as in `nn.GRU`.
        reset_after: whether the reset gate is on the hidden state after or before its matrix product.
        gate_activation, activation: s and g. A name (sigmoid, tanh, relu, hard_sigmoid, identity, ...; a wrong one is
            answered with the list), or a callable on tensors, which must be elementwise and is traced once, here.
            hard_sigmoid is PyTorch's, relu6(x + 3) / 6; Keras 2 has clip(0.2 x + 0.5, 0, 1), which is ONNX's default
            too: give `lambda x: (0.2 * x + 0.5).clamp(0, 1)` for these.
        cell_clip: clamps h' to [-cell_clip, cell_clip]. A GRU has no cell state; this is the clamp that an LSTM's
            cell_clip is, on the one state there is. (ONNX's `clip` is another: it clamps what goes into activations.)
        layer_norm: Ba et al. 2016 (arXiv:1607.06450): W_i x and W_h h are normalised, each over all its rows (eps
            1e-5), before they are added; gains weight_ln_ih_l[k], weight_ln_hh_l[k], biases bias_ih_l[k], bias_hh_l[k].
            With reset_after=False the products of (r, z) and of n are two, and each is normalised over its rows.
        zoneout: Krueger et al. 2016 (arXiv:1606.01305): in training each unit of h keeps its old value with this
            probability, drawn for each step; in evaluation h' = p h + (1 - p) h'.
        recurrent_dropout: Gal and Ghahramani 2016 (arXiv:1512.05287): in training the h that goes into W_hr, W_hz and
            W_hn is multiplied by a mask of zeros and 1/(1 - p), one [B, H] a sequence, layer and direction; the h in
            z h is not.

    Attributes: PyTorch's, and with layer_norm
        weight_ln_ih_l[k], weight_ln_hh_l[k] `[3*hidden_size]`, initially 1 (and with _reverse, as in PyTorch).

    Masks come from PyTorch's generator, before the program runs: layer by layer (after the dropout on its input),
    direction by direction, first recurrent_dropout's, then zoneout's. The backward and its backward use the same.

    A variant always runs on Weft, whatever `weft.disable()` and `WEFT=0` say of PyTorch's own modules, and in its
    parameters' dtype, under autocast too; half precisions compute in float32.

    Raises:
        ValueError, TypeError: a bad option; the message names it and says what would be right.
    """

    kind = "GRU"

    @_options.refusing_others
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        reset_after: bool = True,
        gate_activation: Activation = "sigmoid",
        activation: Activation = "tanh",
        cell_clip: float | None = None,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self._set_variant(
            {
                "reset_after": reset_after,
                "gate_activation": gate_activation,
                "activation": activation,
                "cell_clip": cell_clip,
                "layer_norm": layer_norm,
                "zoneout": zoneout,
                "recurrent_dropout": recurrent_dropout,
            }
        )
        self._reset_extra_parameters(self.hidden_size**-0.5)

    @overload
    def forward(
        self, input: Tensor, hx: Tensor | None = None, is_init: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
    def forward(self, input: Any, hx: Tensor | None = None, is_init: Tensor | None = None) -> tuple[Any, Any]:
        """`nn.GRU.forward`, and `is_init`, bool [T, B] ([B, T] with batch_first, [T] unbatched): where it holds the
        carry restarts from zeros before that step, so that one row of the batch can hold several episodes; the result
        is that of running them one by one. The direction backwards restarts where it enters an episode, at its last
        step.

        Raises:
            RuntimeError, ValueError: a shape that doesn't fit, in `nn.GRU`'s words.
            TypeError: an is_init that isn't bool.
            ValueError: is_init with a PackedSequence.
        """
        if is_init is None and self._is_plain():
            return super().forward(input, hx)
        return self._run(input, hx, is_init)

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, input: Tensor, hx: Tensor | None = None, is_init: Tensor | None = None
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class LSTM(Variant, nn.LSTM):
    """`nn.LSTM`'s superset. With every option at its default it is `nn.LSTM`, parameters, state_dict, errors and all.

    With s the gate activation and g the activation, a step is ::

        i = s(W_ii x + b_ii + W_hi h + b_hi + p_i c)      p_i, p_f, p_o: peepholes
        f = s(W_if x + b_if + W_hf h + b_hf + p_f c)
        u = g(W_ig x + b_ig + W_hg h + b_hg)
        c' = f c + i u
        o = s(W_io x + b_io + W_ho h + b_ho + p_o c')
        h' = o g(c'), with proj_size W_hr (o g(c'))

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype: as in
            `nn.LSTM`.
        gate_activation, activation: s and g, as in `weft.nn.GRU`.
        cell_clip: clamps c' to [-cell_clip, cell_clip] before it goes into o and h' and to the next step, as
            `cell_clip` of TensorFlow's LSTMCell does. (ONNX's `clip` is another: it clamps what goes into activations.)
        peepholes: Gers and Schmidhuber 2000, as in ONNX's LSTM (its input P): vectors, p_i and p_f on the old c, p_o on
            the new one.
        coupled_input_forget: one gate for both. True or "input": f = 1 - i, as in Greff et al. 2015 (arXiv:1503.04069)
            and as ONNX Runtime does ONNX's `input_forget`; "forget": i = 1 - f, as TensorFlow's
            CoupledInputForgetGateLSTMCell. The rows of the gate that isn't computed stay in weight_ih and its kin,
            unused, so that state_dicts fit; its peephole doesn't exist.
        layer_norm: Ba et al. 2016 (arXiv:1607.06450): W_i x and W_h h are normalised, each over all its rows (of the
            gates that are computed; eps 1e-5), before they are added, with gains weight_ln_ih_l[k], weight_ln_hh_l[k]
            and biases bias_ih_l[k], bias_hh_l[k]; and h' = o g(LN(c')), with weight_ln_c_l[k], bias_ln_c_l[k].
        zoneout: Krueger et al. 2016 (arXiv:1606.01305): a probability for h and c, or a pair (p_h, p_c). In training
            each unit keeps its old value with this probability, drawn for each step; h' is made of the c' that has not
            been zoned out. In evaluation the state is p times the old one and 1 - p times the new one.
        recurrent_dropout: Gal and Ghahramani 2016 (arXiv:1512.05287): in training the h that goes into W_h is
            multiplied by a mask of zeros and 1/(1 - p), one [B, H] a sequence, layer and direction.

    Attributes: PyTorch's, and
        weight_ci_l[k], weight_cf_l[k], weight_co_l[k] `[hidden_size]`: peepholes;
        weight_ln_ih_l[k], weight_ln_hh_l[k] `[4*hidden_size]`, weight_ln_c_l[k], bias_ln_c_l[k] `[hidden_size]`:
        layer_norm (all with _reverse, as in PyTorch; without bias there is no bias_ln_c).

    Masks come from PyTorch's generator, before the program runs: layer by layer (after the dropout on its input),
    direction by direction, first recurrent_dropout's, then zoneout's of h, then of c. The backward and its backward use
    the same.

    A variant always runs on Weft, whatever `weft.disable()` and `WEFT=0` say of PyTorch's own modules, and in its
    parameters' dtype, under autocast too; half precisions compute in float32.

    Raises:
        ValueError, TypeError: a bad option; the message names it and says what would be right.
    """

    kind = "LSTM"

    @_options.refusing_others
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: Activation = "sigmoid",
        activation: Activation = "tanh",
        cell_clip: float | None = None,
        peepholes: bool = False,
        coupled_input_forget: bool | str = False,
        layer_norm: bool = False,
        zoneout: float | tuple[float, float] = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
        self._set_variant(
            {
                "gate_activation": gate_activation,
                "activation": activation,
                "cell_clip": cell_clip,
                "peepholes": peepholes,
                "coupled_input_forget": coupled_input_forget,
                "layer_norm": layer_norm,
                "zoneout": zoneout,
                "recurrent_dropout": recurrent_dropout,
            }
        )
        self._reset_extra_parameters(self.hidden_size**-0.5)

    @overload
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None, is_init: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...
    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None, is_init: Tensor | None = None
    ) -> tuple[Any, Any]:
        """`nn.LSTM.forward`, and `is_init`, bool [T, B] ([B, T] with batch_first, [T] unbatched): where it holds h and
        c restart from zeros before that step; see `weft.nn.GRU.forward`, for errors too."""
        if is_init is None and self._is_plain():
            return super().forward(input, hx)
        return self._run(input, hx, is_init)

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None, is_init: Tensor | None = None
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
        @overload
        def __call__(
            self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class RNN(Variant, nn.RNN):
    """`nn.RNN`'s superset. With every option at its default it is `nn.RNN`, parameters, state_dict, errors and all.

    With g the activation, a step is h' = g(W_i x + b_i + W_h h + b_h).

    Args:
        input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional, device, dtype: as
            in `nn.RNN`.
        activation: g, any of `weft.nn.GRU`'s; takes the nonlinearity's place where it is given.
        cell_clip: clamps h' to [-cell_clip, cell_clip]; see `weft.nn.GRU`.
        layer_norm, zoneout, recurrent_dropout: as in `weft.nn.GRU`.

    Attributes: PyTorch's, and with layer_norm
        weight_ln_ih_l[k], weight_ln_hh_l[k] `[hidden_size]`, initially 1 (and with _reverse, as in PyTorch).

    Raises:
        ValueError, TypeError: a bad option; the message names it and says what would be right.
    """

    kind = "RNN"

    @_options.refusing_others
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation | None = None,
        cell_clip: float | None = None,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            nonlinearity=nonlinearity,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        self._set_variant(
            {
                "activation": activation,
                "cell_clip": cell_clip,
                "layer_norm": layer_norm,
                "zoneout": zoneout,
                "recurrent_dropout": recurrent_dropout,
            }
        )
        self._reset_extra_parameters(self.hidden_size**-0.5)

    @overload
    def forward(
        self, input: Tensor, hx: Tensor | None = None, is_init: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
    def forward(self, input: Any, hx: Tensor | None = None, is_init: Tensor | None = None) -> tuple[Any, Any]:
        """`nn.RNN.forward`, and `is_init`, bool [T, B] ([B, T] with batch_first, [T] unbatched): where it holds h
        restarts from zeros before that step; see `weft.nn.GRU.forward`, for errors too."""
        if is_init is None and self._is_plain():
            return super().forward(input, hx)
        return self._run(input, hx, is_init)

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, input: Tensor, hx: Tensor | None = None, is_init: Tensor | None = None
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
