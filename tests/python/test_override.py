"""nn.GRU, nn.LSTM and nn.RNN on Weft do what they do on PyTorch."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from rnn_cases import KINDS, make, random_cases
from torch import nn

import weft


def tolerances(dtype):
    return dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=1e-11, atol=1e-11)


def gradients(case, outputs):
    """Of a sum with weights that tell all elements apart."""
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]
    loss = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
    return torch.autograd.grad(loss, case.leaves())


@pytest.mark.parametrize("kind", KINDS)
def test_random_configurations(kind):
    for case in random_cases(kind, 40):
        ours, theirs = case.run(), case.run_eager()
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride(), case
            torch.testing.assert_close(
                a, b, **tolerances(a.dtype), msg=lambda m, c=case: f"{m}\n{c.module} {c.x.shape}"
            )
        for a, b in zip(gradients(case, ours), gradients(case, theirs), strict=True):
            torch.testing.assert_close(
                a, b, **tolerances(a.dtype), msg=lambda m, c=case: f"{m}\n{c.module} {c.x.shape}"
            )
    assert weft.stats()["calls"] > 0
    assert not [reason for reason in weft.stats()["fallbacks"] if reason.startswith(kind.lower())]


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind):
    case = make(kind, layers=2)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            ours, theirs = case.run(), case.run_eager()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
            assert not a.requires_grad and a.is_inference() == b.is_inference()


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched(kind):
    module = make(kind, layers=2).module
    x = torch.randn(6, 5)
    ours = module(x)[0]
    with weft.disabled():
        theirs = module(x)[0]
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_only_some_gradients_wanted(kind):
    """Frozen weights, an input that is data, a loss of the last state alone."""
    case = make(kind, layers=2)
    case.module.weight_ih_l0.requires_grad_(False)
    case.module.bias_hh_l1.requires_grad_(False)
    case.x.requires_grad_(False)
    leaves = [leaf for leaf in case.leaves() if leaf.requires_grad]
    for pick in (lambda out: out[0].sum(), lambda out: out[-1].pow(2).sum(), lambda out: out[0][-1].sum()):
        ours = torch.autograd.grad(pick(case.run()), leaves)
        theirs = torch.autograd.grad(pick(case.run_eager()), leaves)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("kind", KINDS)
def test_five_optimiser_steps(kind, optimiser):
    """The parameters after five steps, to 1e-5 of their size."""
    ours = make(kind, input_size=8, hidden=16, layers=2, steps=9, batch=4)
    theirs = copy.deepcopy(ours)
    target = torch.randn(9, 4, 16)

    def train(case, run):
        opt = optimiser(case.module.parameters(), lr=1e-2)
        for _ in range(5):
            opt.zero_grad()
            ((run()[0] - target) ** 2).mean().backward()
            opt.step()

    train(ours, ours.run)
    train(theirs, theirs.run_eager)
    for a, b in zip(ours.module.parameters(), theirs.module.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_nan_and_inf_go_where_they_go_in_pytorch(kind):
    case = make(kind, steps=6)
    with torch.no_grad():
        case.x[2, 1, 0] = float("nan")
        case.x[3, 0, 1] = float("inf")
        case.x[4, 2, 2] = float("-inf")
        ours, theirs = case.run(), case.run_eager()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_may_be_changed_in_place(kind):
    """The backward reads y, which PyTorch's kernels don't promise to leave alone."""
    case = make(kind, layers=2)

    def gradients_with(activation, run):
        y, *states = run()
        return torch.autograd.grad(activation(y).sum() + states[0].sum(), case.leaves())

    ours, theirs = gradients_with(torch.relu_, case.run), gradients_with(torch.relu, case.run_eager)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_saved_tensor_hooks():
    case, packed = make("GRU"), []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.detach().numpy().copy()

    with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
        ours = case.run()[0]
    theirs = case.run_eager()[0]
    for a, b in zip(
        torch.autograd.grad(ours.sum(), case.leaves()), torch.autograd.grad(theirs.sum(), case.leaves()), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert packed


@pytest.mark.parametrize("script", [False, True])
def test_torchscript(script):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 6)

        def forward(self, x):
            return self.rnn(x)

    module, x = Model().eval(), torch.randn(3, 2, 4)
    scripted = torch.jit.script(module) if script else torch.jit.trace(module, x)
    for steps in (3, 3, 8):
        x = torch.randn(steps, 2, 4)
        torch.testing.assert_close(scripted(x)[0], module(x)[0])


def test_state_dict_is_untouched():
    module = nn.GRU(4, 6, 2)
    module(torch.randn(3, 2, 4))[0].sum().backward()
    fresh = nn.GRU(4, 6, 2)
    fresh.load_state_dict(module.state_dict(), strict=True)


@pytest.mark.parametrize(
    "reason, module, x",
    [
        ("gru: bidirectional", nn.GRU(4, 6, bidirectional=True), torch.randn(3, 2, 4)),
        ("lstm: bidirectional", nn.LSTM(4, 6, bidirectional=True), torch.randn(3, 2, 4)),
        ("gru: dropout between layers in training", nn.GRU(4, 6, 2, dropout=0.5), torch.randn(3, 2, 4)),
        ("lstm: proj_size", nn.LSTM(4, 6, proj_size=3), torch.randn(3, 2, 4)),
        ("rnn_tanh: dtype BFloat16", nn.RNN(4, 6, dtype=torch.bfloat16), torch.randn(3, 2, 4, dtype=torch.bfloat16)),
    ],
)
def test_what_is_not_covered_runs_on_pytorch_and_is_counted(reason, module, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        ours = module(x)[0]
    torch.manual_seed(3)
    with weft.disabled():
        theirs = module(x)[0]
    assert torch.equal(ours, theirs)
    assert weft.stats()["fallbacks"] == {reason: 1}


def test_dropout_that_does_nothing_is_covered():
    two = nn.GRU(4, 6, 2, dropout=0.5).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = nn.GRU(4, 6, 1, dropout=0.5)  # between layers, of which there is one
    for module in (one, two):
        module(torch.randn(3, 2, 4))
    assert not weft.stats()["fallbacks"].keys() & {"gru: dropout between layers in training"}


def test_autocast_stays_pytorchs():
    module, x = nn.GRU(4, 6), torch.randn(3, 2, 4)
    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = module(x)[0]
        with weft.disabled():
            theirs = module(x)[0]
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    assert weft.stats()["fallbacks"] == {"gru: autocast": 1}


def test_packed_sequences_stay_pytorchs():
    module, x = nn.GRU(4, 6), torch.randn(3, 2, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2])
    ours = module(packed)[0].data
    with weft.disabled():
        assert torch.equal(ours, module(packed)[0].data)


def test_forward_mode_goes_to_pytorch():
    module, x = nn.GRU(4, 6), torch.randn(3, 2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, ours = torch.func.jvp(lambda x: module(x)[0], (x,), (torch.ones_like(x),))
        with weft.disabled():
            _, theirs = torch.func.jvp(lambda x: module(x)[0], (x,), (torch.ones_like(x),))
    torch.testing.assert_close(ours, theirs)


def test_a_tensor_subclass_sees_pytorchs_operators():
    seen = []

    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            args, kwargs = torch.utils._pytree.tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
            return torch.utils._pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))

    module = nn.GRU(4, 6)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module(Logged(torch.randn(3, 2, 4)))
    assert "weft.call.default" not in seen
    assert weft.stats()["fallbacks"] == {"gru: a tensor subclass": 1}
