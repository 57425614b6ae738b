"""nn.GRU, nn.LSTM and nn.RNN on Weft do what they do on PyTorch."""

from __future__ import annotations

import copy
import itertools
import warnings

import pytest
import torch
from rnn_cases import KINDS, make, primitive_is_missing, random_cases
from torch import nn

import weft


def tolerances(dtype):
    return dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=1e-11, atol=1e-11)


def gradients(case, outputs, **options):
    """Gradients of a sum with weights that tell all elements apart."""
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]
    loss = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
    return torch.autograd.grad(loss, case.leaves(), **options)


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


def run_seeded(case, run):
    torch.manual_seed(3)
    return run()


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_draws_pytorchs_masks(kind):
    for options in ({}, dict(bidirectional=True), dict(batch_first=True)):
        case = make(kind, layers=3, dropout=0.4, hidden=16, **options)
        ours, theirs = run_seeded(case, case.run), run_seeded(case, case.run_eager)
        for a, b in zip([*ours, *gradients(case, ours)], [*theirs, *gradients(case, theirs)], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        case.module.eval()
        torch.testing.assert_close(case.run(), case.run_eager(), rtol=1e-5, atol=1e-5)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_types_of_half_the_size(kind, dtype):
    """Weft rounds less often than PyTorch: it is to be no further from the result in f64."""
    for options in ({}, dict(layers=2, bidirectional=True), dict(proj_size=3) if kind == "LSTM" else dict(bias=False)):
        case = make(kind, dtype=dtype, hidden=16, steps=9, **options)
        twin = doubled(case)
        ours, theirs, exact = case.run(), case.run_eager(), twin.run_eager()
        if kind != "RNN_RELU":  # its argument may be on the other side of zero
            ours = [*ours, *gradients(case, ours)]
            theirs = [*theirs, *gradients(case, theirs)]
            exact = [*exact, *gradients(twin, exact)]
        for a, b, c in zip(ours, theirs, exact, strict=True):
            assert a.dtype == b.dtype == dtype and a.shape == b.shape and a.stride() == b.stride()
            off = lambda value, c=c: (value.double() - c).abs().max()  # noqa: E731
            assert off(a) <= 1.5 * off(b) + torch.finfo(dtype).eps * c.abs().max()


def doubled(case):
    twin = copy.deepcopy(case.module).double()
    states = None if case.h0 is None else tuple(h.detach().double() for h in states_of(case))
    fresh = [t.requires_grad_() for t in (case.x.detach().double(), *(states or ()))]
    h0 = None if states is None else tuple(fresh[1:]) if isinstance(case.h0, tuple) else fresh[1]
    return type(case)(twin, fresh[0], h0)


def states_of(case):
    return case.h0 if isinstance(case.h0, tuple) else [case.h0]


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_gives_pytorchs_types(kind, low):
    """For every type of input, state and weight; PyTorch refuses some, and doubles are left alone."""
    choices = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    for dtypes in itertools.product(choices, repeat=3):
        for options in ({}, dict(layers=2, bidirectional=True), dict(proj_size=3), dict(batch=0)):
            if "proj_size" in options and kind != "LSTM":
                continue
            case = make(kind, **options)
            case.module.to(dtypes[0])
            case.x = case.x.detach().to(dtypes[1])
            states = tuple(state.detach().to(dtypes[2]) for state in states_of(case))
            case.h0 = states if kind == "LSTM" else states[0]
            with torch.autocast("cpu", low), warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                try:
                    theirs = case.run_eager()
                except RuntimeError:  # types mixed with doubles, or a type that oneDNN hasn't here
                    continue
                ours = case.run()
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == b.dtype and a.stride() == b.stride(), (dtypes, options)
                torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)
    assert weft.stats()["calls"] > 0 and not any(kind.lower() in reason for reason in weft.stats()["fallbacks"])


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_trains(kind):
    case = make(kind, layers=2, dropout=0.3, hidden=16, bidirectional=True)

    def run_gradients(run):
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = run()
        return gradients(case, [out.float() for out in outputs])

    ours = run_gradients(case.run)
    with torch.backends.mkldnn.flags(enabled=not primitive_is_missing(kind, torch.bfloat16)):
        theirs = run_gradients(case.run_eager)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert (a - b).abs().max() <= 0.05 * b.abs().max() + 0.02


def cell_of(kind, dtype=torch.float32, bias=True):
    if kind.startswith("RNN"):
        return nn.RNNCell(5, 7, nonlinearity=kind[4:].lower(), dtype=dtype, bias=bias)
    return getattr(nn, kind + "Cell")(5, 7, dtype=dtype, bias=bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_single_steps(kind, dtype):
    for bias, batch in itertools.product((True, False), (0, 1, 3, None)):
        cell = cell_of(kind, dtype, bias)
        x = torch.randn(*([] if batch is None else [batch]), 5, dtype=dtype, requires_grad=True)
        h = [torch.randn(*x.shape[:-1], 7, dtype=dtype, requires_grad=True) for _ in range(2 if kind == "LSTM" else 1)]
        calls = weft.stats()["calls"]

        def run(cell=cell, x=x, h=h):
            out = cell(x, tuple(h) if len(h) == 2 else h[0])
            outputs = list(out) if isinstance(out, tuple) else [out]
            leaves = [x, *h, *cell.parameters()]
            loss = sum((o * torch.linspace(0, 1, o.numel(), dtype=o.dtype).view(o.shape)).sum() for o in outputs)
            first = torch.autograd.grad(loss, leaves, create_graph=True)
            second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves, allow_unused=True)
            return [*outputs, *first, *(s for s in second if s is not None)]

        ours = run()
        assert weft.stats()["calls"] > calls
        with weft.disabled():
            theirs = run()
        for a, b in zip(ours, theirs, strict=True):
            assert a.stride() == b.stride() or a.numel() == 0
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-11)


def test_single_steps_under_autocast():
    for kind, low in itertools.product(KINDS, (torch.bfloat16, torch.float16)):
        cell, x = cell_of(kind), torch.randn(3, 5)
        with torch.autocast("cpu", low), torch.no_grad():
            ours = cell(x)
            with weft.disabled():
                theirs = cell(x)
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.02)  # of the same types


@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 2, 1], [1, 4, 3], [1, 1, 1], [4]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind, lengths):
    """Sorted and not; y, the states of each sequence's own last step, first and second derivatives."""
    double = dict(dtype=torch.float64)
    for options in ({}, dict(layers=2, bidirectional=True, dropout=0.4), dict(bidirectional=True, with_state=False)):
        case = make(kind, batch=len(lengths), steps=max(lengths), **double, **options)
        if kind == "LSTM" and not options:
            case = make(kind, batch=len(lengths), steps=max(lengths), proj_size=3, **double)

        def run(case=case):
            torch.manual_seed(2)
            packed = nn.utils.rnn.pack_padded_sequence(case.x, lengths, enforce_sorted=False)
            y, states = case.module(packed, case.h0)
            outputs = [nn.utils.rnn.pad_packed_sequence(y)[0], *(states if isinstance(states, tuple) else [states])]
            first = gradients(case, outputs, create_graph=True)
            second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), case.leaves(), allow_unused=True)
            return [*outputs, *first, *(g for g in second if g is not None)]

        calls = weft.stats()["calls"]
        ours = run()
        assert weft.stats()["calls"] > calls
        with weft.disabled():
            theirs = run()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    assert not weft.stats()["fallbacks"]


def test_packed_sequences_under_autocast_and_in_half_the_size():
    for kind, low in itertools.product(KINDS, (torch.bfloat16, torch.float16)):
        case = make(kind, layers=2)
        for dtype, lengths in itertools.product((torch.float32, low), ([4, 3, 1], [4, 4, 4])):
            if dtype == torch.float32 and lengths == [4, 4, 4] and primitive_is_missing(kind, low):
                continue
            module = case.module.to(dtype)
            x = nn.utils.rnn.pack_padded_sequence(case.x.detach(), lengths).to(dtype)
            with torch.autocast("cpu", low, enabled=dtype != low), torch.no_grad():
                ours = module(x)
                with weft.disabled():
                    theirs = module(x)
            torch.testing.assert_close(ours[0].data, theirs[0].data, rtol=0.05, atol=0.02)  # of the same type
            torch.testing.assert_close(ours[1], theirs[1], rtol=0.05, atol=0.02)


def test_batch_sizes_that_do_not_fit_are_refused():
    gru = nn.GRU(4, 6)
    weights = gru._flat_weights
    for sizes in ([2, 2, 2], [1, 2], [3, -1, 1], [2, 1, 0]):
        with pytest.raises(RuntimeError):
            torch.gru(torch.randn(3, 4), torch.tensor(sizes), torch.zeros(1, 2, 6), weights, True, 1, 0.0, False, False)


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


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_function_that_is_captured(kind):
    """The module's program is a part of the function's: in dtypes, layouts and states that it takes by itself."""
    for options in ({}, dict(layers=2, bidirectional=True, batch_first=True), dict(with_state=False, steps=1)):
        case = make(kind, dtype=torch.float64, **options)

        def function(x, case=case):
            y, state = case.module(x * 2, case.h0)
            return [y + 1, *(state if isinstance(state, tuple) else [state])]

        before = weft.stats()["fallbacks"]
        found, expected = weft.jit(function)(case.x), function(case.x)
        assert weft.stats()["fallbacks"] == before
        wanted = [case.x, *case.module.parameters()]
        pairs = [
            *zip(found, expected, strict=True),
            *zip(*(torch.autograd.grad(sum(y.sin().sum() for y in ys), wanted) for ys in (found, expected)),
                 strict=True),
        ]  # fmt: skip
        for a, b in pairs:
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
