"""ONNX models: read as ONNX Runtime runs them and as PyTorch exports them; written so that ONNX Runtime runs them."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from layer_reference import run_layers
from onnx_models import GATES, helper, node_model, onnx, read_model, run_onnx
from torch import nn

import weft
from weft import formats

NODES = {
    "gru": ("GRU", {}),
    "gru-linear-before-reset": ("GRU", {"linear_before_reset": 1}),
    "gru-bidirectional": ("GRU", {"directions": 2, "linear_before_reset": 1, "state": True}),
    "gru-reverse": ("GRU", {"direction": "reverse", "state": True}),
    "gru-no-bias": ("GRU", {"bias": False, "linear_before_reset": 1}),
    "gru-clip": ("GRU", {"clip": 0.3, "linear_before_reset": 1}),
    "gru-clip-reset-before": ("GRU", {"clip": 0.3}),
    "gru-activations": ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.1]}),
    "gru-activations-defaults": ("GRU", {"activations": ["HardSigmoid", "Elu"]}),
    "gru-lower-case": ("GRU", {"activations": ["sigmoid", "softsign"]}),
    "lstm": ("LSTM", {}),
    "lstm-bidirectional": ("LSTM", {"directions": 2, "state": True}),
    "lstm-reverse": ("LSTM", {"direction": "reverse"}),
    "lstm-peepholes": ("LSTM", {"peepholes": True, "state": True}),
    "lstm-input-forget": ("LSTM", {"input_forget": 1}),
    "lstm-input-forget-peepholes": ("LSTM", {"input_forget": 1, "peepholes": True, "directions": 2}),
    "lstm-clip": ("LSTM", {"clip": 0.25, "peepholes": True}),
    "lstm-activations": (
        "LSTM",
        {"activations": ["HardSigmoid", "ScaledTanh", "Affine"], "activation_alpha": [0.25, 1.5, 0.5],
         "activation_beta": [0.4, 0.6, 0.1]},
    ),
    "lstm-softplus": ("LSTM", {"activations": ["Sigmoid", "Softplus", "Softsign"]}),
    "rnn": ("RNN", {}),
    "rnn-relu-bidirectional": ("RNN", {"directions": 2, "activations": ["Relu", "Relu"], "state": True}),
    "rnn-clip": ("RNN", {"clip": 0.2}),
    "rnn-thresholded": ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.1]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3), (3, 3)])
@pytest.mark.parametrize("steps", [5, None])
def test_constant_lengths_are_all_the_steps_or_refused(kind, layout, lengths, steps, tmp_path):
    """A file that is read must agree with ONNX Runtime, so a file in which a row ends earlier isn't read."""
    model = node_model(kind, lengths=lengths, **({"layout": 1} if layout else {}))
    if steps is not None:
        model.graph.input[0].type.tensor_type.shape.dim[layout].dim_value = steps
    if (steps, *lengths) != (5, 5, 5):
        of = "of 5 steps" if steps else "whose steps the file doesn't say"
        with pytest.raises(formats.FormatError, match=f"sequence_lens is the constant .{lengths[0]}, .*{of}"):
            read_model(tmp_path, model)
        return
    source = read_model(tmp_path, model)
    assert source.notes == []
    if not layout:  # ONNX Runtime's CPU kernels don't have layout=1
        x = torch.randn(5, 2, 3)
        (y,) = run_onnx(model, x)
        assert weft.verify(source, {"x": x, "y": y.transpose(1, 2).flatten(2)}).agrees


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_read_as_onnxruntime_runs_it(name, tmp_path):
    kind, options = NODES[name]
    model = node_model(kind, **options)
    onnx.checker.check_model(model)
    x = torch.randn(5, 2, 3)
    source = read_model(tmp_path, model)
    assert source.format == "onnx" and len(source.layers) == 1 and source.notes == []
    (y,) = run_onnx(model, x)  # [T, D, B, H]
    torch.testing.assert_close(run_layers(source.layers, x), y.transpose(1, 2).flatten(2).double(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_written_as_it_was_read(name, tmp_path):
    kind, options = NODES[name]
    source = read_model(tmp_path, node_model(kind, **options))
    path = tmp_path / "again.onnx"
    assert formats.write(source, path) == []
    again = formats.read(path)
    x = torch.randn(5, 2, 3)
    assert torch.equal(run_layers(again.layers, x), run_layers(source.layers, x))
    (y,) = run_onnx(path.read_bytes(), x)
    torch.testing.assert_close(y.double(), run_layers(source.layers, x), atol=2e-6, rtol=0)


MODULES = {
    "gru": lambda: nn.GRU(3, 4),
    "gru-2-bidirectional": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "lstm-3": lambda: nn.LSTM(3, 4, 3),
    "lstm-2-bidirectional-batch-first": lambda: nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
    "rnn-relu": lambda: nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True),
    "lstm-no-bias": lambda: nn.LSTM(3, 4, bias=False),
}


class Model(nn.Module):
    """A model with layers before and after the recurrent module."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn
        self.head = nn.Linear(rnn.hidden_size * (2 if rnn.bidirectional else 1), 2)

    def forward(self, x):
        return self.head(self.rnn(x * 2)[0])


@pytest.mark.parametrize("name", MODULES)
def test_pytorchs_exports_are_read(name, tmp_path):
    module, out = MODULES[name](), io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        axes = {"x": {0: "T", 1: "B"}}
        torch.onnx.export(
            Model(module).eval(), (torch.randn(5, 2, 3),), out, dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    check_is(read_model(tmp_path, out.getvalue()), module)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_exports_of_pytorchs_newer_exporter_are_read(kind):
    """files/torch_dynamo_*.onnx: torch.onnx.export(..., dynamo=True) of PyTorch 2.13 with both sizes dynamic, of the
    first module made after torch.manual_seed(0), less the metadata."""
    torch.manual_seed(0)
    module = nn.GRU(3, 4, 2, bidirectional=True) if kind == "gru" else nn.LSTM(3, 4, 2, batch_first=True)
    check_is(formats.read(Path(__file__).parent / "files" / f"torch_dynamo_{kind}.onnx"), module)


def check_is(source, module):
    wanted = formats.layers_of_module(module).layers
    assert [layer.continues for layer in source.layers] == [layer.continues for layer in wanted]
    assert source.notes == []
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(run_layers(source.layers, x), run_layers(wanted, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_modules_written_run_in_onnxruntime(name, tmp_path):
    module = MODULES[name]()
    path = tmp_path / "model.onnx"
    assert formats.write(formats.layers_of_module(module), path) == []
    onnx.checker.check_model(onnx.load(path), full_check=True)
    x = torch.randn(6, 3, 3)
    module.batch_first = False
    (y,) = run_onnx(path.read_bytes(), x)
    torch.testing.assert_close(y, module(x)[0].detach(), atol=2e-6, rtol=0)
    again = formats.read(path).layers
    assert [(layer.kind, layer.continues, len(layer.directions)) for layer in again] == [
        (layer.kind, layer.continues, len(layer.directions)) for layer in formats.layers_of_module(module).layers
    ]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", GATES)
def test_dtypes_survive(kind, dtype, tmp_path):
    module = getattr(nn, kind)(3, 4, 2).to(getattr(torch, dtype))
    path = tmp_path / "model.onnx"
    formats.write(formats.layers_of_module(module), path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    for old, new in zip(formats.layers_of_module(module).layers, formats.read(path).layers, strict=True):
        assert torch.equal(old.directions[0].weight_h, new.directions[0].weight_h)
        assert new.directions[0].weight_x.dtype == getattr(torch, dtype)


def test_typed_fields_hold_what_raw_data_does(tmp_path):
    model = node_model("LSTM", state=True)
    wanted = read_model(tmp_path, model).layers[0].directions[0]
    for kind, number in ((np.float32, 1), (np.float64, 11), (np.float16, 10)):
        typed = onnx.ModelProto()
        typed.CopyFrom(model)
        for tensor in typed.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor).astype(kind)
            tensor.CopyFrom(helper.make_tensor(tensor.name, number, tensor.dims, values.flatten()))
            assert not tensor.raw_data
        got = read_model(tmp_path, typed).layers[0].directions[0]
        torch.testing.assert_close(
            got.weight_h.double(), wanted.weight_h.double(), atol=1e-3 if number == 10 else 0, rtol=0
        )
        assert got.weight_h.dtype == torch.from_numpy(np.zeros(1, kind)).dtype


def test_weights_made_by_simple_nodes(tmp_path):
    """Cast, Transpose, Slice, Concat, Unsqueeze and so on, as exporters leave them behind."""
    model = node_model("GRU", linear_before_reset=1)
    wanted = read_model(tmp_path, model).layers
    values = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    w, r, b = values["W"], values["R"], values["B"]

    def constant(name, value):
        return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(value)))

    made = [
        constant("w_t", w[0].T.astype(np.float64)),
        helper.make_node("Transpose", ["w_t"], ["w_2"], perm=[1, 0]),
        helper.make_node("Cast", ["w_2"], ["w_3"], to=1),
        constant("zero", [0]),
        helper.make_node("Unsqueeze", ["w_3", "zero"], ["W"]),
        constant("r_flat", np.concatenate([r.flatten(), r.flatten()])),
        constant("n", [r.size]),
        helper.make_node("Slice", ["r_flat", "n", "end"], ["r_2"]),
        constant("end", [np.iinfo(np.int64).max]),
        constant("r_shape", list(r.shape)),
        helper.make_node("Reshape", ["r_2", "r_shape"], ["r_3"]),
        helper.make_node("Identity", ["r_3"], ["R"]),
        constant("b_x", b[:, :12]),
        constant("b_h", b[:, 12:]),
        helper.make_node("Concat", ["b_x", "b_h"], ["B"], axis=1),
    ]
    order = [made[8], *made[:8], *made[9:], model.graph.node[0]]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(order)
    x = torch.randn(5, 2, 3)
    run_onnx(model, x)
    assert torch.equal(run_layers(read_model(tmp_path, model).layers, x), run_layers(wanted, x))


def test_nodes_in_subgraphs_and_functions(tmp_path):
    inner = node_model("RNN")
    wanted = read_model(tmp_path, inner).layers
    branch = helper.make_graph(list(inner.graph.node), "then", [], [helper.make_tensor_value_info("y", 1, None)])
    outer = helper.make_graph(
        [helper.make_node("If", ["flag"], ["out"], then_branch=branch, else_branch=branch)], "g",
        [helper.make_tensor_value_info("x", 1, None), helper.make_tensor_value_info("flag", 9, [])],
        [helper.make_tensor_value_info("out", 1, None)], list(inner.graph.initializer),
    )  # fmt: skip
    found = read_model(tmp_path, helper.make_model(outer)).layers
    x = torch.randn(5, 2, 3)
    assert len(found) == 2 and torch.equal(run_layers(found[:1], x), run_layers(wanted, x))

    body = helper.make_function(
        "mine", "Stack", ["x", "W", "R", "B"], ["y"],
        [helper.make_node("RNN", ["x", "W", "R", "B"], ["z"], hidden_size=4),
         helper.make_node("Squeeze", ["z", "one"], ["y"]),
         helper.make_node("Constant", [], ["one"], value_ints=[1])],
        [helper.make_opsetid("", 14)],
    )  # fmt: skip
    rng = np.random.default_rng(1)
    second = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in (("W2", (1, 4, 4)), ("R2", (1, 4, 4)), ("B2", (1, 8)))
    ]
    graph = helper.make_graph(
        [helper.make_node("Stack", ["x", "W", "R", "B"], ["m"], domain="mine"),
         helper.make_node("Stack", ["m", "W2", "R2", "B2"], ["y"], domain="mine")], "g",
        [helper.make_tensor_value_info("x", 1, None)], [helper.make_tensor_value_info("y", 1, None)],
        [*inner.graph.initializer, *second],
    )  # fmt: skip
    found = read_model(tmp_path, helper.make_model(graph, functions=[body])).layers
    assert [layer.continues for layer in found] == [False, True]
    assert torch.equal(run_layers(found[:1], x), run_layers(wanted, x))


def test_external_data_beside_the_model_are_read_and_no_others(tmp_path):
    wanted = read_model(tmp_path, node_model("GRU")).layers[0].directions[0].weight_h
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(
        node_model("GRU"), folder / "good.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert torch.equal(formats.read(folder / "good.onnx").layers[0].directions[0].weight_h, wanted)

    (tmp_path / "outside.bin").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    stored = onnx.load(folder / "good.onnx", load_external_data=False)
    places = {"../outside.bin": "only files in the model's own folder", str(tmp_path / "outside.bin"): "own folder",
              "link.bin": "leads out of the model's folder", "absent.bin": "isn't beside the model",
              "models/../../outside.bin": "own folder"}  # fmt: skip
    for place, message in places.items():
        for tensor in stored.graph.initializer:
            next(entry for entry in tensor.external_data if entry.key == "location").value = place
        (folder / "bad.onnx").write_bytes(stored.SerializeToString())
        with pytest.raises(formats.FormatError, match=message):
            formats.read(folder / "bad.onnx")
    for key, value in (("offset", "-8"), ("offset", str(1 << 60)), ("length", str(1 << 60)), ("length", "many")):
        stored = onnx.load(folder / "good.onnx", load_external_data=False)
        entry = next(entry for entry in stored.graph.initializer[0].external_data if entry.key == key)
        entry.value = value
        (folder / "bad.onnx").write_bytes(stored.SerializeToString())
        with pytest.raises(formats.FormatError, match=r"claims|no number"):
            formats.read(folder / "bad.onnx")


def test_what_a_node_gets_when_it_runs_is_noted(tmp_path):
    model = node_model("LSTM", state=True, lengths=[5, 3])
    for name, dtype in (("h0", 1), ("lens", 6)):
        model.graph.initializer.remove(next(t for t in model.graph.initializer if t.name == name))
        model.graph.input.append(helper.make_tensor_value_info(name, dtype, None))
    assert [note.split(": ", 1)[1] for note in read_model(tmp_path, model).notes] == [
        "initial_h is computed or given when the model runs: zeros are taken for it",
        "sequence_lens isn't taken into account: every row is run for all steps",
    ]


def test_the_batch_first(tmp_path):
    """layout=1, which ONNX Runtime doesn't run: states are [B, D, H], and Y [B, T, D, H] needs no Transpose."""
    model = node_model("GRU", directions=2, state=True, layout=1)
    onnx.checker.check_model(model)
    first = read_model(tmp_path, model).layers[0]
    state = onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "h0"))
    for i, d in enumerate(first.directions):
        assert torch.equal(d.h0, torch.from_numpy(state[:, i].copy()))
    rng = np.random.default_rng(1)
    for name, shape in (("W2", (1, 12, 8)), ("R2", (1, 12, 4)), ("shape", None)):
        value = np.array([0, 0, -1]) if shape is None else rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    model.graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["flat"]))
    model.graph.node.append(helper.make_node("GRU", ["flat", "W2", "R2"], ["z"], hidden_size=4, layout=1))
    assert [layer.continues for layer in read_model(tmp_path, model).layers] == [False, True]
    # With the steps first the same Reshape mixes the directions with the batch, and is no chain.
    for node in model.graph.node:
        for attribute in [a for a in node.attribute if a.name == "layout"]:
            attribute.i = 0
    assert [layer.continues for layer in read_model(tmp_path, model).layers] == [False, False]


def test_nodes_that_share_their_weights_are_one_layer(tmp_path):
    """Steps written out, each a node of one step whose state is the last one's; but not a stack with tied weights."""
    model = node_model("GRU", size=4)
    (first,) = model.graph.node
    for i in range(3):
        node = onnx.NodeProto()
        node.CopyFrom(first)
        node.output[:] = [f"z{i}"]
        model.graph.node.append(node)
    source = read_model(tmp_path, model)
    assert len(source.layers) == 1 and "3 more nodes have the same weights" in source.notes[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    model.graph.node[1].input[0] = "squeezed"
    model.graph.node.insert(1, helper.make_node("Squeeze", ["y", "one"], ["squeezed"]))
    assert [layer.continues for layer in read_model(tmp_path, model).layers] == [False, True]


def test_defaults_on_which_runtimes_differ_are_noted(tmp_path):
    def notes(**own):
        return read_model(tmp_path, node_model("GRU", activations=["Affine", "ThresholdedRelu"], **own)).notes

    assert len(notes()) == 2 and "Affine has ONNX's default where the node gives none, alpha 1 and beta 0" in notes()[0]
    assert len(notes(activation_alpha=[0.5], activation_beta=[0.1])) == 1
    assert notes(activation_alpha=[0.5, 0.2], activation_beta=[0.1]) == []


def changed(model, **inputs):
    """Node inputs by position name replaced."""
    for name, value in inputs.items():
        (tensor,) = [t for t in model.graph.initializer if t.name == name]
        tensor.CopyFrom(onnx.numpy_helper.from_array(value, name))
    return model


def test_errors_say_what_was_wrong(tmp_path):
    def message(model):
        with pytest.raises(formats.FormatError) as caught:
            read_model(tmp_path, model)
        return str(caught.value)

    f32 = np.float32
    assert "R (R) has shape [1, 12, 5], expected [1, 12, 4]" in message(
        changed(node_model("GRU"), R=np.ones((1, 12, 5), f32))
    )
    assert "hidden_size is 4; [1, 3 * hidden_size, input_size]" in message(
        changed(node_model("GRU"), W=np.ones((1, 13, 3), f32))
    )
    assert "W (W) has dtype int64" in message(changed(node_model("GRU"), W=np.ones((1, 12, 3), np.int64)))
    assert "R (R) has dtype float64, the layer's other weights have float32" in message(
        changed(node_model("GRU"), R=np.ones((1, 12, 4)))
    )
    assert "has activation 'Gelu'; ONNX has Sigmoid" in message(node_model("GRU", activations=["Gelu", "Tanh"]))
    assert "has 1 activations, expected 2" in message(node_model("GRU", activations=["Tanh"]))
    assert "direction 'sideways'" in message(node_model("GRU", direction="sideways"))
    assert "different activations: sigmoid, tanh and sigmoid, relu" in message(
        node_model("GRU", directions=2, activations=["Sigmoid", "Tanh", "Sigmoid", "Relu"])
    )
    model = node_model("GRU")
    del model.graph.initializer[0]
    assert "W (W) is an input of the model; weights that are constants are read" in message(model)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    assert "has no GRU, LSTM or RNN node; it has Relu" in message(helper.make_model(graph))
    assert "is a damaged ONNX model" in message(b"\x08\x07\xff\xff\xff")


def test_what_onnx_cannot_express_is_named_and_nothing_written(tmp_path):
    import weft.nn

    path = tmp_path / "model.onnx"
    module = weft.nn.LSTM(3, 4, layer_norm=True, cell_clip=1.0, proj_size=2, activation="gelu")
    with pytest.raises(formats.FormatError) as caught:
        formats.write(formats.layers_of_module(module), path)
    for part in ("layer normalisation", "clip of the state", "a projection", "activation gelu"):
        assert part in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_coupled_gates_are_written_by_the_other_one(tmp_path):
    import weft.nn

    path = tmp_path / "model.onnx"
    for coupling in ("input", "forget"):
        module = weft.nn.LSTM(3, 4, coupled_input_forget=coupling, peepholes=True, bidirectional=True)
        notes = formats.write(formats.layers_of_module(module), path)
        assert len(notes) == (coupling == "forget")
        x = torch.randn(5, 2, 3)
        with torch.no_grad():
            torch.testing.assert_close(run_onnx(path.read_bytes(), x)[0], module(x)[0], atol=2e-6, rtol=0)
