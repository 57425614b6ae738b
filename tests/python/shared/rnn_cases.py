"""Recurrent modules in random configurations, and PyTorch's results for them."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import weft


@dataclasses.dataclass
class Case:
    module: nn.RNNBase
    x: Tensor
    h0: Tensor | tuple[Tensor, Tensor] | None

    def run(self) -> list[Tensor]:
        """y, hn and, of an LSTM, cn."""
        y, state = self.module(self.x, self.h0)
        return [y, *(state if isinstance(state, tuple) else [state])]

    def run_eager(self) -> list[Tensor]:
        with weft.disabled():
            return self.run()

    def leaves(self) -> list[Tensor]:
        states = [] if self.h0 is None else list(self.h0) if isinstance(self.h0, tuple) else [self.h0]
        return [self.x, *states, *self.module.parameters()]


def primitive_is_missing(kind: str, low: torch.dtype) -> bool:
    """Whether eager PyTorch can't run a padded LSTM under autocast to `low`: it asks oneDNN for one primitive of that
    type, which not every processor has (none with AVX2 alone), and raises a RuntimeError."""
    ops = torch.ops.mkldnn
    has = ops._is_mkldnn_bf16_supported if low == torch.bfloat16 else ops._is_mkldnn_fp16_supported
    return kind == "LSTM" and not has()


def make(kind: str, *, input_size=5, hidden=7, layers=1, bias=True, batch_first=False, steps=4, batch=3,
         dtype=torch.float32, with_state=True, contiguous=True, bidirectional=False, dropout=0.0,
         proj_size=0) -> Case:  # fmt: skip
    """kind: GRU, LSTM, RNN_TANH or RNN_RELU; proj_size is an LSTM's alone."""
    options = dict(bias=bias, batch_first=batch_first, dtype=dtype, num_layers=layers, bidirectional=bidirectional)
    options |= dict(dropout=dropout) | (dict(proj_size=proj_size) if proj_size else {})
    if kind.startswith("RNN"):
        module = nn.RNN(input_size, hidden, nonlinearity=kind[4:].lower(), **options)
    else:
        module = getattr(nn, kind)(input_size, hidden, **options)
    x = torch.randn(*((batch, steps) if batch_first else (steps, batch)), input_size, dtype=dtype)
    if not contiguous:
        x = torch.randn(*x.shape[:2], 2 * input_size, dtype=dtype)[..., ::2]
    directions = 2 if bidirectional else 1
    states = [torch.randn(layers * directions, batch, size, dtype=dtype) for size in (proj_size or hidden, hidden)]
    if not contiguous:
        states = [state.transpose(0, 1).contiguous().transpose(0, 1) for state in states]
    for tensor in (x, *states):
        tensor.requires_grad_()
    h0 = None if not with_state else tuple(states) if kind == "LSTM" else states[0]
    return Case(module, x, h0)


KINDS = ("GRU", "LSTM", "RNN_TANH", "RNN_RELU")


def random_cases(kind: str, count: int) -> Iterator[Case]:
    choose = random.Random(f"{kind} cases")
    for _ in range(count):
        hidden = choose.choice((1, 3, 8, 16, 31, 48))
        projects = kind == "LSTM" and hidden > 1 and choose.random() < 0.3
        yield make(
            kind,
            input_size=choose.choice((1, 2, 5, 16, 33)),
            hidden=hidden,
            proj_size=choose.randrange(1, hidden) if projects else 0,
            bidirectional=choose.random() < 0.3,
            layers=choose.choice((1, 1, 2, 3)),
            bias=choose.random() < 0.7,
            batch_first=choose.random() < 0.4,
            steps=choose.choice((1, 2, 3, 7, 20)),
            batch=choose.choice((0, 1, 2, 3, 5, 17)),
            dtype=choose.choice((torch.float32, torch.float64)),
            with_state=choose.random() < 0.6,
            contiguous=choose.random() < 0.6,
        )


def twin(case: Case) -> Case:
    """The same module again, sharing nothing."""
    module = copy.deepcopy(case.module)
    fresh = [leaf.detach().clone().requires_grad_() for leaf in case.leaves()[: -len(list(module.parameters()))]]
    h0 = None if case.h0 is None else tuple(fresh[1:]) if isinstance(case.h0, tuple) else fresh[1]
    return Case(module, fresh[0], h0)
