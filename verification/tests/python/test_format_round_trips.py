"""Random layers with random features, written to every format: layers that aren't refused are read back as the same
function."""

from __future__ import annotations

import random

import pytest
import torch
from layer_reference import run_layers

from weft import formats
from weft.formats import GATES, Activation, Direction, Layer
from weft.formats._layers import SIGMOID, TANH
from weft.formats._options import ACTIVATIONS

#: By format: how many random models (reading HDF5 takes a process, exporting a trace), and the extension.
COUNTS = {"pytorch": (80, ".pt"), "onnx": (80, ".onnx"), "burn": (80, ".safetensors"), "flax": (80, ".msgpack"),
          "keras": (40, ".keras"), "torch.export": (16, ".pt2")}  # fmt: skip


def random_direction(rng, kind, inputs, units, outputs, reverse, options):
    rows = len(GATES[kind]) * units

    def some(*shape):
        return torch.empty(shape, dtype=torch.float64).uniform_(-0.6, 0.6).float().double()

    is_lstm = kind == "LSTM"
    return Direction(
        some(rows, inputs),
        some(rows, outputs),
        some(rows) if options["biases"] > 0 else None,
        some(rows) if options["biases"] > 1 else None,
        projection=some(outputs, units) if outputs != units else None,
        peepholes=some(3, units) if is_lstm and options["peepholes"] else None,
        norm_x=1 + some(rows) if options["norm"] else None,
        norm_h=1 + some(rows) if options["norm"] else None,
        norm_c=1 + some(units) if is_lstm and options["norm"] else None,
        norm_c_bias=some(units) if is_lstm and options["norm"] and options["biases"] else None,
        h0=some(outputs) if options["state"] else None,
        c0=some(units) if is_lstm and options["state"] else None,
        reverse=reverse,
    )


def random_activation(rng):
    name = rng.choice(list(ACTIVATIONS))
    if name in ("exp", "affine"):  # these functions grow without limit
        name = "softsign"
    parameters = [rng.choice([default, 0.25, 0.4]) for default in ACTIVATIONS[name]]
    return Activation(name, *parameters)


def random_layers(seed):
    """A chain of one to three layers. Features are rare, so that some models have exactly one."""
    rng = random.Random(seed)
    torch.manual_seed(seed)

    def rarely():
        return rng.random() < 0.15

    kind, inputs, units = rng.choice(list(GATES)), rng.randint(1, 4), rng.randint(2, 4)
    is_lstm = kind == "LSTM"
    outputs = units - 1 if is_lstm and rarely() else units
    options = {name: rarely() for name in ("peepholes", "norm", "state")} | {"biases": rng.choice([0, 1, 2, 2])}
    activation = random_activation(rng) if rng.random() < 0.3 else TANH
    fields = {
        "reset_after": kind != "GRU" or rng.random() < 0.7,
        "gate_activation": random_activation(rng) if kind != "RNN" and rarely() else SIGMOID,
        "activation": activation,
        "output_activation": random_activation(rng) if is_lstm and rarely() else activation if is_lstm else TANH,
        "clip": 0.75 if rarely() else None,
        "cell_clip": 0.25 if rarely() else None,
        "coupled": rng.choice(["input", "forget"]) if is_lstm and rarely() else "",
        "norm_eps": 1e-5 if options["norm"] else None,
        "merge": rng.choice(["sum", "mul", "ave"]) if rarely() else "concat",
        "zoneout": (0.25, 0.25 if is_lstm else 0.0) if rarely() else (0.0, 0.0),
    }
    directions = rng.choice([[False], [False], [False, True], [True] if rarely() else [False]])
    layers = []
    for i in range(rng.choice([1, 1, 2, 3])):
        width = layers[-1].output_size if layers else inputs
        both = [random_direction(rng, kind, width, units, outputs, reverse, options) for reverse in directions]
        layers.append(Layer(f"rnn.l{i}", kind, both, i > 0, **fields))
    return layers


def reading_options(format, layer):
    """The options that tell what a file of this format lacks of the layer."""
    own = {"gate_activation": str(layer.gate_activation), "activation": str(layer.activation)}
    if format == "pytorch":
        own |= {"reset_after": layer.reset_after, "cell_clip": layer.cell_clip, "zoneout": layer.zoneout[0]}
        own |= {"coupled_input_forget": layer.coupled or None}
    elif format == "burn":
        own |= {"reset_after": layer.reset_after, "cell_clip": layer.cell_clip}
        own |= {"coupled_input_forget": True if layer.coupled else None}
        own |= {"output_activation": str(layer.output_activation)} if layer.kind == "LSTM" else {}
        own |= {"reverse": True} if len(layer.directions) == 1 and layer.directions[0].reverse else {}
        own |= {"layout": "burn"}
    elif format == "flax":
        own |= {"bidirectional": len(layer.directions) == 2, "merge": layer.merge}
        own |= {"reverse": True} if len(layer.directions) == 1 and layer.directions[0].reverse else {}
    else:
        return {}
    return {name: value for name, value in own.items() if value is not None}


@pytest.mark.parametrize("format", COUNTS)
def test_what_is_not_refused_is_read_back(format, tmp_path):
    count, suffix = COUNTS[format]
    written = 0
    for seed in range(count):
        layers = random_layers(seed)
        path = tmp_path / f"{seed}{suffix}"
        try:
            formats.write(layers, path, format=format)
        except formats.FormatError as error:
            assert "can't express" in str(error), f"seed {seed}: {error}"
            assert not path.exists()
            continue
        written += 1
        again = formats.read(path, format=format, options=reading_options(format, layers[0])).layers
        x = torch.randn(5, 2, layers[0].input_size, dtype=torch.float64)
        assert [layer.continues for layer in again] == [layer.continues for layer in layers], f"seed {seed}"
        difference = (run_layers(list(again), x) - run_layers(layers, x)).abs().max()
        assert difference < 1e-6, f"seed {seed}: {difference}"
    assert written >= count // 8, f"{format}: all but {written} of {count} are refused"
