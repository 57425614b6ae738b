"""Every cell of this folder with random inputs of a given size: what the tests check and the benchmark times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .attention_decoder import AttentionDecoder
from .biquad import biquad, low_pass
from .conv_lstm import ConvLSTM
from .crf import LinearChainCRF
from .hmm import HMM
from .indrnn import IndRNN
from .kalman import Model, kalman_filter
from .layer_norm_gru import LayerNormGRU
from .mgu import MGU
from .min_rnn import MinGRU, MinLSTM
from .neural_ode import NeuralODE
from .peephole_lstm import PeepholeLSTM
from .policy_resets import Policy
from .selective_ssm import SelectiveSSM
from .sru import SRU
from .viterbi import viterbi
from .zoneout_lstm import ZoneoutLSTM


@dataclass(frozen=True)
class Size:
    """`width` is the number of units, states, tags or channels, whatever the cell has; `words` is how many an encoder
    has read, `image` the side of an image."""

    steps: int
    batch: int
    width: int
    words: int = 5
    image: int = 5


@dataclass
class Example:
    """A cell ready to be called: `function`, and `inputs` by name, tensors and tuples of tensors. `module` holds its
    parameters, if it has any."""

    function: Callable[..., Any]
    inputs: dict[str, Any]
    module: nn.Module | None = None

    def differentiable(self) -> dict[str, Tensor]:
        """Parameters and floating inputs by name; of an input that is a tuple, each by its place: state.0, state.1."""
        found: dict[str, Tensor] = dict(self.module.named_parameters()) if self.module is not None else {}
        for name, value in self.inputs.items():
            parts = {name: value} if isinstance(value, Tensor) else {f"{name}.{k}": v for k, v in enumerate(value)}
            found |= {part: tensor for part, tensor in parts.items() if tensor.is_floating_point()}
        return found

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Example:
        """The same with each floating input changed."""
        inputs = pytree.tree_map(lambda value: change(value) if value.is_floating_point() else value, self.inputs)
        return Example(self.function, inputs, self.module)

    def to(self, dtype: torch.dtype) -> Example:
        """The same in another floating dtype; the module is converted in place."""
        if self.module is not None:
            self.module.to(dtype)
        return self.mapped(lambda value: value.to(dtype))

    def __call__(self) -> Any:
        return self.function(**self.inputs)


def of_module(module: nn.Module, **inputs: Any) -> Example:
    return Example(module, inputs, module)


def sequence(size: Size, width: int | None = None) -> Tensor:
    return torch.randn(size.steps, size.batch, size.width if width is None else width)


def tokens(size: Size, count: int) -> Tensor:
    return torch.randint(count, (size.steps, size.batch))


def hidden(size: Size, scale: float = 0.5) -> Tensor:
    return scale * torch.randn(size.batch, size.width)


def recurrent(cell: type[nn.Module]) -> Callable[[Size], Example]:
    """An example for a cell that maps x [T, B, width] and h [B, width]."""
    return lambda size: of_module(cell(size.width, size.width), x=sequence(size), h=hidden(size))


def positive(cell: type[nn.Module]) -> Callable[[Size], Example]:
    """The same with an h above 0."""
    return lambda size: of_module(cell(size.width, size.width), x=sequence(size), h=hidden(size).abs() + 0.1)


def two_states(cell: type[nn.Module]) -> Callable[[Size], Example]:
    """An example for a cell that maps x [T, B, width] and a pair of [B, width]."""
    return lambda size: of_module(cell(size.width, size.width), x=sequence(size), state=(hidden(size), hidden(size)))


def layer_norm_gru(size: Size) -> Example:
    blocks = 8 if size.width % 64 == 0 else 2 if size.width % 2 == 0 else 1
    return of_module(LayerNormGRU(size.width, size.width, blocks), x=sequence(size), h=hidden(size))


def sru(size: Size) -> Example:
    return of_module(SRU(size.width), x=sequence(size), c=hidden(size))


def attention_decoder(size: Size) -> Example:
    lengths = torch.randint(1, size.words + 1, (size.batch,))
    memory, present = torch.randn(size.batch, size.words, size.width), torch.arange(size.words) < lengths[:, None]
    return of_module(AttentionDecoder(size.width, size.width), x=sequence(size), memory=memory, present=present)


def conv_lstm(size: Size) -> Example:
    x = torch.randn(size.steps, size.batch, size.width, size.image, size.image)
    return of_module(ConvLSTM(size.width, size.width), x=x)


def policy(size: Size) -> Example:
    starts = torch.rand(size.steps, size.batch) < 0.1
    return of_module(Policy(size.width, size.width, actions=6), seen=sequence(size), starts=starts, h=hidden(size))


def kalman(size: Size) -> Example:
    """A state of `width`, half of it observed, that rotates slowly and decays."""
    n, m = size.width, max(1, size.width // 2)
    turn = torch.linalg.matrix_exp(0.3 * (skew := torch.randn(n, n)) - 0.3 * skew.T)
    inputs = {
        "transition": 0.95 * turn,
        "transition_noise": 0.1 * torch.eye(n),
        "observation": torch.randn(m, n),
        "observation_noise": 0.5 * torch.eye(m),
        "mean": torch.randn(size.batch, n),
        "covariance": torch.eye(n).repeat(size.batch, 1, 1),
        "xs": sequence(size, m),
    }

    def run(mean: Tensor, covariance: Tensor, xs: Tensor, **model: Tensor) -> Any:
        return kalman_filter(Model(**model), mean, covariance, xs)

    return Example(run, inputs)


def neural_ode(size: Size) -> Example:
    y = torch.randn(size.batch, size.width)
    return of_module(NeuralODE(size.width, 2 * size.width), y=y, times=torch.linspace(0, 2, size.steps + 1))


def hmm(size: Size) -> Example:
    return of_module(HMM(size.width, symbols=11), observations=tokens(size, 11))


def best_path(size: Size) -> Example:
    inputs = {"initial": torch.randn(size.width), "transition": torch.randn(size.width, size.width)}
    return Example(viterbi, {**inputs, "emissions": sequence(size)})


def crf(size: Size) -> Example:
    lengths = torch.randint(1, size.steps + 1, (size.batch,))
    inputs = {"emissions": sequence(size), "tags": tokens(size, size.width), "lengths": lengths}
    return of_module(LinearChainCRF(size.width), **inputs)


def audio(size: Size) -> Example:
    b, a = (coefficients.float() for coefficients in low_pass(0.05))
    return Example(lambda b, a, x: biquad(b, a, x)[0], {"b": b, "a": a, "x": torch.randn(size.steps, size.batch)})


def selective(size: Size) -> Example:
    module = SelectiveSSM(size.width, states=16 if size.width >= 16 else 3, rank=max(1, size.width // 16))
    return of_module(module, x=sequence(size))


CELLS: dict[str, Callable[[Size], Example]] = {
    "layer_norm_gru": layer_norm_gru,
    "peephole_lstm": two_states(PeepholeLSTM),
    "mgu": recurrent(MGU),
    "zoneout_lstm": two_states(ZoneoutLSTM),
    "policy_resets": policy,
    "min_gru": positive(MinGRU),
    "min_lstm": positive(MinLSTM),
    "sru": sru,
    "indrnn": recurrent(IndRNN),
    "selective_ssm": selective,
    "attention_decoder": attention_decoder,
    "conv_lstm": conv_lstm,
    "neural_ode": neural_ode,
    "kalman": kalman,
    "hmm": hmm,
    "viterbi": best_path,
    "crf": crf,
    "biquad": audio,
}
