"""weft.formats: PyTorch's state dicts and modules, traces, and everything that reading and writing share."""

from __future__ import annotations

import os
import re
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from layer_reference import run_layers
from torch import nn
from torch.nn.utils import parametrizations, prune

import weft.nn
from weft import formats

MODULES = {
    "gru": lambda: nn.GRU(3, 4),
    "gru-2-bidirectional": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "gru-half": lambda: nn.GRU(3, 4, dtype=torch.float16),
    "lstm": lambda: nn.LSTM(3, 4, 2, dtype=torch.float64),
    "lstm-projected": lambda: nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True),
    "lstm-no-bias": lambda: nn.LSTM(3, 4, bias=False, dtype=torch.bfloat16),
    "rnn": lambda: nn.RNN(3, 4, 3),
    "gru-layer-norm": lambda: weft.nn.GRU(3, 4, 2, layer_norm=True, bidirectional=True),
    "lstm-peepholes": lambda: weft.nn.LSTM(3, 4, 2, peepholes=True),
    "lstm-coupled": lambda: weft.nn.LSTM(3, 4, peepholes=True, coupled_input_forget=True),
    "lstm-forget": lambda: weft.nn.LSTM(3, 4, peepholes=True, coupled_input_forget="forget", layer_norm=True),
    "lstm-norm-no-bias": lambda: weft.nn.LSTM(3, 4, layer_norm=True, bias=False, proj_size=2),
}
#: Modules whose settings a state dict lacks, with the options that say them.
WITH_OPTIONS = {
    "relu": (lambda: nn.RNN(3, 4, 2, nonlinearity="relu"), {"nonlinearity": "relu"}),
    "elu": (lambda: weft.nn.RNN(3, 4, activation="elu", cell_clip=0.5), {"activation": "elu", "cell_clip": 0.5}),
    "before": (lambda: weft.nn.GRU(3, 4, reset_after=False), {"reset_after": "false"}),
    "ramp": (
        lambda: weft.nn.GRU(3, 4, gate_activation=lambda x: (0.2 * x + 0.5).clamp(0, 1), activation="softsign"),
        {"gate_activation": "hard_sigmoid(0.2, 0.5)", "activation": "softsign"},
    ),
    "coupled": (lambda: weft.nn.LSTM(3, 4, coupled_input_forget="forget"), {"coupled_input_forget": "forget"}),
    "zoneout": (lambda: weft.nn.LSTM(3, 4, zoneout=0.25), {"zoneout": "0.25"}),
}


def state(module):
    """The module's parameters, with those of layer_norm away from 1 and 0."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "ln" in name:
                parameter.normal_(1, 0.2)
    return module.state_dict()


def message(path, **options):
    with pytest.raises(formats.FormatError) as caught:
        formats.read(path, **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))
    return str(caught.value)


def save(tmp_path, value, name="file.pt"):
    path = tmp_path / name
    torch.save(value, path)
    return path


def check_is(layers, module, atol=1e-12):
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    wide = module.double().eval()
    with torch.no_grad():
        torch.testing.assert_close(run_layers(list(layers), x), wide(x)[0], atol=atol, rtol=0)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", MODULES)
def test_a_state_dict_is_read_as_the_module_runs(name, suffix, tmp_path):
    module = MODULES[name]()
    path = tmp_path / f"model{suffix}"
    if suffix == ".pt":
        torch.save(state(module), path)
    else:
        pytest.importorskip("safetensors.torch").save_file(state(module), path)
    source = formats.read(path)
    assert source.format == "pytorch" and source.ignored == []
    assert source.layers[0].directions[0].weight_x.dtype == module.weight_ih_l0.dtype
    assert [layer.continues for layer in source.layers] == [i > 0 for i in range(module.num_layers)]
    check_is(source.layers, module)


@pytest.mark.parametrize("name", [*MODULES, *WITH_OPTIONS])
def test_a_module_in_memory_is_read_and_written_as_its_state_dict(name, tmp_path):
    module = (MODULES[name] if name in MODULES else WITH_OPTIONS[name][0])()
    wanted = {key: value.clone() for key, value in state(module).items()}
    source = formats.layers_of_module(module)
    path = tmp_path / "model.pt"
    formats.write(source, path)
    written = torch.load(path, weights_only=True)
    assert set(written) == set(wanted) and all(torch.equal(written[key], wanted[key]) for key in wanted)
    check_is(source.layers, module)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_options_say_what_the_file_does_not(name, tmp_path):
    make, options = WITH_OPTIONS[name]
    module = make()
    path = save(tmp_path, module.state_dict())
    check_is(formats.read(path, options=options).layers, module)
    notes = formats.write(formats.read(path, options=options), tmp_path / "again.safetensors")
    assert len(notes) == 1 and "load it into" in notes[0]
    # The line in the note makes a module that does the same.
    again = eval(notes[0].partition("load it into ")[2], {"nn": nn, "weft": weft, "torch": torch})
    again.load_state_dict(formats_state(tmp_path / "again.safetensors"))
    check_is(formats.layers_of_module(module).layers, again)


def formats_state(path):
    return pytest.importorskip("safetensors.torch").load_file(path)


def test_an_rnn_without_options_is_noted(tmp_path):
    assert "tanh is assumed" in formats.read(save(tmp_path, nn.RNN(3, 4).state_dict())).notes[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.encoder = nn.ModuleDict({"rnn": nn.GRU(3, 4, 2, bidirectional=True)})
        self.cells = nn.ModuleList([nn.LSTMCell(8, 5), nn.LSTMCell(5, 5, bias=False)])
        self.extra = nn.RNNCell(5, 6, nonlinearity="relu")


def test_modules_anywhere_in_a_model_by_their_names(tmp_path):
    model = Model()
    names = ["encoder.rnn.l0", "encoder.rnn.l1", "cells.0", "cells.1", "extra"]
    wrapped = {f"module._orig_mod.{key}": value for key, value in model.state_dict().items()}
    training = {"epoch": 3, "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "groups": [{"lr": 0.1}]}}
    for content in (
        model.state_dict(),
        wrapped,
        {"state_dict": model.state_dict(), **training},
        {"model_state_dict": wrapped, **training},
    ):
        source = formats.read(save(tmp_path, content))
        assert [layer.name for layer in source.layers] == names
        assert [layer.continues for layer in source.layers] == [False, True, False, False, False]
        assert any("embed.weight" in name for name in source.ignored)
    assert formats.layers_of_module(model).layers[-1].activation == formats.Activation("relu")
    only = formats.read(save(tmp_path, wrapped), options={"module": "cells"})
    assert [layer.name for layer in only.layers] == ["cells.0", "cells.1"]
    assert "has no recurrent module 'decoder'; it has encoder.rnn, cells.0" in message(
        save(tmp_path, wrapped), options={"module": "decoder"}
    )


def test_layers_are_in_the_order_of_their_numbers(tmp_path):
    model = nn.ModuleList([nn.GRUCell(3, 3) for _ in range(12)])
    path = tmp_path / "model.safetensors"
    pytest.importorskip("safetensors.torch").save_file(model.state_dict(), path)
    assert [layer.name for layer in formats.read(path).layers] == [str(i) for i in range(12)]


def test_an_averaged_copy_of_the_model_is_left_out(tmp_path):
    first, second = nn.GRU(3, 4), nn.GRU(3, 4)
    path = save(tmp_path, {"ema": second.state_dict(), "state_dict": first.state_dict()})
    source = formats.read(path)
    assert len(source.layers) == 1 and torch.equal(source.layers[0].directions[0].weight_h, first.weight_hh_l0)
    assert "option module=ema" in source.notes[0]
    (other,) = formats.read(save(tmp_path, {"ema": second.state_dict()})).layers
    assert torch.equal(other.directions[0].weight_h, second.weight_hh_l0)


@pytest.mark.parametrize("old", [False, True])
def test_normalised_and_pruned_weights_are_those_they_stand_for(old, tmp_path):
    module = nn.GRU(3, 4)
    if old:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.nn.utils.weight_norm(module, "weight_hh_l0")
        prune.random_unstructured(module, "weight_ih_l0", 0.4)
    else:
        parametrizations.weight_norm(module, "weight_hh_l0", dim=1)
    content = {key: value.clone() for key, value in module.state_dict().items()}
    for key, value in content.items():
        if key.endswith(("_g", "original0")):
            value.mul_(1.5)
    module.load_state_dict(content)
    module(torch.randn(2, 3))  # the old kind computes the weights here
    source = formats.read(save(tmp_path, module.state_dict()))
    assert len(source.notes) == (2 if old else 1) and "weight_norm" in " ".join(source.notes)
    torch.testing.assert_close(source.layers[0].directions[0].weight_h, module.weight_hh_l0.detach())
    torch.testing.assert_close(source.layers[0].directions[0].weight_x, module.weight_ih_l0.detach())


def test_other_parametrizations_are_refused(tmp_path):
    module = parametrizations.spectral_norm(nn.GRU(3, 4), "weight_hh_l0")
    text = message(save(tmp_path, module.state_dict()))
    assert "parametrizations.weight_hh_l0.original is what a parametrization makes weight_hh_l0 of" in text
    # A module in memory has the weight itself.
    (layer,) = formats.layers_of_module(module.eval()).layers
    torch.testing.assert_close(layer.directions[0].weight_h, module.weight_hh_l0.detach())


def test_stacks_become_modules_of_their_own(tmp_path):
    """A forward layer of 4 units, one of 5 and a GRU can't be one module."""
    layers = [
        *formats.layers_of_module(nn.LSTM(3, 4, 2)).layers,
        *formats.layers_of_module(nn.LSTM(4, 5)).layers,
        *formats.layers_of_module(nn.GRU(5, 4)).layers,
    ]
    for layer, name in zip(layers, ("a/b.l0", "a/b.l1", "c", "c"), strict=True):
        layer.name, layer.continues = name, name != "a/b.l0"
    formats.write(layers, tmp_path / "model.pt")
    written = torch.load(tmp_path / "model.pt", weights_only=True)
    assert {key.partition(".")[0] for key in written} == {"a_b", "c", "c_1"}
    module = nn.ModuleDict({"a_b": nn.LSTM(3, 4, 2), "c": nn.LSTM(4, 5), "c_1": nn.GRU(5, 4)})
    module.load_state_dict(written)
    again = formats.read(tmp_path / "model.pt").layers
    assert [layer.name for layer in again] == ["a_b.l0", "a_b.l1", "c", "c_1"]


def test_what_is_filled_in_is_noted(tmp_path):
    (layer,) = formats.layers_of_module(nn.LSTM(3, 4)).layers
    layer.directions[0].bias_h = None
    assert formats.write([layer], tmp_path / "model.pt") == [
        "the source has one bias, which is bias_ih; bias_hh is zero"
    ]
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias_hh_l0"].eq(0).all()


def test_all_that_cannot_be_expressed_is_named_and_nothing_is_written(tmp_path):
    (layer,) = formats.layers_of_module(nn.LSTM(3, 4, bidirectional=True)).layers
    layer.clip, layer.merge, layer.output_activation = 2.0, "sum", formats.Activation("relu")
    layer.directions[0].h0 = torch.ones(4)
    path = tmp_path / "model.pt"
    path.write_text("as it was")
    with pytest.raises(formats.FormatError) as caught:
        formats.write([layer], path)
    parts = ("an output activation of its own", "clip of what goes", "an initial state", "other than by concatenation")
    assert all(part in str(caught.value) for part in parts)
    assert path.read_text() == "as it was" and os.listdir(tmp_path) == ["model.pt"]


def test_where_a_file_cannot_be_written(tmp_path):
    source = formats.layers_of_module(nn.GRU(3, 4))
    for path, text in (
        (tmp_path / "absent" / "model.pt", "can't be written"),
        (tmp_path / "model.txt", "give format=, or one of the extensions .pt"),
    ):
        with pytest.raises(formats.FormatError, match=text):
            formats.write(source, path)
    with pytest.raises(formats.FormatError, match="there is no format 'torch'; there are equinox, pytorch"):
        formats.write(source, tmp_path / "model.pt", format="torch")
    with pytest.raises(formats.FormatError, match=r"onnx files are named \.onnx"):
        formats.write(source, tmp_path / "model.pt", format="onnx")
    with pytest.raises(formats.FormatError, match="format trace can't hold layers"):
        formats.write(source, tmp_path / "model.pt", format="trace")


def changed(module, **values):
    return {key: value for key, value in (module.state_dict() | values).items() if value is not None}


def test_errors_name_the_parameter(tmp_path):
    gru, lstm = nn.GRU(3, 4, 2), nn.LSTM(3, 4, proj_size=2)
    wrong = {
        "weight_hh_l0 has shape [12, 5]; with 5 units": changed(gru, weight_hh_l0=torch.zeros(12, 5)),
        "bias_hh_l1 has shape [13], expected [12]": changed(gru, bias_hh_l1=torch.zeros(13)),
        "bias_hh_l0 has dtype int64; weights are": changed(gru, bias_hh_l0=torch.zeros(12, dtype=torch.int64)),
        "weight_hh_l0 has dtype complex64": changed(gru, weight_hh_l0=torch.zeros(12, 4, dtype=torch.complex64)),
        "bias_ih_l0 has dtype float64, the layer's": changed(gru, bias_ih_l0=torch.zeros(12, dtype=torch.float64)),
        "weight_ih_l1 has 3 columns, where the layer before": changed(gru, weight_ih_l1=torch.zeros(12, 3)),
        "has no weight_ih beside it": changed(gru, weight_ih_l1=None),
        "has layers 1, where layers count from 0": {k: v for k, v in gru.state_dict().items() if "l1" in k},
        "one of bias_ih and bias_hh": changed(gru, bias_hh_l1=None),
        "weight_hh_l0 has shape [16, 4], expected [16, 2]": changed(lstm, weight_hh_l0=torch.zeros(16, 4)),
        "has a reverse direction and no forward one": {f"{k}_reverse": v for k, v in nn.GRU(3, 4).state_dict().items()},
        "which holds nothing": changed(nn.GRU(3, 4), weight_ih_l0=torch.zeros(12, 0)),
    }
    for text, content in wrong.items():
        assert text in message(save(tmp_path, content)), text


def test_what_is_no_model_is_said_in_a_line(tmp_path):
    assert "is empty" in message(written(tmp_path, b""))
    assert "can't be read: No such file" in message(tmp_path / "absent.pt")
    assert "is a folder" in message(tmp_path)
    assert "starts like none of the files" in message(written(tmp_path, b"hello, world"))
    assert "holds no recurrent layer" in message(save(tmp_path, nn.Linear(3, 4).state_dict()))
    assert "is a PyTorch file; onnx files aren't" in message(save(tmp_path, nn.GRU(3, 4).state_dict()), format="onnx")
    assert "have no option 'rest_after'; it has activation, cell_clip" in message(
        save(tmp_path, nn.GRU(3, 4).state_dict()), options={"rest_after": "1"}
    )
    assert "option reset_after is true or false, got: 'maybe'" in message(
        save(tmp_path, nn.GRU(3, 4).state_dict()), options={"reset_after": "maybe"}
    )
    assert "there is no activation 'relux'" in message(
        save(tmp_path, nn.RNN(3, 4).state_dict()), options={"activation": "relux"}
    )
    script = tmp_path / "script.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(nn.GRU(3, 4)).save(script)
    assert "is a TorchScript archive, which is code" in message(script)
    torch.save(nn.GRU(3, 4).state_dict(), script, _use_new_zipfile_serialization=False)
    assert "is a pickle, maybe of PyTorch's format before 1.6" in message(script)
    assert "holds an object of torch.nn.modules.rnn.GRU" in message(save(tmp_path, nn.GRU(3, 4)))


def test_a_forward_of_its_own_is_noted():
    class Doubled(nn.GRU):
        def forward(self, x, hx=None):
            return super().forward(2 * x, hx)

    assert "Doubled has a forward of its own" in formats.layers_of_module(Doubled(3, 4)).notes[0]
    plain = parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0")
    assert formats.layers_of_module(plain).notes == [] == formats.layers_of_module(nn.GRUCell(3, 4)).notes


def test_names_in_a_file_cannot_break_the_line(tmp_path):
    content = {f"a\n\x1b[31m.{key}": value for key, value in nn.GRU(3, 4).state_dict().items() if "hh" in key}
    assert "a ?[31m.weight_hh_l0 has no weight_ih" in message(save(tmp_path, content))


def test_checkpoints_hold_more_than_weights(tmp_path):
    """What torch.save writes of plain values, views, transposed and tied tensors, and parameters."""
    module = nn.GRU(4, 4)
    block = torch.randn(40, 4)
    content = dict(module.named_parameters()) | {
        "weight_ih_l0": block[3:15],
        "weight_hh_l0": block[3:15].t().contiguous().t(),
        "bias_hh_l0": module.bias_ih_l0,
    }
    more = {
        "dtype": torch.float32,
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "plain": [None, True, (1, 2.5), 2**80, b"abc", {1, 2}, torch.zeros(2, dtype=torch.bool)],
    }
    (layer,) = formats.read(save(tmp_path, {"model": content, **more})).layers
    d = layer.directions[0]
    assert torch.equal(d.weight_x, block[3:15]) and torch.equal(d.weight_h, block[3:15])
    assert torch.equal(d.bias_h, module.bias_ih_l0)
    torch.save(content, tmp_path / "file.pt", pickle_protocol=4)
    assert "its pickle has protocol 4" in message(tmp_path / "file.pt")
    assert "object of collections.defaultdict" in message(save(tmp_path, {"a": content, "b": defaultdict(list)}))


def written(tmp_path, data, name="file.bin"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_functions_of_a_module_in_memory_are_known_by_what_they_do():
    functions = {
        "hard_sigmoid(0.2, 0.5)": lambda x: torch.clamp(x / 5 + 0.5, 0, 1),
        "hard_sigmoid(0.166666667, 0.5)": nn.Hardsigmoid(),
        "scaled_tanh(1.7159, 0.666667)": lambda x: 1.7159 * torch.tanh(0.666667 * x),
        "leaky_relu(0.2)": nn.LeakyReLU(0.2),
        "elu(0.7)": nn.ELU(0.7),
        "affine(2, 1)": lambda x: 2 * x + 1,
        "relu": torch.relu,
        "gelu": nn.GELU(),
        "gelu_tanh": nn.GELU("tanh"),
        "softplus": nn.Softplus(),
    }
    for text, function in functions.items():
        (layer,) = formats.layers_of_module(weft.nn.GRU(3, 4, activation=function)).layers
        a = layer.activation
        assert str(formats.Activation(a.name, *(round(v, 9) for v in (a.alpha, a.beta)))) == text
    with pytest.raises(formats.FormatError, match="its activation <lambda> is a function that isn't among"):
        formats.layers_of_module(weft.nn.GRU(3, 4, activation=lambda x: torch.sin(x)))
    with pytest.raises(formats.FormatError, match=r"Linear holds no nn\.GRU"):
        formats.layers_of_module(nn.Linear(3, 4))


TRACE = {
    "x": (4, 2, 3),
    "y": (4, 2, 10),
    "h0": (2, 5),
    "hn": (2, 2, 5),
    "c0": (2, 5),
    "r": (4, 2, 5),
    "gate_z": (4, 2, 5),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_a_trace_is_read_and_written(suffix, tmp_path):
    values = {name: torch.randn(shape) for name, shape in TRACE.items()}
    path = tmp_path / f"trace{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, **{name: np.asfortranarray(value.numpy()) for name, value in values.items()})
    elif suffix == ".pt":
        torch.save(values, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(values, path)
    source = formats.read(path)
    trace = source.trace
    assert source.format == "trace" and source.layers == []
    assert torch.equal(trace.x, values["x"]) and torch.equal(trace.hn, values["hn"]) and trace.cn is None
    assert torch.equal(trace.gates["z"], values["gate_z"]) and list(trace.gates) == ["r", "z"]
    again = tmp_path / f"again{suffix}"
    assert formats.write(source, again, format="trace") == []
    for name in ("x", "y", "h0", "c0", "hn"):
        assert torch.equal(getattr(formats.read(again).trace, name), values[name])


def test_shapes_of_a_trace_that_do_not_fit(tmp_path):
    def of(**shapes):
        given = {name: shape for name, shape in (TRACE | shapes).items() if shape}
        path = tmp_path / "trace.npz"
        np.savez(path, **{name: np.zeros(shape, np.float32) for name, shape in given.items()})
        return message(path)

    assert "x has shape [4, 3] and y [4, 2, 10]; a trace has x [T, B, I]" in of(x=(4, 3))
    assert "one of the two has the batch first; transpose it" in of(y=(2, 4, 10))
    assert "[B, I, T] and [B, H, T], transpose both" in of(x=(2, 3, 4), y=(2, 10, 4))
    assert "h0 has shape [3, 5]; with 2 rows of the batch in x, [2, H] or [layers*directions, 2, H]" in of(h0=(3, 5))
    assert "r has shape [4, 3, 5], expected [4, 2, ?]" in of(r=(4, 3, 5))
    assert "r has 7 units" in of(r=(4, 2, 7))
    assert "names its parameters; it has x, h0" in of(y=())


def test_the_document_names_every_format_extension_and_option():
    from weft.formats._registry import FORMATS

    text = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    for format in FORMATS:
        row = next(row for row in text.splitlines() if row.startswith(f"| `{format.name}` |"))
        assert all(f" {extension}" in row for extension in format.extensions), (format.name, row)
        if format.name != "torch.export":
            named = set(re.findall(r"`(\w+)`", row.split("|")[4]))
            assert named == set(format.options), format.name
