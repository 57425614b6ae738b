"""The Kalman filter, many series at once, differentiable in all its matrices.

Kalman: A New Approach to Linear Filtering and Prediction Problems, 1960. For z' = F z + N(0, Q) and x = H z + N(0, R):

    predict   m = F m               P = F P F^T + Q
    update    S = H P H^T + R       K = P H^T S^-1       m = m + K (x - H m)       P = P - K H P

The update uses one small solve a step. Besides the means and covariances it gives the log-likelihood, which is what one
trains on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

import weft


class Model(NamedTuple):
    """transition [n, n] and observation [m, n], and the covariances of their noise, [n, n] and [m, m]."""

    transition: Tensor
    transition_noise: Tensor
    observation: Tensor
    observation_noise: Tensor


class Filtered(NamedTuple):
    """After each observation: mean [T, B, n], covariance [T, B, n, n], log-likelihood of the observation [T, B]."""

    mean: Tensor
    covariance: Tensor
    log_likelihood: Tensor


def kalman_filter(model: Model, mean: Tensor, covariance: Tensor, xs: Tensor) -> Filtered:
    """Filters xs [T, B, m]; N(mean [B, n], covariance [B, n, n]) is what is believed of the state before the first."""
    f, q, h, r = model

    def step(belief: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Filtered]:
        m, p = belief
        m, p = m @ f.T, f @ p @ f.T + q
        error = x - m @ h.T
        hp = h @ p
        factor = torch.linalg.cholesky(hp @ h.T + r)
        gain = torch.cholesky_solve(hp, factor)  # K transposed: S^-1 H P
        scaled = torch.linalg.solve_triangular(factor, error[:, :, None], upper=False)[:, :, 0]
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        likelihood = -0.5 * (scaled * scaled).sum(-1) - log_det - 0.5 * x.shape[-1] * math.log(2 * math.pi)
        m = m + (error[:, None] @ gain)[:, 0]
        p = p - gain.mT @ hp
        return (m, p), Filtered(m, p, likelihood)

    return weft.scan(step, (mean, covariance), xs)[1]
