"""Recurrent layers as every format here reads and writes them: one layout of the weights, and what the cell computes.

The layout is PyTorch's. Rows of a weight are gates, in these orders:

    GRU   r, z, n      r = s(X_r + H_r), z = s(X_z + H_z), h' = (1 - z) n + z h, and with g the activation
                       n = g(X_n + r H_n)                                    reset_after
                       n = g(X_n + W_hn (r h) + b_hn)                        not reset_after
    LSTM  i, f, g, o   c' = s(X_f + H_f) c + s(X_i + H_i) g(X_g + H_g), h' = s(X_o + H_o) k(c'), with proj W_hr h'
    RNN   h            h' = g(X + H)

where X = W_x x + b_x and H = W_h h + b_h.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from torch import Tensor

#: The gates by kind, in the order of the rows.
GATES: dict[str, tuple[str, ...]] = {"GRU": ("r", "z", "n"), "LSTM": ("i", "f", "g", "o"), "RNN": ("h",)}


class FormatError(ValueError):
    """A file that can't be read, or layers that a format can't express. The message is one line."""


@dataclasses.dataclass(frozen=True)
class Activation:
    """An elementwise function.

    - `name`: sigmoid, tanh, relu, identity, hard_sigmoid (clip(alpha x + beta, 0, 1)), hard_tanh, softsign, softplus,
      elu (alpha), selu, leaky_relu (alpha), silu, gelu, mish, exp, affine (alpha x + beta), scaled_tanh
      (alpha tanh(beta x)), thresholded_relu (alpha), relu6, hard_silu, log_sigmoid, gelu_tanh (its approximation).
    - `alpha`, `beta`: its parameters, NaN where it has none. PyTorch's hard_sigmoid has (1/6, 0.5), as Keras 3's;
      ONNX's default and Keras 2's is (0.2, 0.5).
    """

    name: str
    alpha: float = math.nan
    beta: float = math.nan

    def __str__(self) -> str:
        used = [f"{value:.9g}" for value in (self.alpha, self.beta) if not math.isnan(value)]
        return f"{self.name}({', '.join(used)})" if used else self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Activation) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


#: The name of a layer that is the whole of its file. No tensor's name can contain it.
UNNAMED = "(root)"
SIGMOID = Activation("sigmoid")
TANH = Activation("tanh")


@dataclasses.dataclass
class Direction:
    """The parameters of one direction of a layer; G gates, I inputs, H units, P outputs (H without projection).

    All are on the CPU and of one dtype, the file's own; half precisions stay what they are.
    """

    weight_x: Tensor  #: [G*H, I]
    weight_h: Tensor  #: [G*H, P]
    bias_x: Tensor | None = None  #: [G*H]
    bias_h: Tensor | None = None  #: [G*H]; None where the format has one bias, which is then bias_x
    projection: Tensor | None = None  #: LSTM: [P, H]
    peepholes: Tensor | None = None  #: LSTM: [3, H], of i, f, o
    norm_x: Tensor | None = None  #: [G*H]: gains of the normalised W_x x
    norm_h: Tensor | None = None  #: [G*H]: gains of the normalised W_h h
    norm_c: Tensor | None = None  #: LSTM: [H]: gains of the normalised cell state, which goes into k
    norm_c_bias: Tensor | None = None  #: LSTM: [H]
    h0: Tensor | None = None  #: [P] or [B, P]: an initial state that the file itself has; zeros otherwise
    c0: Tensor | None = None  #: LSTM: [H] or [B, H]
    reverse: bool = False  #: runs from the last step to the first; its results stay in the order of the input

    @property
    def input_size(self) -> int:
        """The features of an x."""
        return self.weight_x.shape[1]

    @property
    def output_size(self) -> int:
        """The features of this direction's y."""
        return self.weight_h.shape[1]


@dataclasses.dataclass
class Layer:
    """A recurrent layer of one direction or two, and what its cell computes."""

    #: its name in the file: a module's, a node's or a key; with the layer's number where a module has several
    name: str
    kind: str  #: GRU, LSTM or RNN
    directions: Sequence[Direction]  #: one or two; of two the first is the forward one
    continues: bool = False  #: its input is known to be the output of the layer before it in the list
    reset_after: bool = True  #: GRU
    gate_activation: Activation = SIGMOID  #: s
    activation: Activation = TANH  #: g
    output_activation: Activation = TANH  #: LSTM: k
    clip: float | None = None  #: arguments of s and g are clamped to [-clip, clip], as ONNX does
    cell_clip: float | None = None  #: c' (a GRU's and an RNN's h') is clamped to [-cell_clip, cell_clip]
    coupled: str = ""  #: LSTM: "input": f = 1 - i; "forget": i = 1 - f. The unused rows of the weights are ignored
    norm_eps: float | None = None  #: layer normalisation as in `weft.nn`, with this epsilon; None: none
    merge: str = "concat"  #: how two directions become one output: concat, sum, mul, ave
    zoneout: tuple[float, float] = (0.0, 0.0)  #: of h and c, as in evaluation: p times the old, 1 - p times the new

    @property
    def label(self) -> str:
        """The layer's name in messages; "" for the only, unnamed layer of a file."""
        return "" if self.name == UNNAMED else self.name

    @property
    def called(self) -> str:
        """The layer's name in a sentence."""
        return self.label or "the layer"

    @property
    def hidden_size(self) -> int:
        """The units of a direction."""
        return self.directions[0].weight_h.shape[0] // len(GATES[self.kind])

    @property
    def input_size(self) -> int:
        """The features of an x."""
        return self.directions[0].input_size

    @property
    def output_size(self) -> int:
        """The features of the layer's y, of all directions."""
        count = len(self.directions) if self.merge == "concat" else 1
        return self.directions[0].output_size * count


@dataclasses.dataclass
class Source:
    """What a file (or an object in memory) holds.

    - `format`: pytorch, torch.export, onnx, keras, burn, flax, equinox, mlx, haiku or trace.
    - `notes`: what the file doesn't say and what was taken for it, a line each ("a state dict doesn't say which
      nonlinearity an RNN has: tanh is assumed; --options activation=relu says otherwise").
    - `ignored`: names of tensors that belong to no recurrent layer.
    - `unused`: those of them that lie in a layer's module, where they may change what it computes.
    """

    path: str
    format: str
    layers: list[Layer]
    trace: Trace | None = None  #: instead of layers
    notes: list[str] = dataclasses.field(default_factory=list)
    ignored: list[str] = dataclasses.field(default_factory=list)
    unused: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trace:
    """What an implementation that isn't here was given and what it answered; T steps, B rows, D directions.

    - `x`: [T, B, I]. `y`: [T, B, D*H].
    - `h0`, `hn`: [B, H] or [layers*D, B, H]; `c0`, `cn` likewise.
    - `gates`: by name (r, z, n of a GRU, i, f, g, o, c of an LSTM): [T, B, H], of the last layer's forward direction;
      what came out of the activation. Or by the name gates all of them in that order, without c: [T, B, G*H].
    """

    x: Tensor
    y: Tensor
    h0: Tensor | None = None
    c0: Tensor | None = None
    hn: Tensor | None = None
    cn: Tensor | None = None
    gates: dict[str, Tensor] = dataclasses.field(default_factory=dict)
