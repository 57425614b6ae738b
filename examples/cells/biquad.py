"""A second-order filter over audio, sample by sample, differentiable in its coefficients.

The transposed direct form II, as in Smith: Introduction to Digital Filters, and in scipy.signal.lfilter:

    y = b0 x + s1
    s1' = b1 x - a1 y + s2
    s2' = b2 x - a2 y
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import weft

State = tuple[Tensor, Tensor]


def biquad(b: Tensor, a: Tensor, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """x [T, channels] filtered by b [3] and a [2] (a1 and a2; a0 is 1) -> (y [T, channels], the state after it)."""

    def step(state: State, x: Tensor) -> tuple[State, Tensor]:
        s1, s2 = state
        y = b[0] * x + s1
        return (b[1] * x - a[0] * y + s2, b[2] * x - a[1] * y), y

    if state is None:
        zeros = x.new_zeros(x.shape[1:])
        state = (zeros, zeros)
    last, y = weft.scan(step, state, x)
    return y, last


def low_pass(frequency: float, q: float = math.sqrt(0.5)) -> tuple[Tensor, Tensor]:
    """b [3] and a [2], float64, of a low-pass at `frequency`, a share of the sampling rate below 1/2 (Bristow-Johnson:
    Cookbook formulae for audio equalizer biquad filter coefficients)."""
    w = 2 * math.pi * frequency
    alpha, cos = math.sin(w) / (2 * q), math.cos(w)
    b = torch.tensor([(1 - cos) / 2, 1 - cos, (1 - cos) / 2], dtype=torch.float64)
    return b / (1 + alpha), torch.tensor([-2 * cos, 1 - alpha], dtype=torch.float64) / (1 + alpha)
