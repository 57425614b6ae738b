"""The cells of examples/cells compute the formulas of their papers: compared with references that share no code with
them.

The loop is Python's here, so a failure is one of a formula; test_cells.py holds weft.scan to the loop.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.biquad import biquad, low_pass
from cells.kalman import Model, kalman_filter
from cells.min_rnn import MinGRU, MinLSTM
from cells.neural_ode import odeint
from cells.python_loop import python_loop
from cells.selective_ssm import selective_scan
from cells.viterbi import viterbi

from cells import zoo


@pytest.fixture(autouse=True)
def _loop(monkeypatch):
    monkeypatch.setattr(weft, "scan", python_loop, raising=False)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)


def set_parameters(module: nn.Module, **values: Tensor | float) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.as_tensor(values.get(name, 0.0)))


# --- recurrent layers: PyTorch's own module where a setting of the cell is one, else the paper's formula for one unit


def test_without_peepholes_a_peephole_lstm_is_an_lstm() -> None:
    cell, lstm = zoo.PeepholeLSTM(3, 4), nn.LSTM(3, 4)
    weights = {"input.weight": lstm.weight_ih_l0, "input.bias": lstm.bias_ih_l0 + lstm.bias_hh_l0}
    set_parameters(cell, **weights, **{"recurrent.weight": lstm.weight_hh_l0})
    x = torch.randn(5, 2, 3)
    y, (h, c) = cell(x)
    with weft.disabled():
        expected, (last_h, last_c) = lstm(x)
    close(y, expected)
    close(h, last_h[0])
    close(c, last_c[0])


def test_a_peephole_looks_at_the_old_cell_for_input_and_forget_and_at_the_new_one_for_output() -> None:
    cell = zoo.PeepholeLSTM(1, 1)
    set_parameters(
        cell, peephole=torch.tensor([[2.0], [3.0], [5.0]]), **{"input.bias": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    )

    def sigmoid(v: float) -> float:
        return 1 / (1 + math.exp(-v))

    c = sigmoid(0.2 + 3 * 0.7) * 0.7 + sigmoid(0.1 + 2 * 0.7) * math.tanh(0.3)
    h = sigmoid(0.4 + 5 * c) * math.tanh(c)
    _, (found_h, found_c) = cell(torch.zeros(1, 1, 1), (torch.zeros(1, 1), torch.full((1, 1), 0.7)))
    assert found_c.item() == pytest.approx(c, rel=1e-12)
    assert found_h.item() == pytest.approx(h, rel=1e-12)


def test_zoneout_of_nothing_is_an_lstm_of_everything_the_initial_state_and_in_eval_their_mixture() -> None:
    lstm, x = nn.LSTM(3, 4), torch.randn(1, 2, 3)
    state = torch.randn(2, 4), torch.randn(2, 4)
    with weft.disabled():
        _, (new_h, new_c) = lstm(x, (state[0][None], state[1][None]))

    def cell(zoneout_h: float, zoneout_c: float, training: bool) -> tuple[Tensor, Tensor]:
        module = zoo.ZoneoutLSTM(3, 4, zoneout_h, zoneout_c).train(training)
        weights = {"input.weight": lstm.weight_ih_l0, "input.bias": lstm.bias_ih_l0 + lstm.bias_hh_l0}
        set_parameters(module, **weights, **{"recurrent.weight": lstm.weight_hh_l0})
        return module(x, state)[1]

    for found, expected in zip(cell(0, 0, True), (new_h[0], new_c[0]), strict=True):
        close(found, expected)
    for found, expected in zip(cell(1, 1, True), state, strict=True):
        close(found, expected)
    h, c = cell(0.25, 0.5, False)
    close(h, 0.25 * state[0] + 0.75 * new_h[0])
    close(c, 0.5 * state[1] + 0.5 * new_c[0])


def test_the_mgu_of_one_unit() -> None:
    cell = zoo.MGU(1, 1)
    set_parameters(
        cell,
        **{"input.weight": torch.tensor([[0.5], [0.6]]), "input.bias": torch.tensor([0.1, 0.2])},
        **{"forget.weight": 0.7, "candidate.weight": 0.8},
    )
    x, h = 0.3, 0.9
    f = 1 / (1 + math.exp(-(0.5 * x + 0.1 + 0.7 * h)))
    expected = (1 - f) * h + f * math.tanh(0.6 * x + 0.2 + 0.8 * f * h)
    assert cell(torch.full((1, 1, 1), x), torch.full((1, 1), h))[1].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_the_layer_norm_gru_is_one_with_a_block_diagonal_matrix(blocks: int) -> None:
    cell = zoo.LayerNormGRU(3, 8, blocks)
    nn.init.normal_(cell.norm.weight)
    nn.init.normal_(cell.norm.bias)
    x, h = torch.randn(4, 2, 3), torch.randn(2, 8)
    width = 8 // blocks
    # Rows and columns of the dense matrix by block, gate and unit: block b's gate g of unit i is column 3 width b + ...
    dense = torch.block_diag(*cell.recurrent)
    expected = []
    state = h
    for row in x:
        parts = functional.layer_norm(
            state @ dense + row @ cell.input.weight.T, (24,), cell.norm.weight, cell.norm.bias
        )
        columns = torch.arange(24).view(blocks, 3, width)
        reset, candidate, update = (parts[:, columns[:, gate].reshape(-1)] for gate in range(3))
        update = torch.sigmoid(update - 1)
        state = update * torch.tanh(torch.sigmoid(reset) * candidate) + (1 - update) * state
        expected.append(state)
    close(cell(x, h)[0], torch.stack(expected))


def test_a_policy_starts_anew_where_an_episode_ends() -> None:
    cell = zoo.Policy(3, 4, actions=2)
    seen, starts = torch.randn(6, 1, 3), torch.tensor([0, 0, 1, 0, 0, 1], dtype=torch.bool)[:, None]
    whole, _ = cell(seen, starts, torch.randn(1, 4))
    part, _ = cell(seen[2:5], torch.zeros(3, 1, dtype=torch.bool))
    close(whole.logits[2:5], part.logits)
    close(whole.value[2:5], part.value)


@pytest.mark.parametrize("cell", [MinGRU, MinLSTM])
def test_step_by_step_and_in_logarithms_the_minimal_cells_agree(cell) -> None:
    module, x, h = cell(3, 4), 3 * torch.randn(20, 2, 3), torch.rand(2, 4) + 0.1
    for found, expected in zip(module(x, h), module.log_space(x, h), strict=True):
        close(found, expected, 1e-10)
    for found, expected in zip(module(x), module.log_space(x), strict=True):
        close(found, expected, 1e-10)


def test_sru_and_indrnn_of_one_unit() -> None:
    sru = zoo.SRU(1, highway_bias=-1.0)
    weights = {"input.weight": torch.tensor([[0.5], [0.6], [0.7]]), "v": torch.tensor([[0.8], [0.9]])}
    set_parameters(sru, **weights, bias=torch.tensor([[0.1], [-1.0]]))
    x, c = 0.3, 0.4
    f, r = (1 / (1 + math.exp(-v)) for v in (0.6 * x + 0.8 * c + 0.1, 0.7 * x + 0.9 * c - 1))
    new = f * c + (1 - f) * 0.5 * x
    h, last = sru(torch.full((1, 1, 1), x), torch.full((1, 1), c))
    assert last.item() == pytest.approx(new, rel=1e-12)
    alpha = math.sqrt(1 + 2 * math.exp(-1))
    assert h.item() == pytest.approx(r * new + (1 - r) * alpha * x, rel=1e-6)

    indrnn = zoo.IndRNN(1, 1)
    set_parameters(indrnn, recurrent=0.5, **{"input.weight": 0.7, "input.bias": 0.1})
    y, _ = indrnn(torch.tensor([1.0, -3.0]).view(2, 1, 1), torch.ones(1, 1))
    assert y.flatten().tolist() == pytest.approx([1.3, 0.0])


def test_an_attention_decoder_step_by_step_with_modules_of_pytorch() -> None:
    example = zoo.CELLS["attention_decoder"](zoo.Size(4, 3, 6))
    cell, x, memory, present = example.module, *example.inputs.values()
    state = [torch.zeros(3, 6)] * 2
    attended = torch.zeros(3, 6)
    found, weights = example()
    for t, row in enumerate(x):
        with weft.disabled():
            state = cell.cell(torch.cat([row, attended], 1), tuple(state))
        for b in range(3):  # padding is left out instead of masked
            words = memory[b, present[b]]
            w = torch.softmax(words @ (cell.query.weight @ state[0][b]), 0)
            close(weights[t, b, present[b]], w)
            assert (weights[t, b, ~present[b]] == 0).all()
            attended = attended.clone()
            attended[b] = torch.tanh(cell.output.weight @ torch.cat([w @ words, state[0][b]]))
        close(found[t], attended)


def test_a_conv_lstm_with_a_kernel_of_one_is_an_lstm_at_every_pixel() -> None:
    cell, lstm = zoo.ConvLSTM(3, 4, kernel=1), nn.LSTM(3, 4)
    weight = torch.cat([lstm.weight_ih_l0, lstm.weight_hh_l0], 1)[:, :, None, None]
    set_parameters(cell, **{"gates.weight": weight, "gates.bias": lstm.bias_ih_l0 + lstm.bias_hh_l0})
    x = torch.randn(5, 2, 3, 2, 3)
    with weft.disabled():
        expected, _ = lstm(x.permute(0, 1, 3, 4, 2).reshape(5, 12, 3))
    close(cell(x)[0], expected.view(5, 2, 2, 3, 4).permute(0, 1, 4, 2, 3))


# --- algorithms: all paths, one large system, a solution in closed form


def paths(states: int, steps: int) -> Tensor:
    """All sequences of states, [states ** steps, steps]."""
    return torch.tensor(list(itertools.product(range(states), repeat=steps)))


def path_scores(initial: Tensor, transition: Tensor, emissions: Tensor) -> Tensor:
    """For every path through emissions [T, S] the sum of the scores along it."""
    every = paths(emissions.shape[1], len(emissions))
    return (
        initial[every[:, 0]]
        + transition[every[:, :-1], every[:, 1:]].sum(1)
        + emissions[torch.arange(len(emissions)), every].sum(1)
    )


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_hmm_and_viterbi_against_all_paths(steps: int) -> None:
    hmm = zoo.CELLS["hmm"](zoo.Size(steps, 3, 4))
    observations = hmm.inputs["observations"]
    initial, transition = hmm.module.initial.log_softmax(0), hmm.module.transition.log_softmax(1)
    emissions = hmm.module.emission.log_softmax(0)[observations]
    likelihood = hmm()
    score, best = viterbi(initial, transition, emissions)
    for b in range(3):
        scores = path_scores(initial, transition, emissions[:, b])
        close(likelihood[b], scores.logsumexp(0))
        close(score[b], scores.max())
        assert best[:, b].tolist() == paths(4, steps)[scores.argmax()].tolist()


def test_all_observations_of_an_hmm_sum_to_one() -> None:
    hmm = zoo.HMM(3, symbols=2)
    every = torch.tensor(list(itertools.product(range(2), repeat=6))).T
    assert hmm(every).exp().sum().item() == pytest.approx(1, rel=1e-12)


def test_the_crf_is_a_distribution_over_tags() -> None:
    crf, emissions = zoo.LinearChainCRF(3), torch.randn(5, 2, 3)
    lengths = torch.tensor([5, 2])
    total = torch.zeros(2)
    for path in paths(3, 5):
        probability = (-crf(emissions, path[:, None].expand(5, 2), lengths)).exp()
        counted = torch.tensor([True, bool((path[2:] == 0).all())])  # of all continuations past the end one counts
        total += probability.detach() * counted
    close(total, torch.ones(2))


def test_the_kalman_filter_is_regression_on_all_states_at_once() -> None:
    example = zoo.CELLS["kalman"](zoo.Size(4, 2, 3))
    model = Model(*list(example.inputs.values())[:4])
    mean, covariance, xs = list(example.inputs.values())[4:]
    found = kalman_filter(model, mean, covariance, xs)
    f, q, h, r = model
    steps, n = len(xs), 3
    for b, last in itertools.product(range(2), range(1, steps + 1)):
        # The joint Gaussian of z_1 .. z_last, then the states given all observations.
        centre, spread = [], torch.zeros(last * n, last * n)
        m, p = mean[b], covariance[b]
        for t in range(last):
            m, p = f @ m, f @ p @ f.T + q
            centre.append(m)
            block = p
            for s in range(t, last):
                spread[s * n : s * n + n, t * n : t * n + n] = block
                spread[t * n : t * n + n, s * n : s * n + n] = block.T
                block = f @ block
        seen = torch.block_diag(*[h] * last)
        noise = torch.block_diag(*[r] * last)
        gaussian = torch.distributions.MultivariateNormal(seen @ torch.cat(centre), seen @ spread @ seen.T + noise)
        gain = spread @ seen.T @ torch.linalg.inv(gaussian.covariance_matrix)
        after = torch.cat(centre) + gain @ (xs[:last, b].flatten() - gaussian.mean)
        left = spread - gain @ seen @ spread
        close(found.mean[last - 1, b], after[-n:], 1e-10)
        close(found.covariance[last - 1, b], left[-n:, -n:], 1e-10)
        close(found.log_likelihood[:last, b].sum(), gaussian.log_prob(xs[:last, b].flatten()), 1e-10)


def test_runge_kutta_is_of_fourth_order() -> None:
    turn = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    y = torch.tensor([[1.0, 0.5]])
    exact = y @ torch.linalg.matrix_exp(3 * turn).T
    errors = [
        (odeint(lambda t, y: y @ turn.T, y, torch.linspace(0, 3, steps + 1))[-1] - exact).abs().max().item()
        for steps in (40, 80)
    ]
    assert errors[0] < 1e-4
    assert 14 < errors[0] / errors[1] < 18
    # Simpson's rule where the field depends on the time alone: exact for a cubic.
    ys = odeint(lambda t, y: 4 * t**3 + 0 * y, torch.zeros(1, 1), torch.tensor([0.0, 0.5, 2.0]))
    close(ys.flatten(), torch.tensor([0.0, 0.5**4, 2.0**4]))


def test_the_biquad_is_a_convolution_with_its_impulse_response() -> None:
    b, a = low_pass(0.05)
    impulse = np.zeros(60)  # from the difference equation y[t] = b0 x[t] + b1 x[t-1] + ... - a1 y[t-1] - a2 y[t-2]
    for t in range(60):
        feed = b[t].item() if t < 3 else 0.0
        impulse[t] = feed - sum(a[k].item() * impulse[t - 1 - k] for k in range(2) if t > k)
    x = torch.randn(60, 2)
    y, _ = biquad(b, a, x)
    for channel in range(2):
        close(y[:, channel], torch.from_numpy(np.convolve(x[:, channel], impulse)[:60]))


def test_the_biquad_is_scipys() -> None:
    signal = pytest.importorskip("scipy.signal")
    b, a = low_pass(0.05)
    x = torch.randn(500, 2)
    y, state = biquad(b, a, x[:300])
    rest, _ = biquad(b, a, x[300:], state)
    expected = signal.lfilter(b.numpy(), np.concatenate([[1.0], a.numpy()]), x.numpy(), axis=0)
    close(torch.cat([y, rest]), torch.from_numpy(expected))


def test_the_low_pass_passes_what_is_low() -> None:
    b, a = low_pass(0.1)

    def gain(frequency: float) -> float:
        z = torch.exp(torch.tensor(-2j * math.pi * frequency))
        return abs((b[0] + b[1] * z + b[2] * z * z) / (1 + a[0] * z + a[1] * z * z)).item()

    assert gain(0.0) == pytest.approx(1)
    assert gain(0.1) == pytest.approx(math.sqrt(0.5))
    assert gain(0.5) == pytest.approx(0, abs=1e-12)


def test_the_selective_scan_as_the_reference_of_mamba_writes_it() -> None:
    """selective_scan_ref of github.com/state-spaces/mamba: u, delta [B, D, L], B and C [B, N, L], discretised first."""
    u, delta = torch.randn(2, 4, 7), functional.softplus(torch.randn(2, 4, 7))
    a, b, c, d = -torch.rand(4, 3), torch.randn(2, 3, 7), torch.randn(2, 3, 7), torch.randn(4)
    delta_a = torch.exp(torch.einsum("bdl,dn->bdln", delta, a))
    delta_b_u = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
    state, ys = torch.zeros(2, 4, 3), []
    for t in range(7):
        state = delta_a[:, :, t] * state + delta_b_u[:, :, t]
        ys.append(torch.einsum("bdn,bn->bd", state, c[:, :, t]))
    expected = torch.stack(ys, dim=2) + u * d[:, None]
    u, delta, b, c = (value.permute(2, 0, 1) for value in (u, delta, b, c))
    close(selective_scan(u, delta, a, b, c, d).permute(1, 2, 0), expected)
