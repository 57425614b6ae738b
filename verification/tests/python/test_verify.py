"""`weft.verify`: sides that agree, differences and their places, every kind of side, and messages about bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import weft
import weft.nn
from weft.formats import FormatError, Layer, Trace, layers_of_module
from weft.verification import _C
from weft.verification._sides import engine

MODULES = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
#: A budget for what is said before the search: where sides differ is known then, and why would take seconds.
UNSEARCHED = 0.01


def seeded(module: nn.Module, seed: int = 0, scale: float = 1.0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 * scale)
    return module


def copied(module: nn.Module) -> nn.Module:
    other = type(module)(module.input_size, module.hidden_size, module.num_layers, bidirectional=module.bidirectional)
    other.load_state_dict(module.state_dict())
    return other


def trace_of(module: nn.Module, x: Tensor, *states: Tensor) -> Trace:
    """The answer of PyTorch or weft.nn in the module's dtype, as a trace."""
    with torch.no_grad(), weft.disabled():
        y, last = module(x, *states)
    (hn, cn) = last if isinstance(last, tuple) else (last, None)
    initial = states[0] if states else None
    (h0, c0) = initial if isinstance(initial, tuple) else (initial, None)
    return Trace(x, y, h0, c0, hn, cn)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_pytorch_is_within_the_bound(kind: str, dtype: torch.dtype, bidirectional: bool) -> None:
    """The bound isn't so wide that it would forgive a fault either: some step comes near it."""
    module = seeded(MODULES[kind](5, 12, bidirectional=bidirectional)).to(dtype)
    x = torch.randn(25, 3, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    report = weft.verify(module, trace_of(module, x))
    assert report.agrees, str(report)
    assert report.precision == str(dtype).removeprefix("torch.")
    closest = max(d / b for track in report.tracks for d, b in zip(track.defect, track.bound, strict=True) if b)
    assert closest > 0.004, closest


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("layers", [2, 3])
def test_a_stack_of_which_the_last_layer_is_known(kind: str, layers: int) -> None:
    module = seeded(MODULES[kind](4, 6, layers, bidirectional=layers == 2))
    trace = trace_of(module, torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(2)))
    assert weft.verify(module, trace).agrees
    trace.y[4, 1, 2] += 1e-2
    first = weft.verify(module, trace, budget=UNSEARCHED).first
    assert first is not None and (first.layer, first.step, first.direction, first.unit) == (layers - 1, 4, "forward", 2)


VARIANTS: list[Any] = [
    weft.nn.GRU(3, 5, reset_after=False),
    weft.nn.GRU(3, 5, layer_norm=True),
    weft.nn.GRU(3, 5, 2, layer_norm=True, reset_after=False, bidirectional=True),
    weft.nn.GRU(3, 5, gate_activation="hard_sigmoid", activation="softsign", cell_clip=0.3),
    weft.nn.GRU(3, 5, zoneout=0.2).eval(),
    weft.nn.LSTM(3, 5, peepholes=True, coupled_input_forget=True),
    weft.nn.LSTM(3, 5, peepholes=True, coupled_input_forget="forget", bidirectional=True),
    weft.nn.LSTM(3, 5, layer_norm=True, proj_size=2),
    weft.nn.LSTM(3, 5, layer_norm=True, bias=False, cell_clip=0.2),
    weft.nn.LSTM(3, 5, zoneout=(0.1, 0.3), activation="relu").eval(),
    weft.nn.RNN(3, 5, 2, layer_norm=True),
    weft.nn.RNN(3, 5, activation="elu", bidirectional=True),
]


@pytest.mark.parametrize("module", VARIANTS, ids=lambda m: f"{type(m).__name__}-{m.extra_repr()}")
def test_every_variant_is_what_the_engine_computes(module: Any) -> None:
    """weft.nn's modules run compiled; the comparison has its own arithmetic."""
    seeded(module)
    x = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        report = weft.verify(module, {"x": x, "y": module(x)[0]})
        assert report.agrees, str(report)
        double = module.double()
        report = weft.verify(double, {"x": x.double(), "y": double(x.double())[0]})
        module.float()
    assert report.agrees, str(report)
    assert report.precision == "float64"


def test_two_models_agree_in_float64_and_in_their_own_dtype() -> None:
    module = seeded(nn.LSTM(5, 8, 2, bidirectional=True))
    report = weft.verify(module, copied(module))
    assert report.agrees and report.own_dtype is not None and report.own_dtype.agrees
    assert report.own_dtype.dtype == "float32" and report.own_dtype.difference == 0
    assert len(report.tracks) == 4 and all(max(track.defect) == 0 for track in report.tracks)
    assert "agree" in str(report).splitlines()[0]


def test_initial_states_are_the_inputs() -> None:
    module = seeded(nn.LSTM(3, 4, 2, bidirectional=True))
    h0, c0 = torch.randn(4, 2, 4), torch.randn(4, 2, 4)
    trace = trace_of(module, torch.randn(6, 2, 3), (h0, c0))
    assert weft.verify(module, trace).agrees
    trace.h0 = h0.flip(0)
    assert not weft.verify(module, trace, budget=UNSEARCHED).agrees
    assert weft.verify(module, module, input={"x": trace.x, "h0": h0, "c0": c0}).agrees


def test_gates_say_where_it_begins() -> None:
    module = seeded(nn.GRU(3, 4))
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    state = {name: value.double() for name, value in module.state_dict().items()}
    h, ys = torch.zeros(2, 4, dtype=torch.float64), []
    gates: dict[str, list[Tensor]] = {"r": [], "z": [], "n": []}
    for xt in x:
        gi = (xt @ state["weight_ih_l0"].T + state["bias_ih_l0"]).chunk(3, -1)
        gh = (h @ state["weight_hh_l0"].T + state["bias_hh_l0"]).chunk(3, -1)
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.nn.functional.hardsigmoid(gi[1] + gh[1])
        n = torch.tanh(gi[2] + r * gh[2])
        h = (1 - z) * n + z * h
        ys.append(h)
        for name, gate in zip("rzn", (r, z, n), strict=True):
            gates[name].append(gate)
    trace = Trace(x, torch.stack(ys), gates={name: torch.stack(each) for name, each in gates.items()})
    first = weft.verify(module, trace).first
    assert first is not None and (first.step, first.quantity) == (0, "z")


def test_a_trace_may_lack_the_batch_and_hold_its_gates_in_one_array() -> None:
    module = seeded(nn.LSTM(3, 4)).double()
    x, h0, c0 = torch.randn(5, 3).double(), torch.randn(1, 4).double(), torch.randn(1, 4).double()
    with torch.no_grad():
        y, (hn, cn) = module(x, (h0, c0))
    trace = {"x": x, "y": y, "h0": h0[0], "c0": c0[0], "hn": hn[0], "cn": cn[0]}
    assert weft.verify(module, trace).agrees
    assert weft.verify(module, module, input={"x": x, "h0": h0, "c0": c0}).agrees
    recorded = _C.record_layers(engine(layers_of_module(module).layers), x.unsqueeze(1).numpy())
    assert recorded is not None
    gru = seeded(nn.GRU(3, 4)).double()
    with torch.no_grad():
        y = gru(x.unsqueeze(1))[0]
    gates = torch.rand(5, 1, 12).double()
    first = weft.verify(gru, {"x": x.unsqueeze(1), "y": y, "gates": gates}).first
    assert first is not None and (first.step, first.quantity) == (0, "r")
    same = weft.verify(gru, {"x": x.unsqueeze(1), "y": y, "gates": gates.view(5, 1, 3, 4)}).first
    assert same == first
    with pytest.raises(FormatError, match=r"gates have 8 columns; .* has r, z, n: 12"):
        weft.verify(gru, {"x": x.unsqueeze(1), "y": y, "gates": gates[..., :8]})


def test_the_reference_may_be_the_trace() -> None:
    module = seeded(nn.GRU(3, 4))
    other = seeded(weft.nn.GRU(3, 4, reset_after=False))
    trace = trace_of(module, torch.randn(7, 2, 3))
    report = weft.verify(trace, other)
    assert not report.agrees and report.first is not None
    assert report.first.reference == pytest.approx(float(trace.y[0, report.first.row, report.first.unit]))
    (diagnosis,) = report.diagnoses
    assert diagnosis.side == "candidate" and [change.name for change in diagnosis.changes] == ["reset_after"]
    assert diagnosis.changes[0].meaning.startswith("the reference applies the reset gate after")


def test_a_function_is_called_with_the_input() -> None:
    module = seeded(nn.RNN(3, 4))

    def loop(x: Tensor) -> Tensor:
        h, ys = torch.zeros(x.shape[1], 4), []
        for xt in x:
            h = torch.tanh(
                xt @ module.weight_ih_l0.T + module.bias_ih_l0 + h @ module.weight_hh_l0.T + module.bias_hh_l0
            )
            ys.append(h)
        return torch.stack(ys)

    report = weft.verify(module, loop)
    assert report.agrees and report.candidate.format == "function" and "loop" in report.candidate.path
    assert weft.verify(loop, module, input=np.ones((4, 1, 3))).agrees
    assert not weft.verify(module, lambda x: loop(x) * 1.001).agrees


def test_several_stacks_in_one_model() -> None:
    model = nn.ModuleDict({"encoder": nn.GRU(3, 4, 2), "decoder": nn.LSTM(7, 5)})
    other = nn.ModuleDict({"encoder": nn.GRU(3, 4, 2), "decoder": nn.LSTM(7, 5)})
    seeded(model), other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other["decoder"].bias_hh_l0.zero_()
    report = weft.verify(model, other)
    assert [track.first is None for track in report.tracks] == [True, True, False]
    (diagnosis,) = report.diagnoses
    assert diagnosis.scope == "layer 2" and diagnosis.changes[0].name == "one_bias"
    assert report.own_dtype is not None and not report.own_dtype.agrees


def test_layers_in_another_order_are_paired_by_name_or_by_fit() -> None:
    model = nn.ModuleDict({"b": nn.GRU(3, 4), "a": nn.LSTM(4, 5)})
    for module in model.values():
        seeded(module)
    layers = list(layers_of_module(model).layers)
    assert weft.verify(layers, layers[::-1]).agrees
    renamed = [Layer(**{**vars(layer), "name": name}) for layer, name in zip(layers[::-1], "xy", strict=True)]
    assert weft.verify(layers, renamed).agrees


def test_what_no_known_difference_explains_says_which_parameters_differ() -> None:
    module = seeded(nn.GRU(3, 4))
    other = copied(module)
    with torch.no_grad():
        other.weight_hh_l0[1, 2] += 0.25
    (diagnosis,) = weft.verify(module, other).diagnoses
    assert not diagnosis.changes
    assert "parameters differ: weight_h by up to 0.25 in gate r" in diagnosis.sentence


def test_layers_that_cannot_be_compared_are_problems() -> None:
    module = seeded(nn.GRU(3, 4, 2))
    first = nn.GRU(3, 4)
    first.load_state_dict({name: module.state_dict()[name] for name in first.state_dict()})
    report = weft.verify(module, first)
    assert not report.agrees and report.problems == ["the reference has 2 layers, the candidate 1 layer"]
    assert [track.first for track in report.tracks] == [None], "those that fit are compared"
    assert report.structure == [
        "the reference's layer 0 (l0: GRU 3 -> 4) fits the candidate's layer 0",
        "the reference's layer 1 (l1: GRU 4 -> 4) fits nothing of the candidate's",
    ]
    report = weft.verify(nn.GRU(3, 4), nn.LSTM(3, 4))
    assert not report.agrees and "is of kind LSTM" in report.problems[0] and not report.tracks
    report = weft.verify(nn.GRU(3, 4), nn.GRU(3, 5))
    assert report.problems == ["layer 0: the candidate's has 5 units, the reference's has 4"]
    report = weft.verify(nn.GRU(3, 4), nn.GRU(3, 4, bidirectional=True))
    assert "has 2 directions" in report.problems[0]


def test_layers_of_the_same_names_and_other_shapes_are_said_first() -> None:
    def state(units: int, kind: type = nn.GRU, **more: Any) -> dict[str, Tensor]:
        parts = {"enc": kind(3, units, **more), "dec": nn.LSTM(5, 4)}
        return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}

    reference = state(5)
    for candidate, shape in (
        (state(6), "GRU 3 -> 6"),
        (state(5, nn.LSTM), "LSTM 3 -> 5"),
        (state(5, bidirectional=True), "GRU 3 -> 5, both ways"),
        (state(6) | {f"more.{key}": value for key, value in nn.RNN(2, 2).state_dict().items()}, "GRU 3 -> 6"),
    ):
        report = weft.verify(reference, candidate, budget=UNSEARCHED)
        assert report.structure and report.problems[0] == (
            "layers of the same names have other shapes in the reference than in the candidate: enc (GRU 3 -> 5, not "
            f"{shape})"
        )
        assert str(report).startswith("differ in structure: layers of the same names")
    exchanged = {key.replace("enc", "x").replace("dec", "enc").replace("x", "dec"): v for key, v in reference.items()}
    report = weft.verify(reference, exchanged, budget=UNSEARCHED)
    assert "all layers of the same names have other shapes" in report.problems[0]


@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "hidden"), [(1, 1, 1, 1), (3, 1, 0, 2), (2, 5, 3, 1), (1, 1, 7, 33)]
)
@pytest.mark.parametrize("kind", MODULES)
def test_small_sizes(kind: str, steps: int, batch: int, inputs: int, hidden: int) -> None:
    module = seeded(MODULES[kind](max(inputs, 1), hidden))
    x = torch.randn(steps, batch, max(inputs, 1))
    assert weft.verify(module, trace_of(module, x.transpose(0, 1).contiguous().transpose(0, 1))).agrees


def test_not_finite_numbers_are_compared() -> None:
    module = seeded(nn.GRU(3, 4))
    x = torch.randn(6, 2, 3)
    x[3, 1, 0] = torch.nan
    trace = trace_of(module, x)
    assert trace.y.isnan().any() and weft.verify(module, trace).agrees
    trace.y[4:, 1] = 0.0
    first = weft.verify(module, trace).first
    assert first is not None and first.step == 4
    x[3, 1, 0] = torch.inf
    assert weft.verify(module, trace_of(module, x)).agrees


def bad(match: str, *sides: Any, **options: Any) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        weft.verify(*sides, **options)
    assert "\n" not in str(caught.value)


def test_bad_sides_and_inputs_say_what_would_be_right(tmp_path: Path) -> None:
    gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    y = torch.zeros(5, 2, 4)
    bad("one of the two sides must have weights", {"x": x, "y": y}, {"x": x, "y": y})
    bad("holds no nn.GRU", nn.Linear(3, 4), gru)
    bad("a dict of tensors holds no recurrent layer", {"fc.weight": y}, gru)
    bad("x has 3 inputs|takes 6", nn.GRU(6, 4), {"x": x, "y": y})
    bad(r"y has 4 columns; .* gives 8", nn.GRU(3, 4, bidirectional=True), {"x": x, "y": y})
    bad(r"x has shape \[5\]; \[T, B, I\]", gru, gru, input=x[:, 0, 0])
    bad("a trace brings its own input", gru, {"x": x, "y": y}, input=x)
    bad("steps and batch should be positive", gru, gru, steps=0)
    bad("the seed should be a number of 64 bits", gru, gru, random=1 << 70)
    bad("at least one step and row is expected", gru, Trace(x[:0], y[:0]))
    bad(r"h0 has shape \[3, 2, 4\]; \[1, B, H\] is expected", gru, gru, input={"x": x, "h0": torch.zeros(3, 2, 4)})
    bad("h0 has 5 units, .* takes 4", gru, gru, input={"x": x, "h0": torch.zeros(1, 2, 5)})
    bad("the trace has cn, and a GRU has no cell state", gru, {"x": x, "y": y, "cn": torch.zeros(2, 4)})
    bad("a gate q|gate i; .* a GRU, has r, z, n", gru, {"x": x, "y": y, "i": y})
    bad("should be y", gru, lambda x: x[0])
    bad("nope.pt: can't be read: No such file", gru, tmp_path / "nope.pt")
    bad("options are for what a file doesn't say", gru, gru, candidate_options={"reset_after": False})
    with pytest.raises(TypeError, match=r"a side is a path, an nn.Module, a state dict"):
        weft.verify(gru, 3)


def test_layers_and_state_dicts_are_sides() -> None:
    module = seeded(nn.GRU(3, 4, 2))
    layers = list(layers_of_module(module).layers)
    assert all(isinstance(layer, Layer) for layer in layers)
    assert weft.verify(layers, module.state_dict()).agrees
    prefixed = {f"model.rnn.{name}": value.numpy() for name, value in module.state_dict().items()}
    assert weft.verify(prefixed, module).agrees
    report = weft.verify(module, prefixed, candidate_options={"reset_after": False})
    assert [change.name for change in report.diagnoses[0].changes] == ["reset_before"]
    assert report.diagnoses[0].scope == "all layers"


def test_a_merge_of_directions_that_differs_is_a_problem() -> None:
    layers = list(layers_of_module(seeded(nn.GRU(3, 4, bidirectional=True))).layers)
    summed = [Layer(**{**vars(layers[0]), "merge": "sum"})]
    report = weft.verify(layers, summed)
    assert not report.agrees and "merges its directions by sum" in report.problems[0]
    x = torch.randn(5, 2, 3)
    y = nn.GRU.forward(seeded(nn.GRU(3, 4, bidirectional=True)), x)[0].detach()
    assert weft.verify(summed, {"x": x, "y": y[..., :4] + y[..., 4:]}).agrees
    assert not weft.verify(summed, {"x": x, "y": y[..., :4] - y[..., 4:]}).agrees


def test_initial_states_go_into_the_modules_of_the_own_dtype() -> None:
    module = seeded(nn.LSTM(3, 4, 2, bidirectional=True))
    other = copied(module)
    states = {"h0": torch.randn(4, 2, 4), "c0": torch.randn(4, 2, 4)}
    report = weft.verify(module, other, input={"x": torch.randn(5, 2, 3), **states})
    assert report.own_dtype is not None and report.own_dtype.agrees


CONFIGURATIONS = [
    ("gate_order", ""), ("gate_order", "recurrent weight"), ("gate_order", "biases"),
    ("one_bias", "without the recurrent"),
    ("one_bias", "without any"), ("one_bias", "the input bias twice"), ("transposed_weights", "recurrent"),
    ("transposed_weights", "both"), ("column_major", "recurrent weight"), ("column_major", "both weights"),
    ("column_major", "input weight, the other way"), ("column_major", "both weights, gate by gate, the other way"),
    ("update_gate_sense", ""), ("bias_outside_reset", ""), ("forget_bias", "1 more"),
    ("dtype", "weights rounded to bfloat16"),
]  # fmt: skip


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize(("name", "detail"), CONFIGURATIONS)
def test_the_line_of_configuration_does_what_the_candidate_does(
    name: str, detail: str, kind: str, bidirectional: bool
) -> None:
    """A change of parameters is found as C++ made it; its line of code, run on the module, makes the two sides
    agree."""
    module = seeded(MODULES[kind](4, 4, bidirectional=bidirectional), seed=3)
    layers = list(layers_of_module(module).layers)
    x = torch.randn(6, 2, 4, dtype=torch.float64)
    changed = _C.changed_layers(engine(layers), x.numpy(), name, detail)
    if changed is None:
        pytest.skip(f"a {kind} has no such change")
    y = torch.cat([torch.tensor(changed.h(0, d)).view(6, 2, 4) for d in range(1 + bidirectional)], -1)
    report = weft.verify(layers, {"x": x, "y": y})
    assert not report.agrees and report.diagnoses[0].changes
    for change in report.diagnoses[0].changes:
        exec(change.configuration, {"m": module, "torch": torch})
    assert weft.verify(module, {"x": x, "y": y}).agrees, str(report)


def test_parameters_that_were_computed_with_are_explained_up_to_rounding() -> None:
    """A bias to which 1 was added in float32 isn't 1 larger in float64."""
    module = seeded(nn.LSTM(3, 4))
    other = copied(module)
    with torch.no_grad():
        other.bias_ih_l0[4:8] += 1
    (diagnosis,) = weft.verify(module, other).diagnoses
    assert [change.name for change in diagnosis.changes] == ["forget_bias"]
    assert diagnosis.sentence.endswith("(up to the rounding of float32)")
    other = copied(module)
    with torch.no_grad():
        other.weight_hh_l0.copy_((other.weight_hh_l0 * 3) / 3)
    (diagnosis,) = weft.verify(module, other).diagnoses
    assert [change.name for change in diagnosis.changes] == ["dtype"]
    assert "rounded otherwise" in diagnosis.sentence


def test_operands_of_a_matrix_unit() -> None:
    """The answers of TF32 and bfloat16 units: rounded operands, float32 sums and gates; y itself isn't rounded."""
    module = seeded(nn.GRU(5, 6))
    x = torch.randn(9, 2, 5)
    for dtype, bits in ((torch.bfloat16, "8 bits"), (torch.float16, "11 bits")):
        w_x, w_h = (module.get_parameter(f"weight_{p}_l0").detach().to(dtype).float() for p in ("ih", "hh"))
        h, ys = torch.zeros(2, 6), []
        for xt in x:
            gi = (xt.to(dtype).float() @ w_x.T + module.bias_ih_l0.detach()).chunk(3, -1)
            gh = (h.to(dtype).float() @ w_h.T + module.bias_hh_l0.detach()).chunk(3, -1)
            r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
            h = (1 - z) * torch.tanh(gi[2] + r * gh[2]) + z * h
            ys.append(h)
        report = weft.verify(module, {"x": x, "y": torch.stack(ys)})
        (diagnosis,) = report.diagnoses
        assert [change.name for change in diagnosis.changes] == ["dtype"] and bits in diagnosis.changes[0].detail


@pytest.mark.parametrize("noise", [1e-4, 1e-2, 0.1])
def test_other_weights_are_not_taken_for_a_dtype(noise: float) -> None:
    # A search of three layers takes seconds, one of a single layer a second or two.
    most, seeds = (3, 4) if noise == 1e-2 else (2, 2)
    for seed in range(seeds):
        torch.manual_seed(seed)
        module = seeded(MODULES["GRU" if seed % 2 else "LSTM"](4, 6, 1 + seed % most, bidirectional=True), seed)
        trace = trace_of(module, torch.randn(8, 2, 4, generator=torch.Generator().manual_seed(seed)))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += noise * torch.randn(parameter.shape)
        report = weft.verify(module, trace)
        assert not report.agrees and all(not each.changes for each in report.diagnoses), str(report)


def test_a_projection_as_large_as_the_state_has_no_module_here() -> None:
    layer = layers_of_module(seeded(nn.LSTM(3, 4, proj_size=2))).layers[0]
    d = layer.directions[0]
    square = type(d)(d.weight_x, torch.randn(16, 4), d.bias_x, d.bias_h, projection=torch.eye(4))
    layers = [Layer("l", "LSTM", [square])]
    report = weft.verify(layers, layers)
    assert report.agrees and report.own_dtype is None
