"""minGRU and minLSTM: gates that see only the input, so that the recurrence is h = a * h + b.

Feng, Tung, Ahmed, Bengio, Hajimirsadeghi: Were RNNs All We Needed?, arXiv 2410.01201. Three ways to compute them, which
agree: step by step (`forward`), as an associative scan of (a, b) pairs (`parallel`), and the paper's own, in logarithms
(`log_space`; appendix B, after Heinsen, arXiv 2311.06281), which needs b and h positive and so the paper's g for the
candidate and the initial state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import weft


def g(x: Tensor) -> Tensor:
    """A positive activation with linear growth: x + 1/2 above 0, sigmoid(x) below."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def log_g(x: Tensor) -> Tensor:
    """log(g(x)), without the overflow."""
    return torch.where(x >= 0, (functional.relu(x) + 0.5).log(), functional.logsigmoid(x))


class Linear(nn.Module):
    """h = a * h + b over x [T, B, inputs] from h [B, hidden], which is positive -> (y [T, B, hidden], last h).

    A cell says what a and b are, as `coefficients`, and as logarithms in `log_coefficients`.
    """

    hidden: int

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def log_coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def initial(self, x: Tensor) -> Tensor:
        return x.new_full((x.shape[1], self.hidden), 0.5)  # g(0)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.coefficients(x)
        h = a * h + b
        return h, h

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        last, y = weft.scan(self.step, self.initial(x) if h is None else h, x)
        return y, last

    def parallel(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        def after(first: tuple[Tensor, Tensor], then: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return first[0] * then[0], then[0] * first[1] + then[1]

        a, b = weft.associative_scan(after, self.coefficients(x))
        y = a * (self.initial(x) if h is None else h) + b
        return y, y[-1]

    def log_space(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        log_a, log_b = self.log_coefficients(x)
        log_h = (self.initial(x) if h is None else h).log()
        decay = log_a.cumsum(0)
        summed = torch.logcumsumexp(torch.cat([log_h[None], log_b - decay]), dim=0)
        y = (decay + summed[1:]).exp()
        return y, y[-1]


class MinGRU(Linear):
    """z = sigmoid(W_z x), h = (1 - z) * h + z * g(W_h x)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(inputs, 2 * hidden)

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, candidate = self.gates(x).chunk(2, dim=-1)
        return torch.sigmoid(-z), torch.sigmoid(z) * g(candidate)

    def log_coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, candidate = self.gates(x).chunk(2, dim=-1)
        return functional.logsigmoid(-z), functional.logsigmoid(z) + log_g(candidate)


class MinLSTM(Linear):
    """f, i = sigmoid(W_f x), sigmoid(W_i x), made to sum to 1; h = f * h + i * g(W_h x)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(inputs, 3 * hidden)

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f, i, candidate = self.gates(x).chunk(3, dim=-1)
        f, i = torch.sigmoid(f), torch.sigmoid(i)
        return f / (f + i), i / (f + i) * g(candidate)

    def log_coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f, i, candidate = self.gates(x).chunk(3, dim=-1)
        difference = functional.softplus(-f) - functional.softplus(-i)
        return functional.logsigmoid(-difference), functional.logsigmoid(difference) + log_g(candidate)
