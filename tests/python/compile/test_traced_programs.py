"""Recurrent modules taken out of their Python: TorchScript, torch.export, torch.compile, flop counting."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import assert_leaves_close
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import weft

MODULES = {
    "RNN": lambda: nn.RNN(5, 6, 2, bidirectional=True),
    "RNN relu": lambda: nn.RNN(5, 6, nonlinearity="relu", batch_first=True, bias=False),
    "GRU": lambda: nn.GRU(5, 6, 2, batch_first=True),
    "GRU both ways": lambda: nn.GRU(5, 6, bidirectional=True),
    "LSTM": lambda: nn.LSTM(5, 6, 2),
    "LSTM projected": lambda: nn.LSTM(5, 6, bidirectional=True, proj_size=3, batch_first=True),
    "RNNCell": lambda: nn.RNNCell(5, 6),
    "GRUCell": lambda: nn.GRUCell(5, 6),
    "LSTMCell": lambda: nn.LSTMCell(5, 6),
}
LAYERS = [name for name in MODULES if "Cell" not in name]
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::torch.jit.TracerWarning",
    "ignore:The tensor attribute",
    "ignore:LSTM with projections is not supported with oneDNN",
)
every_module = pytest.mark.parametrize("name", MODULES)
every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    assert not weft.stats()["fallbacks"]


def input_for(name: str, steps: int = 7) -> Tensor:
    """A batch of 4; no other size is 4."""
    if "Cell" in name:
        return torch.randn(4, 5)
    return torch.randn(4, steps, 5) if MODULES[name]().batch_first else torch.randn(steps, 4, 5)


class Model(nn.Module):
    """A module with operations around it, and a result of one tensor."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.before = nn.Linear(5, 5)
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.module(self.before(x))
        return outputs[0].tanh() if isinstance(outputs, tuple) else outputs.tanh()


# TorchScript

LOAD = """
import sys, torch
if {weft}:
    import weft
assert ("weft" in sys.modules) == {weft}
for file, inputs, expected in torch.load("cases.pt"):
    module = torch.jit.load(file)
    for x, y in zip(inputs, expected):
        torch.testing.assert_close(module(x), y, rtol=1e-4, atol=1e-5)
print("the same", weft.stats()["calls"] if {weft} else 0)
"""


def torchscript(how: str, model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    if how == "trace":
        return torch.jit.trace(model, x)
    scripted = torch.jit.script(model)
    return torch.jit.freeze(scripted) if how == "freeze" else scripted


@pytest.mark.parametrize("how", ["script", "trace", "freeze"])
@every_module
def test_torchscript_saved_and_loaded(name: str, how: str, tmp_path: Path) -> None:
    model = Model(MODULES[name]()).eval()
    inputs = [input_for(name), input_for(name), input_for(name, 3)]
    taken = torchscript(how, model, inputs[0])
    with weft.disabled():
        expected = [model(x) for x in inputs]
    for _ in range(3):  # the executor specialises at first
        assert_leaves_close([taken(x) for x in inputs], expected, rtol=1e-4)
    torch.jit.save(taken, tmp_path / "module.pt")
    assert_leaves_close([torch.jit.load(tmp_path / "module.pt")(x) for x in inputs], expected, rtol=1e-4)
    # A trace holds what a single step is made of, as a graph of torch.compile does.
    assert weft.stats()["calls"] > 0 or (how == "trace" and "Cell" in name)


def test_torchscript_loaded_in_other_processes(tmp_path: Path, run_warm_python: Any) -> None:
    """With Weft and without; saved with it."""
    cases = []
    for name, how in itertools.product(MODULES, ("script", "trace", "freeze")):
        model, x = Model(MODULES[name]()).eval(), input_for(name)
        file = f"{name} {how}.pt"
        torch.jit.save(torchscript(how, model, x), tmp_path / file)
        with weft.disabled(), torch.no_grad():
            cases.append((file, [x], [model(x)]))
    torch.save(cases, tmp_path / "cases.pt")
    for imported in (False, True):
        output = run_warm_python(LOAD.format(weft=imported))
        assert output.startswith("the same") and (output.split()[-1] != "0") == imported


@every_module
def test_torchscript_trains(name: str) -> None:
    model, x = Model(MODULES[name]()), input_for(name)
    scripted = torch.jit.script(model)
    gradients = []
    for run in (scripted, scripted, scripted, model):
        model.zero_grad()
        with weft.disabled() if run is model else contextlib.nullcontext():
            run(x).pow(2).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for ours in gradients[:-1]:
        assert_leaves_close(ours, gradients[-1], rtol=1e-4)


# torch.export


def exported(name: str, dynamic: bool, length: int = 7) -> tuple[nn.Module, torch.export.ExportedProgram]:
    model, x = Model(MODULES[name]()).eval(), input_for(name, length)
    steps = None
    if dynamic:
        steps = ({1 if model.module.batch_first else 0: torch.export.Dim("steps", min=2, max=200)},)
    return model, torch.export.export(model, (x,), dynamic_shapes=steps)


def operators(program: torch.export.ExportedProgram) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


@every_module
def test_decompositions_are_pytorchs(name: str) -> None:
    """PyTorch's decompositions unroll the steps: of three, the first, one between and the last are there."""
    with weft.disabled():
        _, program = exported(name, dynamic=False, length=3)
        theirs = [operators(program.run_decompositions(table)) for table in (None, {})]
    _, program = exported(name, dynamic=False, length=3)
    ours = [operators(program.run_decompositions(table)) for table in (None, {})]
    assert ours == theirs and not any("weft" in operator for operator in ours[0] | ours[1])
    assert any("addmm" in operator or "mm" in operator for operator in ours[0])


@pytest.mark.parametrize("dynamic", [False, True])
@every_layer
def test_a_table_without_the_operator_keeps_it(name: str, dynamic: bool) -> None:
    """As without Weft. torch.onnx.export has a table without the operator, and makes one node of the operator."""
    model, program = exported(name, dynamic)
    before = Counter({op: n for op, n in operators(program).items() if ".input" in op or ".data" in op})
    decomposed = program.run_decompositions({})
    after = operators(decomposed)
    assert before and all(after[op] == n for op, n in before.items()), after
    x = input_for(name)
    assert_leaves_close(decomposed.module()(x), model(x), rtol=1e-4)
    x = input_for(name, 3)  # unrolled now
    y = torch.export.export(model, (x,)).run_decompositions().module()(x)  # and the kernels are back
    assert_leaves_close(y, model(x), rtol=1e-4)


@every_layer
def test_decomposed_with_a_free_length(name: str) -> None:
    """Which PyTorch alone cannot export: the recurrence stays one operator, and other lengths work."""
    model, program = exported(name, dynamic=True)
    assert operators(program.run_decompositions())["weft.call.default"] == 1
    with weft.disabled():
        expected = {steps: model(input_for(name, steps)) for steps in (2, 3)}
    assert {steps: y.shape for steps, y in expected.items()} == {
        steps: program.run_decompositions().module()(input_for(name, steps)).shape for steps in expected
    }


@pytest.mark.parametrize("dynamic", [False, True])
@every_layer
def test_export_saved_and_loaded(name: str, dynamic: bool) -> None:
    model, program = exported(name, dynamic)
    assert not any("weft" in operator for operator in operators(program)), "needs weft where it is loaded"
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for steps in (7, 2, 31) if dynamic else (7,):
        x = input_for(name, steps)
        with weft.disabled():
            expected = model(x)
        assert_leaves_close(loaded(x), expected, rtol=1e-4)
        with weft.disabled():
            assert_leaves_close(loaded(x), expected, rtol=1e-4)
    assert weft.stats()["calls"] > 0


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_export_of_cells(name: str) -> None:
    model, program = exported(name, dynamic=False)
    x = input_for(name)
    assert_leaves_close(program.module()(x), model(x), rtol=1e-4)


# torch.compile


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "weft", pytest.param("inductor", marks=pytest.mark.slow)])
@every_module
def test_compiled_without_a_graph_break(name: str, backend: str) -> None:
    if backend == "inductor" and name not in ("GRU both ways", "LSTM projected", "LSTMCell"):
        pytest.skip("Inductor takes long; these three have what the others have")
    model = Model(MODULES[name]())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for steps in (7, 6, 9):
        x = input_for(name, steps)
        with weft.disabled():
            model.zero_grad()
            expected = model(x)
            expected.pow(2).sum().backward()
            gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        y = compiled(x)
        y.pow(2).sum().backward()
        assert_leaves_close(
            [y, *(parameter.grad for parameter in model.parameters())], [expected, *gradients], rtol=1e-4
        )
        with torch.no_grad():
            assert_leaves_close(compiled(x), expected, rtol=1e-4)
    assert weft.stats()["calls"] > 0 or "Cell" in name


@pytest.mark.parametrize("backend", ["aot_eager", "weft"])
def test_compiled_around_a_loop_over_cells(backend: str) -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(5, 6)

        def forward(self, x: Tensor, reset: Tensor) -> Tensor:
            state, states = x.new_zeros(x.shape[1], 6), []
            for step in range(len(x)):
                state = self.cell(x[step], state * ~reset[step, :, None])
                states.append(state)
            return torch.stack(states)

    model, x, reset = Loop(), torch.randn(5, 4, 5), torch.rand(5, 4) < 0.3
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert_leaves_close(
        torch.autograd.grad(compiled(x, reset).sum(), list(model.parameters())),
        torch.autograd.grad(model(x, reset).sum(), list(model.parameters())),
        rtol=1e-4,
    )


# Flop counting


def counted(name: str, dtype: torch.dtype, training: bool) -> dict[str, dict[str, int]]:
    model, x = Model(MODULES[name]()).to(dtype), input_for(name).to(dtype).requires_grad_(training)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
        y = model(x)
        if training:
            y.sum().backward()
    return {where: {str(op): n for op, n in counts.items()} for where, counts in counter.get_flop_counts().items()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@every_module
def test_flops_are_pytorchs(name: str, dtype: torch.dtype, training: bool) -> None:
    with weft.disabled():
        theirs = counted(name, dtype, training)
    assert counted(name, dtype, training) == theirs
    assert "weft" in sys.modules and weft._C.active(), "on again behind the counting"


def test_flops_of_a_compiled_model_have_a_formula() -> None:
    module, x = nn.GRU(5, 6), torch.randn(7, 4, 5)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("steps", min=2)},))
    decomposed = program.run_decompositions().module()
    with FlopCounterMode(display=False) as counter:
        decomposed(x)
    assert counter.get_total_flops() == 2 * 7 * 4 * 18 * (5 + 6)


def test_the_flop_counter_nests_and_ends_with_an_error() -> None:
    module, x = nn.GRU(5, 6), torch.randn(7, 4, 5)
    with pytest.raises(ValueError), FlopCounterMode(display=False):
        with FlopCounterMode(display=False):
            module(x)
        assert not weft._C.active()
        raise ValueError
    assert weft._C.active()
    with pytest.raises(AssertionError):
        FlopCounterMode(display=False).__exit__(None, None, None)
    assert weft._C.active()
