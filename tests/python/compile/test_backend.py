"""torch.compile(backend="weft"): one graph, results equal to eager mode's, few compilations."""

from __future__ import annotations

import copy
import subprocess
import textwrap
import time

import pytest
import torch
import warm_python
from torch import nn
from torch._dynamo.utils import counters

import weft
from weft import backend

CELLS = {
    "rnn_tanh": lambda *a, **k: nn.RNN(*a, nonlinearity="tanh", **k),
    "rnn_relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
cells = pytest.mark.parametrize("cell", CELLS)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


class Language(nn.Module):
    """Embedding, recurrence, dropout, linear, loss."""

    def __init__(self, cell="gru", layers=1, batch_first=True, dropout=0.25, tied=False, bias=True):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.rnn = CELLS[cell](8, 8, layers, batch_first=batch_first, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(8, 11)
        if tied:
            self.linear.weight = self.embedding.weight

    def forward(self, x, y):
        logits = self.linear(self.dropout(self.rnn(self.embedding(x))[0]))
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def tokens(steps=7, batch=3):
    return torch.randint(0, 11, (batch, steps)), torch.randint(0, 11, (batch, steps))


def train(model, step, batches, make_optimizer):
    """Losses and the model's parameters after one step a batch."""
    optimizer = make_optimizer(model.parameters())
    losses = []
    for i, batch in enumerate(batches):
        torch.manual_seed(100 + i)  # seeds the dropout
        optimizer.zero_grad()
        loss = step(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), list(model.parameters())


def assert_close(got, want, tolerance):
    for a, b in zip(got, want, strict=True):
        assert (a - b).norm() <= tolerance * b.norm().clamp_min(1e-3), f"{(a - b).norm() / b.norm():.1e}"


def assert_trains_as_eager(model, batches, make_optimizer, tolerance=1e-5, **options):
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="weft", fullgraph=True, **options)
    losses, parameters = train(model, compiled, batches, make_optimizer)
    with weft.disabled():
        want_losses, want_parameters = train(plain, plain, batches, make_optimizer)
    assert_close([losses], [want_losses], tolerance)
    assert_close(parameters, want_parameters, tolerance)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


# ---- what it computes


@cells
@pytest.mark.parametrize("layers", [1, 2])
def test_five_steps_of_training_equal_eager(cell, layers):
    before = backend.stats.calls
    assert_trains_as_eager(Language(cell, layers), [tokens() for _ in range(5)], sgd)
    assert graphs() == 1
    assert backend.stats.calls == before + 2  # one program forward, one backward


def test_five_steps_of_adam_equal_eager_in_double():
    batches = [tokens() for _ in range(5)]
    assert_trains_as_eager(Language("lstm").double(), batches, torch.optim.Adam, tolerance=1e-9)


@cells
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_inference_equals_eager(cell, batch_first, bias):
    model = CELLS[cell](5, 6, 2, batch_first=batch_first, bias=bias)
    x, h = torch.randn(4, 3, 5), torch.randn(2, 4 if batch_first else 3, 6)
    state = (h, torch.randn_like(h)) if cell == "lstm" else h
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    for arguments in ((x,), (x, state)):
        with torch.no_grad():
            got = compiled(*arguments)
            with weft.disabled():
                want = model(*arguments)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_plain_gru_trains_through_its_state():
    gru = nn.GRU(4, 5)
    compiled = torch.compile(gru, backend="weft", fullgraph=True)
    x, h = torch.randn(6, 2, 4, requires_grad=True), torch.randn(1, 2, 5, requires_grad=True)
    inputs = [x, h, *gru.parameters()]

    def gradients(f):
        y, hn = f(x, h)
        return torch.autograd.grad((y.sin().sum() + hn.cos().sum()), inputs)

    with weft.disabled():
        want = gradients(gru)
    torch.testing.assert_close(gradients(compiled), want, rtol=1e-4, atol=1e-6)


def test_dropout_draws_eagers_numbers_and_eval_switches_it_off():
    model = Language(dropout=0.5)
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    batch = tokens()

    def losses(f):
        model.train()
        torch.manual_seed(3)
        first = [f(*batch).item(), f(*batch).item()]
        model.eval()
        return [*first, f(*batch).item(), f(*batch).item()]

    got = losses(compiled)
    with weft.disabled():
        want = losses(model)
    assert got == pytest.approx(want, rel=1e-6)
    assert got[0] != got[1] and got[2] == got[3]


def test_weights_may_be_tied():
    assert_trains_as_eager(Language(tied=True), [tokens() for _ in range(3)], sgd)


def test_frozen_weights_get_no_gradient():
    model = Language()
    model.rnn.weight_hh_l0.requires_grad_(False)
    model.embedding.requires_grad_(False)
    torch.compile(model, backend="weft", fullgraph=True)(*tokens()).backward()
    assert model.rnn.weight_hh_l0.grad is None and model.embedding.weight.grad is None
    assert model.rnn.weight_ih_l0.grad is not None


def test_two_calls_before_one_backward():
    model, a, b = Language(dropout=0.0), tokens(), tokens()
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    (compiled(*a) + 2 * compiled(*b)).backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with weft.disabled():
        (model(*a) + 2 * model(*b)).backward()
    assert_close(got, [p.grad for p in model.parameters()], 1e-5)


def test_buffers_change_in_order():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 3)
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            y = self.rnn(x)[0]
            z = y * self.mean.tanh()  # the value before
            self.mean.lerp_(y.detach().mean((0, 1)), 0.5)
            return z + self.mean  # the value after

    model = Counting()
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="weft", fullgraph=True)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                x = torch.randn(5, 2, 3)
                got = compiled(x)
                with weft.disabled():
                    want = plain(x)
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(model.mean, plain.mean, rtol=1e-5, atol=1e-6)


def test_what_weft_cannot_compile_runs_in_the_same_graph():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 4, 2, bidirectional=True)
            self.conv = nn.Conv1d(8, 3, 3, padding=1)

        def forward(self, x):
            y = self.rnn(x)[0]
            return self.conv(y.permute(1, 2, 0)).cumsum(-1), torch.fft.rfft(y, dim=0).abs().topk(2).values

    model, x = Odd(), torch.randn(5, 3, 4)
    weft.reset_stats()
    with torch.no_grad():
        got = torch.compile(model, backend="weft", fullgraph=True)(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)
    assert graphs() == 1
    assert weft.stats()["extern"]["aten.convolution.default"] == 1


# ---- how often it compiles


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dynamic", "most"), [(None, 2), (True, 1)])
def test_nine_lengths_give_few_graphs(training, dynamic, most):
    model = Language("lstm", dropout=0.0)
    compiled = torch.compile(model, backend="weft", fullgraph=True, dynamic=dynamic)
    for steps in (5, 7, 9, 12, 17, 33, 6, 50, 8):
        batch = tokens(steps)
        with torch.set_grad_enabled(training):
            loss = compiled(*batch)
            with weft.disabled():
                torch.testing.assert_close(loss, model(*batch), rtol=1e-5, atol=1e-6)
            if training:
                loss.backward()
    assert graphs() <= most


def test_length_does_not_slow_compilation():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so that a thread's waiting doesn't count

    def seconds(steps):
        torch._dynamo.reset()
        model, batch = Language(), tokens(steps, 1)
        start = time.process_time()
        torch.compile(model, backend="weft", fullgraph=True, dynamic=False)(*batch).backward()
        return time.process_time() - start

    try:
        seconds(15)  # the first call imports modules
        short, long = seconds(15), seconds(1500)
    finally:
        torch.set_num_threads(threads)
    assert long < 2 * short + 0.2, (short, long)


def test_batch_size_does_not_compile_anew_either():
    gru = nn.GRU(3, 4)
    compiled = torch.compile(gru, backend="weft", fullgraph=True)
    with torch.no_grad():
        for batch in (2, 3, 4, 5, 9):
            torch.testing.assert_close(compiled(torch.ones(4, batch, 3))[0].shape, torch.Size((4, batch, 4)))
    assert graphs() <= 2


# ---- how it fits in


def test_it_is_found_without_importing_weft():
    code = """
        import sys, torch
        assert "weft" in torch._dynamo.list_backends() and "weft" not in sys.modules
        gru = torch.nn.GRU(3, 4)
        with torch.no_grad():
            y, h = torch.compile(gru, backend="weft", fullgraph=True)(torch.ones(5, 2, 3))
        assert "weft" in sys.modules and y.shape == (5, 2, 4)
        from weft import backend
        assert backend.stats.calls == 1, backend.stats
    """
    subprocess.run([warm_python.command(), "-c", textwrap.dedent(code)], check=True)


@cells
@pytest.mark.parametrize("other", ["aot_eager"])
def test_other_backends_capture_it_in_one_graph(cell, other):
    model, batch = Language(cell, dropout=0.0), tokens()
    torch.compile(model, backend=other, fullgraph=True)(*batch).backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with weft.disabled():
        model(*batch).backward()
    assert_close(got, [p.grad for p in model.parameters()], 1e-5)
    assert graphs() == 1


def test_inductor_trains_it_in_one_graph():
    model, batch = nn.Sequential(Language("gru", dropout=0.0))[0], tokens()
    torch.compile(model, backend="inductor", fullgraph=True)(*batch).backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with weft.disabled():
        model(*batch).backward()
    assert_close(got, [p.grad for p in model.parameters()], 1e-5)
    assert graphs() == 1


def test_state_dict_and_copies_are_the_plain_models():
    model = Language()
    compiled = torch.compile(model, backend="weft")
    batch = tokens()
    compiled.eval()
    with torch.no_grad():
        want = compiled(*batch)
        model.load_state_dict(copy.deepcopy(compiled._orig_mod.state_dict()), strict=True)
        twin = copy.deepcopy(compiled)
        torch.testing.assert_close(twin(*batch), want)
        twin.linear.bias.add_(1.0)
        torch.testing.assert_close(compiled(*batch), want)


def test_a_module_inside_a_model_may_be_compiled():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.GRU(4, 5))
    x = torch.randn(6, 2, 3)
    want = model(x)[0]
    model[2] = torch.compile(model[2], backend="weft", fullgraph=True)
    torch.testing.assert_close(model(x)[0], want, rtol=1e-5, atol=1e-6)
    assert graphs() == 1


def test_modes_are_accepted_and_unknown_options_refused():
    gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    with torch.no_grad():
        torch.compile(gru, backend="weft", mode="max-autotune")(x)
        torch._dynamo.reset()
        with pytest.raises(Exception, match="backend 'weft' has no option 'speed'; there are: capture"):
            torch.compile(gru, backend="weft", options={"speed": 11})(x)


def test_empty_tensors():
    gru = nn.GRU(3, 4)
    compiled = torch.compile(gru, backend="weft", fullgraph=True)
    with torch.no_grad():
        y, h = compiled(torch.randn(5, 0, 3))
    assert y.shape == (5, 0, 4) and h.shape == (1, 0, 4)
