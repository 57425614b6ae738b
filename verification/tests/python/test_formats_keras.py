"""weft.formats and Keras: files are read as Keras computes them, and Keras loads the files that are written."""

from __future__ import annotations

import io
import json
import os
import zipfile

os.environ["KERAS_BACKEND"] = "torch"

import h5py
import keras
import numpy as np
import pytest
import torch
from keras import layers as kl
from layer_reference import run_layers

from weft import formats
from weft.formats import GATES, Activation, Direction, FormatError, Layer

SEQUENCES = {"return_sequences": True}


def sequential(*layers, inputs=3):
    return keras.Sequential([keras.Input((None, inputs)), *layers])


def functional():
    """Recurrent layers in a chain through layers that change nothing, a model in the model, and one behind a Dense."""
    inner = keras.Sequential([kl.SimpleRNN(4, **SEQUENCES), kl.Dropout(0.5), kl.Bidirectional(kl.LSTM(2, **SEQUENCES))])
    x = keras.Input((None, 3), name="given")
    y = kl.SpatialDropout1D(0.3)(kl.GRU(4, **SEQUENCES)(x))
    y = kl.Activation("linear")(inner(y))
    y = kl.RNN([kl.GRUCell(4), kl.LSTMCell(5)], **SEQUENCES)(y)
    return keras.Model(x, y)


MODELS = {
    "gru": lambda: sequential(kl.GRU(4, **SEQUENCES)),
    "gru, reset before": lambda: sequential(
        kl.GRU(4, reset_after=False, activation="softsign", recurrent_activation="hard_sigmoid", **SEQUENCES)
    ),
    "no biases": lambda: sequential(
        kl.GRU(4, use_bias=False, reset_after=False, **SEQUENCES), kl.LSTM(3, use_bias=False, **SEQUENCES)
    ),
    "lstm": lambda: sequential(kl.LSTM(4, activation="elu", recurrent_activation="hard_sigmoid", **SEQUENCES)),
    "leaky": lambda: sequential(
        kl.LSTM(4, activation=kl.LeakyReLU(negative_slope=0.15), **SEQUENCES),
        kl.SimpleRNN(3, activation="leaky_relu", **SEQUENCES),
    ),
    "sum": lambda: sequential(kl.Bidirectional(kl.GRU(4, **SEQUENCES), merge_mode="sum")),
    "mul": lambda: sequential(kl.Bidirectional(kl.LSTM(4, **SEQUENCES), merge_mode="mul")),
    "ave": lambda: sequential(kl.Bidirectional(kl.SimpleRNN(4, **SEQUENCES), merge_mode="ave")),
    "its own backward layer": lambda: sequential(
        kl.Bidirectional(
            kl.GRU(4, **SEQUENCES), backward_layer=kl.GRU(4, go_backwards=True, use_bias=False, **SEQUENCES)
        )
    ),
    "backwards": lambda: sequential(kl.GRU(4, go_backwards=True, **SEQUENCES), kl.LSTM(5, **SEQUENCES)),
    "backwards twice": lambda: sequential(
        kl.GRU(4, go_backwards=True, **SEQUENCES),
        kl.LSTM(5, go_backwards=True, unroll=False, **SEQUENCES),
        kl.Bidirectional(kl.RNN(kl.SimpleRNNCell(2), **SEQUENCES)),
    ),
    "functional": functional,
    "float64": lambda: sequential(kl.GRU(4, dtype="float64", **SEQUENCES)),
}


def randomised(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape))
    return model


def keras_runs(model, x):
    """[T, B, I] -> [T, B, O]"""
    with torch.no_grad():
        return model(x.transpose(0, 1)).cpu().double().transpose(0, 1)


def ends_flipped(layers):
    return len(layers[-1].directions) == 1 and layers[-1].directions[0].reverse


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_what_keras_saves_computes_the_same_here(name, tmp_path):
    model = randomised(MODELS[name]())
    x = torch.randn(6, 2, 3)
    expected = keras_runs(model, x)
    model.save(tmp_path / "model.keras")
    model.save(tmp_path / "model.h5")
    for path in (tmp_path / "model.keras", tmp_path / "model.h5"):
        source = formats.read(path)
        assert source.format == "keras"
        assert [layer.continues for layer in source.layers] == [i > 0 for i in range(len(source.layers))]
        y = run_layers(source.layers, x)
        if ends_flipped(source.layers):
            y = y.flip(0)
            assert any("order of the input" in note for note in source.notes)
        torch.testing.assert_close(y, expected, atol=2e-6, rtol=2e-6)
        assert not source.ignored


def masked():
    x, mask = keras.Input((None, 3)), keras.Input((None,), dtype="bool")
    return keras.Model([x, mask], kl.GRU(4, name="g", **SEQUENCES)(x, mask=mask))


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (lambda: sequential(kl.Masking(name="m"), kl.GRU(4, **SEQUENCES)), "layer 'm' (Masking) makes a mask"),
        (
            lambda: keras.Sequential(
                [keras.Input((None,)), kl.Embedding(7, 3, mask_zero=True, name="e"), kl.LSTM(4, **SEQUENCES)]
            ),
            "layer 'e' (Embedding) makes a mask",
        ),
        (masked, "layer 'g' is called with a mask"),
        (
            lambda: keras.Sequential([keras.Input((5, 3), batch_size=2), kl.GRU(4, stateful=True, name="s")]),
            "layer 's' is stateful",
        ),
        (lambda: sequential(kl.GRU(4, **SEQUENCES)), ""),
        (lambda: keras.Sequential([keras.Input((None,)), kl.Embedding(7, 3), kl.LSTM(4, **SEQUENCES)]), ""),
    ],
    ids=["masking", "embedding", "argument", "stateful", "none", "embedding-without"],
)
def test_what_skips_steps_or_keeps_states_is_noted(model, note, tmp_path):
    path = tmp_path / "model.keras"
    model().save(path)
    notes = [each for each in formats.read(path).notes if "mask" in each or "stateful" in each]
    assert len(notes) == bool(note) and all(note in each for each in notes), notes


def test_a_file_of_weights_is_read_by_its_shapes(tmp_path):
    model = randomised(functional())
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    known = formats.read(tmp_path / "model.keras").layers
    source = formats.read(tmp_path / "model.weights.h5")
    assert (
        [layer.kind for layer in source.layers]
        == [layer.kind for layer in known]
        == ["GRU", "RNN", "LSTM", "GRU", "LSTM"]
    )
    x = torch.randn(5, 2, 3)
    assert torch.equal(run_layers(source.layers, x), run_layers(known, x))
    assert any("assumed" in note for note in source.notes)
    changed = formats.read(tmp_path / "model.weights.h5", options={"activation": "relu", "merge": "sum"})
    assert str(changed.layers[2].output_activation) == "relu" and changed.layers[2].merge == "sum"
    with pytest.raises(FormatError, match="its bias is that of reset_after=True"):
        formats.read(tmp_path / "model.weights.h5", options={"reset_after": False})
    with pytest.raises(FormatError, match="option 'activation' is for files of weights"):
        formats.read(tmp_path / "model.keras", options={"activation": "relu"})


def test_only_layers_that_feed_each_other_continue(tmp_path):
    given = keras.Input((None, 4))
    first = kl.GRU(4, **SEQUENCES, name="first")(given)
    apart = kl.GRU(4, **SEQUENCES, name="apart")(given)
    behind = kl.GRU(4, **SEQUENCES, name="behind")(kl.Dense(4)(first))
    second = kl.GRU(4, **SEQUENCES, name="second")(first)
    last = kl.GRU(4, name="last")(second)
    after = kl.GRU(4, name="after")(kl.RepeatVector(3)(last))
    keras.Model(given, [apart, behind, after]).save(tmp_path / "model.keras")
    layers = formats.read(tmp_path / "model.keras").layers
    names = [layer.name for layer in layers]
    assert names.index("second") == names.index("first") + 1 and names.index("last") == names.index("second") + 1
    assert [layer.name for layer in layers if layer.continues] == ["second", "last"]


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [kl.LSTM(3, **SEQUENCES), kl.LSTM(3)]
        self.before = kl.GRU(3, **SEQUENCES)
        self.dense = kl.Dense(3)

    def call(self, x):
        return self.dense(self.blocks[1](self.blocks[0](self.before(x))))


def test_a_model_that_is_a_class_has_its_layers_by_attribute(tmp_path):
    model = Subclassed()
    model(torch.zeros(1, 2, 3))
    model.save(tmp_path / "model.keras")
    source = formats.read(tmp_path / "model.keras")
    found = {layer.name: layer for layer in source.layers}
    assert {name: layer.kind for name, layer in found.items()} == {
        "before": "GRU",
        "blocks/lstm": "LSTM",
        "blocks/lstm_1": "LSTM",
    }
    assert [name for name, layer in found.items() if layer.continues] == ["blocks/lstm_1"]
    assert source.ignored == ["dense/vars/1", "dense/vars/0"]
    np.testing.assert_array_equal(
        model.before.cell.kernel.numpy()[:, :3], found["before"].directions[0].weight_x[3:6].T
    )


def made(kind, inputs, hidden, name="", directions=1, biases=2, dtype=torch.float64, reverse=False, **fields):
    gates = len(GATES[kind])

    def weights(*shape):
        return torch.randn(*shape, dtype=torch.float64).mul(0.5).to(dtype)

    both = [
        Direction(
            weights(gates * hidden, inputs),
            weights(gates * hidden, hidden),
            weights(gates * hidden) if biases > 0 else None,
            weights(gates * hidden) if biases > 1 else None,
            reverse=reverse or i == 1,
        )
        for i in range(directions)
    ]
    return Layer(name or kind.lower(), kind, both, **fields)


ELU = Activation("elu", 0.5)
HARD = Activation("hard_sigmoid", 1 / 6, 0.5)
CHAINS = {
    "gru": lambda: [made("GRU", 3, 4, "encoder/gru:0")],
    "odd": lambda: [
        made("GRU", 3, 4, biases=1, gate_activation=HARD, activation=Activation("leaky_relu", 0.1)),
        made("LSTM", 4, 5, directions=2, continues=True, activation=ELU, output_activation=ELU),
        made("RNN", 10, 3, "gru", directions=2, merge="mul", biases=0, continues=True),
        made("GRU", 3, 3, reset_after=False, continues=True),
    ],
    "reverse": lambda: [
        made("GRU", 3, 4, reverse=True),
        made("LSTM", 4, 5, continues=True),
        made("GRU", 5, 2, directions=2, continues=True),
        made("GRU", 4, 2, reverse=True, continues=True),
        made("GRU", 2, 2, "last", reverse=True, continues=True),
    ],
    "half": lambda: [made("GRU", 3, 4, dtype=torch.float16), made("LSTM", 4, 3, dtype=torch.float16, continues=True)],
    "bfloat16": lambda: [made("LSTM", 3, 4, dtype=torch.bfloat16)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHAINS)
def test_keras_loads_what_is_written(name, tmp_path):
    layers = CHAINS[name]()
    notes = formats.write(layers, tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    dtype = layers[0].directions[0].weight_x.dtype
    x = torch.randn(6, 2, 3, dtype=dtype)
    expected = run_layers(layers, x)
    error = {torch.float64: 1e-12, torch.float16: 5e-3, torch.bfloat16: 5e-2}[dtype]
    if any(layer.kind == "RNN" for layer in layers):
        error = 1e-6  # Keras' SimpleRNN rounds to float32 on PyTorch
    y = keras_runs(model, x)
    torch.testing.assert_close(y.flip(0) if ends_flipped(layers) else y, expected, atol=error, rtol=error)
    assert any("two biases" in note for note in notes) == (name != "gru")
    again = formats.read(tmp_path / "model.keras").layers
    assert [layer.continues for layer in again] == [layer.continues for layer in layers]
    assert (run_layers(again, x) - expected).abs().max() <= error
    # The weights alone fit into a model of the same layers.
    formats.write(layers, tmp_path / "only.weights.h5")
    randomised(model).load_weights(tmp_path / "only.weights.h5")
    assert torch.equal(keras_runs(model, x), y)


def test_layers_that_do_not_feed_each_other_have_inputs_of_their_own(tmp_path):
    layers = [
        made("GRU", 3, 4),
        made("LSTM", 4, 2, continues=True),
        made("RNN", 5, 2),
        made("GRU", 2, 2, continues=True),
    ]
    formats.write(layers, tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    first, second = torch.randn(4, 2, 3, dtype=torch.float64), torch.randn(4, 2, 5, dtype=torch.float64)
    with torch.no_grad():
        outputs = model([first.transpose(0, 1), second.transpose(0, 1)])
    for output, x, chain in zip(outputs, (first, second), (layers[:2], layers[2:]), strict=True):
        torch.testing.assert_close(output.transpose(0, 1), run_layers(chain, x), atol=1e-6, rtol=1e-6)
    assert [layer.continues for layer in formats.read(tmp_path / "model.keras").layers] == [False, True, False, True]


def test_what_keras_cannot_express_is_named(tmp_path):
    lstm = made("LSTM", 3, 4, "a", clip=3.0, coupled="input", output_activation=Activation("relu"))
    lstm.directions[0].peepholes = torch.zeros(3, 4, dtype=torch.float64)
    gru = made("GRU", 5, 4, "b", continues=True, gate_activation=Activation("hard_sigmoid", 0.2, 0.5), reverse=True)
    both = made("GRU", 4, 4, "c", directions=2, continues=True)
    with pytest.raises(FormatError) as error:
        formats.write([lstm, gru, both], tmp_path / "model.keras")
    for words in (
        "peepholes (a)",
        "coupled input and forget gates (a)",
        "an output activation of its own (a)",
        "clip of what goes into the activations (a)",
        "activation hard_sigmoid(0.2, 0.5) (b)",
        "an input of 5 from an output of 4 (b)",
        "two directions behind a layer that runs backwards alone (c)",
    ):
        assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def archive(path, config, weights=b""):
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        out.writestr("metadata.json", "{}")
        out.writestr("model.weights.h5", weights)
    return path


def test_a_damaged_config_gets_one_line(tmp_path):
    good = tmp_path / "good.keras"
    formats.write(made("GRU", 3, 4), good)
    with zipfile.ZipFile(good) as file:
        weights, config = file.read("model.weights.h5"), json.loads(file.read("config.json"))
    gru = config["config"]["layers"][1]["config"]
    path = tmp_path / "bad.keras"
    cases = {
        "is no JSON": "[" * 100_000,
        "its config isn't one that Keras writes": {"config": {"layers": [{"class_name": "GRU"}]}},
        "its weights are of 4 units, its config has 5": (gru, "units", 5),
        "activation 'softmax' is none of tanh": (gru, "activation", "softmax"),
        "its biases aren't those of reset_after=False": (gru, "reset_after", False),
    }
    for words, case in cases.items():
        if isinstance(case, tuple):
            place, key, value = case
            kept, place[key] = place[key], value
            archive(path, config, weights)
            place[key] = kept
        else:
            archive(path, case, weights)
        with pytest.raises(FormatError, match=words) as error:
            formats.read(path)
        assert "\n" not in str(error.value)


def h5(**datasets):
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value
    return data.getvalue()


def test_links_claims_and_foreign_dtypes_in_hdf5_are_refused(tmp_path):
    path = tmp_path / "model.weights.h5"
    group = "layers/gru/cell/vars"

    def refused(words):
        with pytest.raises(FormatError, match=words) as error:
            formats.read(path)
        assert "\n" not in str(error.value)

    for link in (h5py.SoftLink("/layers"), h5py.ExternalLink("/etc/passwd", "/x")):
        path.write_bytes(h5(**{f"{group}/1": link}))
        refused("is a link to another place or file")
    path.write_bytes(h5(**{f"{group}/0": np.zeros((3, 12), "i4"), f"{group}/1": np.zeros((4, 12), "f4")}))
    refused("holds no GRU, LSTM or SimpleRNN")
    with h5py.File(path, "w") as file:
        file.create_dataset(f"{group}/0", (1 << 20, 1 << 20), "f4", chunks=(1, 1 << 20), compression="gzip")
    refused("claims more than")
    with h5py.File(path, "w") as file:  # allocated late, so that the file has no bytes of it
        file.create_dataset(f"{group}/0", (1 << 20, 12), "f4")
    refused("claims 50331648 bytes of a file of")
    with h5py.File(path, "w") as file:
        file.create_dataset(f"{group}/0", (3, 12), "f4", external=[("/etc/passwd", 0, 144)])
    refused("is stored in other files")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((3, 12), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", (3, 12))
        file.create_virtual_dataset(f"{group}/0", layout)
    refused("is stored in other files")
    with h5py.File(path, "w") as file:
        file["loop"] = file
    refused("is nested deeper, or has more objects")


def test_a_crash_or_hang_of_the_child_is_an_error(tmp_path, monkeypatch):
    from weft.formats._files import hdf5

    path = tmp_path / "model.weights.h5"
    path.write_bytes(h5(x=np.zeros(3, "f4")))
    child = tmp_path / "child.py"
    monkeypatch.setattr(hdf5, "_CHILD", child)
    for script, words in {
        "import os; os.kill(os.getpid(), 11)": "libhdf5 ended with SIGSEGV",
        "import os; os._exit(1)": "libhdf5 ended with status 1",
        "pass": "what was read of it is incomplete",
        "import sys; print('no h5py', file=sys.stderr); sys.exit(4)": "reading it needs the package h5py",
        "import resource, os; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass": "come to an end",
        "import time; time.sleep(60)": "libhdf5 took longer than 1.0 s",
    }.items():
        monkeypatch.setattr(hdf5, "_PATIENCE", 0.5 if "sleep" in script else 10)
        child.write_text(script)
        with pytest.raises(FormatError, match=words):
            formats.read(path)
