"""weft.nn's variants as modules: compiled, exported, scripted, copied, packed; and their messages about bad options."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess

import pytest
import torch
import warm_python
from reference_cells import run
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune
from variant_cases import VARIANTS, Case, variant

import weft
import weft.nn

KINDS = pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "weft"])
@pytest.mark.parametrize("name", ["gru-reset-before", "gru-callable", "lstm-layer-norm", "lstm-zoneout", "rnn-is-init"])
def test_compiles_without_a_graph_break(name, backend):
    torch._dynamo.reset()
    case = variant(name, with_init=True)
    ours = case.outputs(torch.compile(case.module, backend=backend, fullgraph=True))
    eager = case.ours()
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(case.gradients(ours), case.gradients(eager), strict=True):
        torch.testing.assert_close(a, b)
    assert weft.stats()["fallbacks"] == {}


def test_a_new_length_compiles_no_new_graph():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    module = weft.nn.GRU(5, 7, reset_after=False, zoneout=0.1)
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    for steps in (3, 4, 5, 9, 12):
        compiled(torch.randn(steps, 2, 5))
    assert len(graphs) <= 2


def test_export():
    module, x = weft.nn.LSTM(5, 7, peepholes=True).eval(), torch.randn(4, 3, 5)
    program = torch.export.export(module, (x,), dynamic_shapes={"input": {0: torch.export.Dim("T")}}, strict=False)
    for exported in (program, program.run_decompositions({})):
        y = torch.randn(9, 3, 5)
        torch.testing.assert_close(exported.module()(y)[0], module(y)[0])


def test_torchscript():
    """A plain one is compiled as PyTorch's; a variant can be traced."""
    plain, x = nn.Sequential(weft.nn.LSTM(5, 7, 2)), torch.randn(4, 3, 5)
    scripted = torch.jit.script(plain)
    assert torch.equal(scripted(x)[0], plain(x)[0])
    assert {id(p) for p in scripted.parameters()} == {id(p) for p in plain.parameters()}
    module = weft.nn.GRU(5, 7, reset_after=False)
    traced = torch.jit.trace(module, x)
    y = torch.randn(9, 2, 5)
    assert torch.equal(traced(y)[0], module(y)[0])
    with pytest.raises(RuntimeError, match=r"torch.jit.script can't compile weft.nn.GRU with reset_after; torch.jit.t"):
        torch.jit.script(module)


def test_functional_call_and_grad_transforms():
    case = Case("LSTM", peepholes=True, layer_norm=True, with_init=False, with_state=False)
    parameters = dict(case.module.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(case.module, parameters, (x,))[0].pow(2).sum()

    gradients = torch.func.grad(loss)(parameters, case.x.detach())
    case.module.zero_grad()
    loss(parameters, case.x).backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name], parameter.grad)


@pytest.mark.parametrize("name", [name for name in VARIANTS if "callable" not in name])
def test_copies_and_checkpoints(name):
    case = variant(name, num_layers=2, bidirectional=True)
    want = case.ours()
    module = case.module
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    fresh = variant(name, num_layers=2, bidirectional=True).module
    fresh.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh):
        for a, b in zip(want, case.outputs(twin), strict=True):
            assert torch.equal(a, b)
        assert not {id(p) for p in twin.parameters()} & {id(p) for p in module.parameters()}
        assert repr(twin) == repr(module)


def test_parametrizations_pruning_and_weight_norm_reach_the_variants():
    case = variant("lstm-peepholes", with_init=False)
    nn.utils.parametrizations.weight_norm(case.module, "weight_hh_l0")
    prune.l1_unstructured(case.module, "weight_co_l0", 0.5)
    case.ours()[0].sum().backward()
    assert case.module.parametrizations.weight_hh_l0.original0.grad is not None
    assert case.module.weight_co_l0_orig.grad is not None and (case.module.weight_co_l0 == 0).sum() == 4
    for a, b in zip(case.ours(), case.reference(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gru-reset-before-layer-norm", "lstm-peepholes", "lstm-zoneout", "rnn-activation"])
def test_low_precision_computes_in_float32(name, dtype):
    case = variant(name, dtype=dtype, hidden=16)
    ours = case.ours()
    gradients = case.gradients(ours)
    wide = variant(name, dtype=torch.float32, hidden=16)
    wide.module.load_state_dict(case.module.state_dict())
    wide.x.data.copy_(case.x)
    for a, b in zip(wide.states, case.states, strict=True):
        a.data.copy_(b)
    wide.is_init = case.is_init
    theirs = wide.ours()
    eps = torch.finfo(dtype).eps
    for a, b in zip([*ours, *gradients], [*theirs, *wide.gradients(theirs)], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, rtol=0, atol=4 * eps * max(1.0, b.abs().max().item()))
    assert weft.stats()["fallbacks"] == {}


def test_autocast_leaves_a_variant_in_its_parameters_dtype():
    model = nn.Sequential(nn.Linear(5, 5), weft.nn.GRU(5, 7, reset_after=False))
    with torch.autocast("cpu", torch.bfloat16):
        y, hn = model(torch.randn(4, 3, 5))
    assert y.dtype == hn.dtype == torch.float32


def test_unbatched():
    for name in ("gru-reset-before", "lstm-layer-norm-projected", "rnn-zoneout"):
        for batch_first in (False, True):
            case = variant(name, batch=1, batch_first=batch_first, with_init=True, train=False)
            y, *states = case.ours()
            hx = tuple(s[:, 0] for s in case.states) if len(case.states) == 2 else case.states[0][:, 0]
            rows = 0 if batch_first else 1
            single, state = case.module(case.x.squeeze(rows), hx, case.is_init.squeeze(rows))
            torch.testing.assert_close(single, y.squeeze(rows))
            for a, b in zip(state if isinstance(state, tuple) else [state], states, strict=True):
                torch.testing.assert_close(a, b[:, 0])


def test_gains_start_at_one_biases_at_zero_peepholes_small():
    module = weft.nn.LSTM(5, 16, peepholes=True, layer_norm=True)
    for _ in range(2):
        assert (module.weight_ln_ih_l0 == 1).all() and (module.weight_ln_c_l0 == 1).all()
        assert (module.bias_ln_c_l0 == 0).all()
        assert 0 < module.weight_ci_l0.abs().max() <= 0.25
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(5)
        module.reset_parameters()


def test_parameter_names():
    module = weft.nn.LSTM(5, 7, bidirectional=True, peepholes=True, coupled_input_forget=True, layer_norm=True)
    extra = [
        name for name, _ in module.named_parameters() if name not in nn.LSTM(5, 7, bidirectional=True).state_dict()
    ]
    names = ["weight_ci_l0", "weight_co_l0", "weight_ln_ih_l0", "weight_ln_hh_l0", "weight_ln_c_l0", "bias_ln_c_l0"]
    assert extra == names + [f"{name}_reverse" for name in names]


# ---- errors


@pytest.mark.parametrize(
    "kind, options, error, message",
    [
        ("GRU", {"reset_after": 1}, TypeError, "reset_after should be of type bool, got: int"),
        ("LSTM", {"peepholes": "yes"}, TypeError, "peepholes should be of type bool, got: str"),
        ("RNN", {"layer_norm": None}, TypeError, "layer_norm should be of type bool, got: NoneType"),
        ("LSTM", {"coupled_input_forget": "both"}, ValueError, "coupled_input_forget should be False, True or 'input'"),
        ("GRU", {"cell_clip": 0}, ValueError, "cell_clip should be a positive number, or None for no clipping, got: 0"),
        ("GRU", {"zoneout": 1.5}, ValueError, r"zoneout should be a number in range \[0, 1\].*got: 1.5"),
        ("GRU", {"zoneout": (0.1, 0.2)}, ValueError, r"zoneout of a GRU should be one probability .*no cell state"),
        ("LSTM", {"zoneout": (0.1,)}, ValueError, r"zoneout should be a number or a pair \(p_h, p_c\), got: \(0.1,\)"),
        (
            "LSTM",
            {"recurrent_dropout": 1},
            ValueError,
            r"recurrent_dropout should be a number in range \[0, 1\).*got: 1",
        ),
        ("LSTM", {"recurrent_dropout": True}, ValueError, "recurrent_dropout should be a number"),
        ("GRU", {"activation": 3}, TypeError, "activation must be the name of an activation or a callable.*not 3"),
        ("GRU", {"gate_activation": "sig"}, ValueError, "gate_activation: there is no activation 'sig'"),
        ("GRU", {"peepholes": True}, TypeError, "peepholes"),
        ("RNN", {"gate_activation": "tanh"}, TypeError, "gate_activation"),
        ("GRU", {"proj_size": 2}, ValueError, "proj_size argument is only supported for LSTM"),
    ],
)
def test_bad_options(kind, options, error, message):
    with pytest.raises(error, match=message):
        getattr(weft.nn, kind)(3, 4, **options)


@pytest.mark.parametrize(
    "is_init, error, message",
    [
        (torch.zeros(4, 3), TypeError, "is_init should be a tensor of dtype torch.bool, got: torch.float32"),
        ([True], TypeError, "is_init should be a tensor of dtype torch.bool, got: list"),
        (
            torch.zeros(3, 4, dtype=torch.bool),
            RuntimeError,
            r"Expected is_init of size \[T, B\] = \(4, 3\), got \[3, 4\]",
        ),
        (torch.zeros(4, 3, 1, dtype=torch.bool), RuntimeError, r"Expected is_init of size"),
    ],
)
def test_bad_is_init(is_init, error, message):
    with pytest.raises(error, match=message):
        weft.nn.GRU(5, 7)(torch.randn(4, 3, 5), None, is_init)


@KINDS
def test_bad_calls_are_answered_in_pytorchs_words(kind):
    ours, theirs = getattr(weft.nn, kind)(5, 7, cell_clip=0.5), getattr(nn, kind)(5, 7)
    pair = (lambda t: (t, t)) if kind == "LSTM" else (lambda t: t)
    calls = [
        (torch.randn(5), None),
        (torch.randn(1, 1, 1, 5), None),
        (torch.randn(4, 3, 6), None),
        (torch.randn(0, 3, 5), None),
        (torch.randn(4, 3, 5, dtype=torch.float64), None),
        (torch.randn(4, 3, 5), pair(torch.randn(1, 2, 7))),
        (torch.randn(4, 3, 5), pair(torch.randn(1, 7))),
        (torch.randn(4, 5), pair(torch.randn(1, 1, 7))),
    ]
    for call in calls:
        messages = []
        for module in (theirs, ours):
            with pytest.raises(Exception) as info:
                module(*call)
            messages.append((info.type, str(info.value)))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("name", [name for name in VARIANTS if "is-init" not in name])
def test_packed_sequences(name, enforce_sorted):
    """In evaluation each sequence is computed as if it were alone; gradients too."""
    lengths = [5, 4, 2, 2] if enforce_sorted else [2, 5, 2, 4]
    case = variant(name, steps=5, batch=4, num_layers=2, bidirectional=True, train=False)
    packed = nn.utils.rnn.pack_padded_sequence(case.x, lengths, enforce_sorted=enforce_sorted)
    y, state = case.module(packed, case.hx)
    padded, _ = nn.utils.rnn.pad_packed_sequence(y)
    ours = [padded, *(state if isinstance(state, tuple) else [state])]
    singles = []
    for row, length in enumerate(lengths):
        hx = [s[:, row : row + 1] for s in case.states]
        y, state = run(case.module, case.x[:length, row : row + 1], tuple(hx) if len(hx) == 2 else hx[0])
        y = functional.pad(y, (0, 0, 0, 0, 0, 5 - length))
        singles.append([y, *(state if isinstance(state, tuple) else [state])])
    theirs = [torch.cat(tensors, 1) for tensors in zip(*singles, strict=True)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(case.gradients(ours), case.gradients(theirs), strict=True):
        torch.testing.assert_close(a, b)
    assert weft.stats()["fallbacks"] == {}


@pytest.mark.parametrize("options", [{"zoneout": 0.5}, {"recurrent_dropout": 0.5}])
def test_packed_sequences_in_training(options):
    """Masks have the shapes of the packed rows. If all sequences have one length, these are the shapes of the padded
    call."""
    case = Case("LSTM", with_init=False, **options)
    packed = nn.utils.rnn.pack_padded_sequence(case.x, [4, 4, 4])
    want = case.ours()
    torch.manual_seed(0)
    y, (hn, cn) = case.module(packed, case.hx)
    for a, b in zip(want, (y.data.view(4, 3, 7), hn, cn), strict=True):
        torch.testing.assert_close(a, b)
    uneven = nn.utils.rnn.pack_padded_sequence(case.x, [4, 2, 1])
    y, _ = case.module(uneven, case.hx)
    y.data.sum().backward()
    assert case.x.grad[2:, 2].abs().sum() == 0 and case.x.grad[0].abs().sum() > 0
    with pytest.raises(ValueError, match=r"weft.nn.LSTM: is_init with a PackedSequence"):
        case.module(uneven, case.hx, torch.zeros(4, 3, dtype=torch.bool))


def test_importing_weft_imports_no_more_than_it_must():
    script = "import sys, weft; print([m for m in ('weft.nn', 'torch._dynamo') if m in sys.modules]); weft.nn.GRU(2, 3)"
    script += "; import sys; print([m for m in ('torch._dynamo',) if m in sys.modules])"
    done = subprocess.run([warm_python.command(), "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
