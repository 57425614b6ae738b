"""weft.nn's variants against the loops of reference_cells.py, and as modules."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from variant_cases import VARIANTS, Case, variant

import weft
import weft.nn

ALL = pytest.mark.parametrize("name", VARIANTS)
KINDS = pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])


@pytest.mark.parametrize("train", [True, False])
@ALL
def test_outputs_and_gradients(name, train):
    variant(name, train=train).check()


@ALL
def test_layers_and_directions(name):
    variant(name, num_layers=2, bidirectional=True, batch_first=True, dropout=0.4, with_state=False).check()


@pytest.mark.parametrize("steps, batch, hidden", [(1, 1, 1), (1, 2, 7), (3, 0, 7), (6, 33, 17), (3, 1, 260)])
@ALL
def test_shapes(name, steps, batch, hidden):
    """One step, no rows, sizes that no vector divides, rows for two threads, units for two threads.

    Programs are compiled for each number of units, but not for each number of steps or rows. The other tests have seven
    units too, and share the programs.
    """
    if "projected" in name and hidden < 4:
        hidden = 4
    variant(name, steps=steps, batch=batch, hidden=hidden).check(rtol=1e-8, atol=1e-8)


@ALL
def test_float32(name):
    variant(name, dtype=torch.float32, hidden=24, steps=6).check(rtol=2e-4, atol=2e-4)


@ALL
def test_gradcheck(name):
    case = variant(name, input_size=2, hidden=4, steps=3, batch=2)
    assert gradcheck(lambda *_: tuple(case.ours()), case.leaves())


@pytest.mark.slow
@ALL
def test_gradgradcheck(name):
    case = variant(name, input_size=2, hidden=4, steps=2, batch=1)
    assert gradgradcheck(lambda *_: tuple(case.ours()), case.leaves())


@st.composite
def combinations(draw):
    kind = draw(st.sampled_from(["GRU", "LSTM", "RNN"]))
    activations = st.sampled_from(["tanh", "relu", "hard_sigmoid", "sigmoid", "softsign", "elu", "identity"])
    options = {
        "input_size": draw(st.sampled_from([1, 3, 16])),
        "hidden": draw(st.sampled_from([4, 5, 16, 19])),
        "steps": draw(st.integers(1, 5)),
        "batch": draw(st.sampled_from([0, 1, 2, 5])),
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
        "train": draw(st.booleans()),
        "with_state": draw(st.booleans()),
        "with_init": draw(st.booleans()),
        "activation": draw(activations),
        "cell_clip": draw(st.sampled_from([None, 0.3, 1.5])),
        "layer_norm": draw(st.booleans()),
        "zoneout": draw(st.sampled_from([0.0, 0.25, 1.0])),
        "recurrent_dropout": draw(st.sampled_from([0.0, 0.3])),
    }
    if options["num_layers"] > 1:
        options["dropout"] = draw(st.sampled_from([0.0, 0.4]))
    if kind != "RNN":
        options["gate_activation"] = draw(st.sampled_from(["sigmoid", "hard_sigmoid", "tanh"]))
    if kind == "GRU":
        options["reset_after"] = draw(st.booleans())
    if kind == "LSTM":
        options["peepholes"] = draw(st.booleans())
        options["coupled_input_forget"] = draw(st.sampled_from([False, "input", "forget"]))
        options["proj_size"] = draw(st.sampled_from([0, 0, 2]))
        options["zoneout"] = draw(st.sampled_from([0.0, 0.25, (0.1, 0.5), (0.0, 0.5), (0.5, 0.0)]))
    return kind, options


@settings(max_examples=40, deadline=None, derandomize=True)
@given(combinations())
def test_random_combinations(combination):
    kind, options = combination
    torch.manual_seed(0)
    weft.reset_stats()
    Case(kind, **options).check(rtol=1e-7, atol=1e-7)


# ---- what single options mean


@KINDS
def test_without_options_it_is_pytorchs_module(kind):
    """The same initialisation, parameters and results, bit by bit, and the same switch."""
    torch.manual_seed(3)
    ours = getattr(weft.nn, kind)(5, 7, 2, bidirectional=True)
    torch.manual_seed(3)
    theirs = getattr(nn, kind)(5, 7, 2, bidirectional=True)
    assert isinstance(ours, type(theirs))
    for (a, p), (b, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert a == b and torch.equal(p, q)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(4, 3, 5)
    assert torch.equal(ours(x)[0], theirs(x)[0])
    calls = weft.stats()["calls"]
    with weft.disabled():
        assert torch.equal(ours(x)[0], theirs(x)[0])
    assert weft.stats()["calls"] == calls
    assert repr(ours) == repr(theirs)


def test_positional_arguments_are_in_pytorchs_order():
    gru = weft.nn.GRU(3, 4, 2, False, True, 0.1, True)
    assert (gru.num_layers, gru.bias, gru.batch_first, gru.dropout, gru.bidirectional) == (2, False, True, 0.1, True)
    assert weft.nn.RNN(3, 4, 2, "relu", False).nonlinearity == "relu"
    assert weft.nn.LSTM(3, 4, 1, True, False, 0.0, False, 2).proj_size == 2


def test_zoneout_in_training_keeps_and_in_evaluation_mixes():
    case = Case("LSTM", zoneout=(1.0, 0.0), with_init=False)
    y, hn, cn = case.ours()
    assert torch.equal(y, case.states[0].expand_as(y)) and torch.equal(hn, case.states[0])
    assert not torch.equal(cn, case.states[1])
    case = Case("GRU", zoneout=0.3, with_init=False, steps=1, batch=200, hidden=50)
    y, old = case.ours()[0][0], case.states[0][0]
    case.module.eval()
    mixed = case.ours()[0][0]
    case.module.zoneout = 0.0
    new = case.ours()[0][0]
    torch.testing.assert_close(mixed, 0.3 * old + 0.7 * new)
    kept = y == old
    assert abs(kept.double().mean() - 0.3) < 0.02 and torch.equal(y[~kept], new[~kept])


@pytest.mark.parametrize("options", [{"zoneout": 0.4}, {"recurrent_dropout": 0.4}])
def test_masks_come_from_pytorchs_generator(options):
    case = Case("GRU", **options)
    first, same, other = (case.outputs(case.module, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, same) and not torch.equal(first, other)
    case.module.eval()
    first, other = (case.outputs(case.module, seed)[0] for seed in (0, 1))
    assert torch.equal(first, other)


def test_recurrent_dropout_is_one_mask_a_sequence():
    """An RNN that adds up its masked state: after t steps the sum is the mask to the power t, whatever the step."""
    module = weft.nn.RNN(1, 64, activation="identity", recurrent_dropout=0.5, bias=False, dtype=torch.float64)
    with torch.no_grad():
        module.weight_ih_l0.zero_()
        module.weight_hh_l0.copy_(torch.eye(64))
    y = module(torch.zeros(5, 3, 1, dtype=torch.float64), torch.ones(1, 3, 64, dtype=torch.float64))[0]
    for t in range(5):
        torch.testing.assert_close(y[t], y[0] ** (t + 1))
    assert set(y[0].unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("bidirectional", [False, True])
@KINDS
def test_is_init_is_running_the_pieces_one_by_one(kind, bidirectional):
    """Rows restart at different steps. A row's first piece begins with the given state, its other pieces with zeros."""
    case = Case(kind, steps=9, batch=4, bidirectional=bidirectional, with_init=False)
    case.is_init = torch.zeros(9, 4, dtype=torch.bool)
    starts = {0: [0], 1: [0, 3, 4], 2: [0, 8], 3: [0, 1, 5]}
    for row, steps in starts.items():
        case.is_init[steps[1:], row] = True
    y = case.ours()[0]
    for row, steps in starts.items():
        for k, (begin, end) in enumerate(zip(steps, [*steps[1:], 9], strict=True)):
            states = [s[:, row].clone() for s in case.states]
            for state in states:
                if k > 0:
                    state[0] = 0
                if bidirectional and end < 9:
                    state[1] = 0
            hx = tuple(states) if kind == "LSTM" else states[0]
            piece = case.module(case.x[begin:end, row], hx)[0]
            torch.testing.assert_close(y[begin:end, row], piece)


def test_is_init_at_step_0_drops_the_state_and_its_nan():
    case = Case("GRU", with_init=False)
    case.is_init = torch.ones(4, 3, dtype=torch.bool)
    with torch.no_grad():
        case.states[0].fill_(float("nan"))
    assert case.ours()[0].isfinite().all()


# ---- activations

NAMED = [
    "sigmoid", "tanh", "relu", "hard_sigmoid", "hardsigmoid", "identity", "linear", "hard_tanh", "hard_swish", "elu",
    "gelu", "leaky_relu", "log_sigmoid", "mish", "relu6", "selu", "silu", "softplus", "softsign",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_named_activations(name):
    """Also at numbers far from zero, where exponentials overflow."""
    case = Case("RNN", activation=name, hidden=9, steps=1, batch=5)
    with torch.no_grad():
        case.module.weight_ih_l0.mul_(30)
    case.check(rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        case.x.mul_(1e4)
    for gradient in case.gradients(case.ours()):
        assert gradient.isfinite().all()


def test_every_documented_name_is_tested():
    with pytest.raises(
        ValueError, match=r"there is no activation 'sigmoidal'; there are (.*), and any callable"
    ) as info:
        weft.nn.GRU(2, 3, activation="sigmoidal")
    names = str(info.value).split("there are ")[1].split(", and any")[0].split(", ")
    assert set(names) == {*NAMED, "hardtanh", "swish", "logsigmoid", "hardswish"}


def test_callables():
    for function in (torch.tanh, nn.SiLU(), nn.ELU(0.3), lambda x: torch.where(x > 0, x, torch.expm1(x))):
        Case("GRU", activation=function).check()


FIVE = torch.ones(5)


@pytest.mark.parametrize(
    "function, why",
    [
        (lambda x: x - x.mean(), "it isn.t elementwise"),
        (lambda x: x - x.amax(1, keepdim=True), "it isn't elementwise"),
        (lambda x: x.flip(1), "it isn't elementwise"),
        (lambda x: x.sum(1), r"must return a torch\.\w+ tensor \[B, H\]"),
        (lambda x: (x, x), r"must return"),
        (lambda x: x > 0, r"must return"),
        (lambda x: x if x.sum() > 0 else -x, "tracing it failed"),
        (lambda x: x.lgamma(), "no op for it"),
        (lambda x: torch.dropout(x, 0.5, True), "several tensors"),
        (lambda x: x * FIVE, "isn't its argument"),
        (nn.PReLU(), "has parameters"),
    ],
)
def test_callables_that_are_no_activations(function, why):
    with pytest.raises(ValueError, match=f"(?s)^activation: .*{why}"):
        weft.nn.GRU(2, 3, activation=function)
