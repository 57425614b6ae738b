"""torch.export programs: read as data, and written so that torch.export.load runs them."""

from __future__ import annotations

import io
import json
import warnings
import zipfile

import pytest
import torch
from layer_reference import run_layers
from torch import nn

import weft.nn
from weft import formats

MODULES = {
    "gru": lambda: nn.GRU(3, 4),
    "gru-2-bidirectional": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "lstm-projected": lambda: nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True, batch_first=True),
    "lstm-no-bias": lambda: nn.LSTM(3, 4, bias=False),
    "rnn-relu": lambda: nn.RNN(3, 4, 2, nonlinearity="relu"),
    "rnn-tanh": lambda: nn.RNN(3, 4, dtype=torch.float64),
    "gru-reset-before": lambda: weft.nn.GRU(3, 4, 2, reset_after=False, gate_activation="hard_sigmoid"),
    "gru-clipped": lambda: weft.nn.GRU(3, 4, cell_clip=0.1, zoneout=0.2),
    "lstm-everything": lambda: weft.nn.LSTM(
        3, 4, 2, peepholes=True, coupled_input_forget="forget", layer_norm=True, zoneout=(0.1, 0.3), bidirectional=True
    ),
    "lstm-functions": lambda: weft.nn.LSTM(
        3, 4, gate_activation=lambda x: (0.2 * x + 0.5).clamp(0, 1), activation=nn.functional.softsign
    ),
    "rnn-elu": lambda: weft.nn.RNN(3, 4, activation="elu"),
}


class Model(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.body = nn.ModuleDict({"rnn": rnn})

    def forward(self, x):
        return self.body["rnn"](x * 2)[0] + 1


def exported(model, *inputs, decomposed=False, dynamic=False):
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), inputs, dynamic_shapes=(sizes,) if dynamic else None)
        return program.run_decompositions() if decomposed else program


def saved(tmp_path, program):
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    return path


def check_is(source, module):
    wanted = formats.layers_of_module(module).layers
    assert [layer.continues for layer in source.layers] == [layer.continues for layer in wanted]
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(run_layers(source.layers, x), run_layers(wanted, x), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("decomposed", "dynamic"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", MODULES)
def test_an_exported_module_is_read(name, decomposed, dynamic, tmp_path):
    module = MODULES[name]()
    x = torch.randn(5, 2, 3, dtype=next(module.parameters()).dtype)
    path = saved(tmp_path, exported(Model(module), x, decomposed=decomposed, dynamic=dynamic))
    if decomposed and name in ("gru-clipped", "lstm-functions", "rnn-elu", "lstm-everything", "gru-reset-before"):
        with pytest.raises(formats.FormatError, match="export it without run_decompositions"):
            formats.read(path)
        return
    source = formats.read(path)
    assert source.format == "torch.export" and source.layers[0].name.startswith("body.rnn")
    assert len(source.notes) == (decomposed and not dynamic)  # a note says that the steps are written out
    check_is(source, module)


WRITTEN_OUT = """
import sys, warnings
import torch
from torch import nn

modules = {
    "gru": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "lstm": lambda: nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True, batch_first=True),
    "relu": lambda: nn.RNN(3, 4, 2, nonlinearity="relu"),
    "tanh": lambda: nn.RNN(3, 4),
}

class Model(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn
    def forward(self, x):
        return torch.tanh(self.rnn(torch.relu(x))[0])
"""


def test_steps_written_out_are_read_by_the_parameters_names(tmp_path, run_warm_python):
    """Exports made without Weft, decomposed: matrix products of every step."""
    run_warm_python(
        f"""{WRITTEN_OUT}
warnings.simplefilter("ignore")
for name, make in modules.items():
    torch.manual_seed(0)
    program = torch.export.export(Model(make()).eval(), (torch.randn(3, 2, 3),)).run_decompositions()
    torch.export.save(program, f"{{name}}.pt2")
assert "weft" not in sys.modules
"""
    )
    names: dict = {}
    exec(WRITTEN_OUT, names)
    for name, make in names["modules"].items():
        source = formats.read(tmp_path / f"{name}.pt2")
        assert any("written out" in note for note in source.notes)
        torch.manual_seed(0)
        check_is(source, make())


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.GRU(3, 4, bidirectional=True)
        self.dec = nn.LSTM(8, 4, batch_first=True)
        self.side = nn.RNN(3, 4)
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x):
        with torch.no_grad():
            y = self.enc(x)[0]
        y = self.dec(y.transpose(0, 1))[0].transpose(0, 1)
        h = c = torch.zeros(x.shape[1], 5)
        for t in range(x.shape[0]):
            h, c = self.cell(y[t], (h, c))
        return h, self.side(x)[0]


@pytest.mark.parametrize("decomposed", [False, True])
def test_several_modules_and_cells_and_inner_graphs(decomposed, tmp_path):
    model = Several()
    program = exported(model, torch.randn(5, 2, 3), decomposed=decomposed)
    source = formats.read(saved(tmp_path, program))
    found = {layer.name: layer for layer in source.layers}
    assert set(found) == {"enc", "dec", "cell", "side"}
    assert found["dec"].continues != decomposed and not any(found[name].continues for name in ("enc", "cell", "side"))
    for name, layer in found.items():
        (wanted,) = formats.layers_of_module(getattr(model, name)).layers
        x = torch.randn(5, 2, wanted.input_size)
        assert torch.equal(run_layers([layer], x), run_layers([wanted], x))


def test_a_module_that_is_called_twice(tmp_path):
    class Twice(nn.Module):
        def __init__(self, in_a_row):
            super().__init__()
            self.rnn, self.in_a_row = nn.GRU(4, 4), in_a_row

        def forward(self, x, z):
            y = self.rnn(x)[0]
            return y + self.rnn(y if self.in_a_row else z)[0]

    x, z = torch.randn(5, 2, 4), torch.randn(5, 2, 4)
    for in_a_row, wanted in ((False, [False]), (True, [False, True])):
        source = formats.read(saved(tmp_path, exported(Twice(in_a_row), x, z)))
        assert [layer.continues for layer in source.layers] == wanted


def test_initial_states_that_are_parameters_are_read(tmp_path):
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4)
            self.h0 = nn.Parameter(torch.randn(1, 1, 4))

        def forward(self, x):
            return self.rnn(x, self.h0.expand(-1, x.shape[1], -1))[0]

    model = Learned()
    source = formats.read(saved(tmp_path, exported(model, torch.randn(5, 2, 3))))
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(run_layers(source.layers, x), model(x).double().detach(), atol=1e-6, rtol=0)


def test_a_state_given_when_it_runs_is_noted(tmp_path):
    path = saved(tmp_path, exported(nn.GRU(3, 4), torch.randn(5, 2, 3), torch.randn(1, 2, 4)))
    assert ["zeros are taken" in note for note in formats.read(path).notes] == [True]


@pytest.mark.parametrize("name", MODULES)
def test_written_programs_run(name, tmp_path):
    module = MODULES[name]()
    path = tmp_path / "model.pt2"
    notes = formats.write(formats.layers_of_module(module), path)
    assert bool(notes) == isinstance(module, weft.nn._variant.Variant)
    check_is(formats.read(path), module)
    module = module.eval()
    module.batch_first = False
    program = torch.export.load(path).module()
    for steps, batch in ((7, 3), (2, 5)):
        x = torch.randn(steps, batch, 3, dtype=next(module.parameters()).dtype)
        with torch.no_grad():
            torch.testing.assert_close(program(x), module(x)[0], atol=1e-6, rtol=0)


def test_chains_and_states_are_written(tmp_path):
    first = list(formats.layers_of_module(nn.LSTM(3, 4, bidirectional=True)).layers)
    second = list(formats.layers_of_module(nn.GRU(8, 5)).layers)
    apart = list(formats.layers_of_module(nn.RNN(2, 3)).layers)
    second[0].continues = True
    for d in first[0].directions:
        d.h0, d.c0 = torch.randn(4), torch.randn(4)
    path = tmp_path / "model.pt2"
    formats.write([*first, *second, *apart], path)
    again = formats.read(path).layers
    assert [layer.continues for layer in again] == [False, True, False]
    x, z = torch.randn(6, 2, 3), torch.randn(4, 3, 2)
    y, w = torch.export.load(path).module()(x, z)
    torch.testing.assert_close(y.double(), run_layers([*first, *second], x), atol=1e-6, rtol=0)
    torch.testing.assert_close(w.double(), run_layers(apart, z), atol=1e-6, rtol=0)
    assert torch.equal(run_layers(again[:2], x), run_layers([*first, *second], x))


def edited(path, change):
    """The archive with its program's JSON changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w") as new:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith("models/model.json") or name.endswith("weights_config.json"):
                data = json.dumps(change(name, json.loads(data))).encode()
            new.writestr(name, data)
    path.write_bytes(out.getvalue())


def test_errors_say_what_was_wrong(tmp_path):
    def message(change):
        path = saved(tmp_path, exported(nn.GRU(3, 4), torch.randn(5, 2, 3)))
        edited(path, change)
        with pytest.raises(formats.FormatError) as caught:
            formats.read(path)
        return str(caught.value)

    def sizes(name, value):
        if "config" in name:
            value["config"]["weight_hh_l0"]["tensor_meta"]["sizes"][0]["as_int"] = 1 << 60
        return value

    def dtype(name, value):
        if "config" in name:
            value["config"]["weight_hh_l0"]["tensor_meta"]["dtype"] = 9
        return value

    def parameters(name, value):
        for node in value.get("graph_module", {}).get("graph", {}).get("nodes", ()):
            if "gru" in node["target"]:
                del node["inputs"][2]["arg"]["as_tensors"][1:]
        return value

    assert f"weight_hh_l0 claims shape [{1 << 60}, 4], which its 192 bytes can't hold" in message(sizes)
    assert "weight_hh_l0 has data type number 9" in message(dtype)
    assert "has 1 parameters for 1 layers and directions" in message(parameters)
    assert "its program has no graph" in message(lambda name, value: {"models": 1} if "model.json" in name else value)
    path = saved(tmp_path, exported(nn.Linear(3, 4), torch.randn(5, 3)))
    with pytest.raises(formats.FormatError, match="holds no recurrent operator"):
        formats.read(path)


def test_what_no_module_can_be_is_named(tmp_path):
    (layer,) = formats.layers_of_module(nn.GRU(3, 4)).layers
    layer.directions[0].reverse = True
    layer.clip = 1.0
    with pytest.raises(formats.FormatError, match=r"clip of what goes into the activations.*; one direction alone"):
        formats.write([layer], tmp_path / "model.pt2")
