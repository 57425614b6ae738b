"""weft.formats and Burn, which doesn't run here: known answers, by hand and of burn-nn's own unit tests.

Inputs, weights and expected numbers are those of burn-nn/src/modules/rnn: gru.rs, lstm/lstm_module.rs,
lstm/bilstm_module.rs and basic.rs (theirs are from PyTorch, or worked out in a comment).
"""

from __future__ import annotations

import math

import pytest
import torch
from burn_records import (
    BILSTM,
    GRU_FORWARD,
    GRU_REVERSE,
    RNN_FORWARD,
    RNN_REVERSE,
    gate,
    read,
    renamed,
    scalar,
    steps,
    under,
)
from layer_reference import run_layer, run_layers
from safetensors import safe_open

from weft import formats
from weft.formats import GATES, Activation, Direction, FormatError, Layer


def close(actual, expected, error=2e-4):
    # The weights in Burn's tests have four digits, the results are of weights with more.
    torch.testing.assert_close(actual.float(), torch.tensor(expected), atol=error, rtol=0)


INPUT = [[0.949, -0.861], [0.892, 0.927], [-0.173, -0.301], [-0.081, 0.992]]
H0 = torch.tensor([[[0.280, 0.360, -1.242]], [[-0.588, 0.729, -0.788]]])


def test_gru_of_burns_tests(tmp_path):
    x = steps([[-0.11147, 0.12036], [-0.36963, -0.24042], [-1.19692, 0.20927], [-0.97236, -0.75505]])
    source = read(tmp_path, under("model.gru", GRU_FORWARD))
    (layer,) = source.layers
    assert (source.format, layer.name, layer.kind, layer.input_size, layer.hidden_size) == (
        "burn",
        "model.gru",
        "GRU",
        2,
        3,
    )
    assert any("reset_after true" in note for note in source.notes)
    with_state, _ = run_layer(layer, x, torch.tensor([[[0.3239, -0.10852, 0.21033]]]))
    close(
        with_state[:, 0],
        [
            [0.05665, -0.34932, 0.43267],
            [-0.1737, -0.49246, 0.38099],
            [-0.35401, -0.68099, 0.05061],
            [-0.47854, -0.70427, -0.13648],
        ],
    )
    close(
        run_layer(layer, x)[0][:, 0],
        [
            [-0.0985, -0.31661, 0.36126],
            [-0.24563, -0.47784, 0.34609],
            [-0.39497, -0.67659, 0.03083],
            [-0.50146, -0.70066, -0.14894],
        ],
    )


def test_bigru_of_burns_tests(tmp_path):
    source = read(tmp_path, under("forward", GRU_FORWARD) | under("reverse", GRU_REVERSE))
    (layer,) = source.layers
    assert [direction.reverse for direction in layer.directions] == [False, True]
    y, states = run_layer(layer, steps(INPUT), H0)
    close(
        y[:, 0],
        [
            [0.24537, 0.14018, 0.19449, -0.49777, -0.15647, 0.48392],
            [0.27468, -0.14514, 0.56205, -0.60381, -0.04986, 0.15683],
            [-0.04062, -0.33486, 0.52330, -0.42244, -0.12644, -0.12034],
            [-0.11743, -0.53873, 0.54429, -0.64943, 0.30127, -0.41943],
        ],
    )
    close(states[0][0], [[-0.11743, -0.53873, 0.54429]])
    close(states[1][0], [[-0.49777, -0.15647, 0.48392]])
    close(
        run_layer(layer, steps(INPUT))[0][:, 0],
        [
            [0.07452, -0.08247, 0.46677, -0.46770, -0.18086, 0.47519],
            [0.15843, -0.27144, 0.65781, -0.50286, -0.12806, 0.14884],
            [-0.10704, -0.41573, 0.53954, -0.24794, -0.24003, -0.10294],
            [-0.16505, -0.57952, 0.53565, -0.23598, -0.07137, -0.28937],
        ],
    )


def test_grus_of_one_number_of_burns_tests(tmp_path):
    tensors = scalar("update_gate", 0.5) | scalar("reset_gate", 0.6) | scalar("new_gate", 0.7)
    for reset_after in (True, False):
        layers = read(tmp_path, tensors, reset_after=reset_after).layers
        assert layers[0].reset_after is reset_after
        y = run_layers(layers, steps([[0.1], [0.2], [0.3]]))
        close(y.flatten(), [0.0341, 0.0894, 0.1575], 6e-5)


def test_lstm_and_rnn_of_burns_tests(tmp_path):
    tensors = (
        scalar("input_gate", 0.5) | scalar("forget_gate", 0.7) | scalar("cell_gate", 0.9) | scalar("output_gate", 1.1)
    )
    y, [(h, c)] = run_layer(read(tmp_path, tensors).layers[0], steps([[0.1]]))
    close(c, [[0.046]], 1e-5)
    close(h, [[0.0242]], 6e-5)
    assert torch.equal(y[0], h)
    rnn = scalar("gate", 0.5)
    close(run_layers(read(tmp_path, rnn).layers, steps([[0.1]])).flatten(), [0.04995], 1e-5)
    # test_forward_reverse_sequence: the result of the first step is made last.
    layers = read(tmp_path, rnn, reverse=True).layers
    close(run_layers(layers, steps([[0.1], [0.2], [0.3]]))[0, 0], [0.135508], 1e-6)


def test_birnn_of_burns_tests(tmp_path):
    (layer,) = read(tmp_path, under("rnn.forward", RNN_FORWARD) | under("rnn.reverse", RNN_REVERSE)).layers
    close(
        run_layer(layer, steps(INPUT), H0)[0][:, 0],
        [
            [0.5226, -0.6370, 0.0210, 0.0685, 0.3867, 0.3602],
            [0.3580, 0.8431, 0.4129, -0.3175, 0.4374, 0.1766],
            [-0.3837, -0.2703, -0.3957, -0.1542, -0.1122, 0.0725],
            [0.5059, 0.5527, 0.1244, -0.6779, 0.3725, -0.3387],
        ],
        6e-5,
    )
    close(
        run_layer(layer, steps(INPUT))[0][:, 0],
        [
            [0.0560, -0.2056, 0.2334, 0.0892, 0.3912, 0.3607],
            [0.4340, 0.7378, 0.3714, -0.2394, 0.4235, 0.2002],
            [-0.3962, -0.2097, -0.3798, 0.0532, -0.2067, 0.1727],
            [0.5075, 0.5298, 0.1083, -0.3200, 0.0764, -0.1282],
        ],
        6e-5,
    )


def test_bilstm_of_burns_tests(tmp_path):
    (layer,) = read(
        tmp_path, under("lstm.forward", BILSTM["forward"]) | under("lstm.reverse", BILSTM["reverse"])
    ).layers
    c0 = torch.tensor([[[0.723, 0.397, -0.262]], [[0.471, 0.613, 1.885]]])
    y, states = run_layer(layer, steps(INPUT), H0, c0)
    close(
        y[:, 0],
        [
            [0.23764, -0.03442, 0.04414, -0.15635, -0.03366, -0.05798],
            [0.00473, -0.02254, 0.02988, -0.16510, -0.00306, 0.08742],
            [0.06210, -0.06509, -0.05339, -0.01710, 0.02091, 0.16012],
            [-0.03420, 0.07774, -0.09774, -0.02604, 0.12584, 0.20872],
        ],
    )
    close(states[0][1], [[-0.13593, 0.17125, -0.22395]])
    close(states[1][1], [[-0.45425, -0.11206, -0.12908]])
    y, states = run_layer(layer, steps(INPUT))
    close(y[3, 0], [-0.04026, 0.07178, -0.10189, -0.07349, -0.04576, 0.05550])
    close(states[1][1], [[-0.47407, -0.17493, -0.19643]])


@pytest.mark.parametrize("reset_after", [True, False])
def test_a_gru_of_two_inputs_and_one_unit_by_hand(tmp_path, reset_after):
    tensors = (
        gate("update_gate", [[0.5], [-0.25]], [0.1], [[0.75]], [-0.2])
        | gate("reset_gate", [[-1.0], [0.5]], [0.3], [[0.25]], [0.4])
        | gate("new_gate", [[1.5], [0.5]], [-0.1], [[-2.0]], [0.6])
    )

    def sigmoid(v):
        return 1 / (1 + math.exp(-v))

    h, expected = 0.0, []
    inputs = [[0.5, 1.0], [-1.0, 0.25], [2.0, -0.5]]
    for a, b in inputs:
        z = sigmoid(0.5 * a - 0.25 * b + 0.1 + 0.75 * h - 0.2)
        r = sigmoid(-a + 0.5 * b + 0.3 + 0.25 * h + 0.4)
        hidden = r * (-2 * h + 0.6) if reset_after else -2 * (r * h) + 0.6
        h = (1 - z) * math.tanh(1.5 * a + 0.5 * b - 0.1 + hidden) + z * h
        expected.append(h)
    y = run_layers(read(tmp_path, tensors, reset_after=reset_after).layers, steps(inputs))
    close(y.flatten(), expected, 1e-6)


def test_pytorch_compatible_records_and_square_ones(tmp_path):
    transposed = {name: tensor.T if tensor.ndim == 2 else tensor for name, tensor in GRU_FORWARD.items()}
    expected = read(tmp_path, GRU_FORWARD).layers[0].directions[0]
    for suffix in (".safetensors", ".pt"):
        found = read(tmp_path, transposed, suffix).layers[0].directions[0]
        assert torch.equal(found.weight_x, expected.weight_x) and torch.equal(found.weight_h, expected.weight_h)
    with pytest.raises(FormatError, match="is laid out as in pytorch, not as option layout says"):
        read(tmp_path, transposed, layout="burn")
    square = {name: torch.randn(3, 3) for name in GRU_FORWARD if name.endswith("weight")}
    for suffix, options, is_transposed in (
        (".safetensors", {}, False),
        (".pt", {}, True),
        (".safetensors", {"layout": "pytorch"}, True),
    ):
        source = read(tmp_path, square, suffix, **options)
        weight = square["reset_gate.input_transform.weight"]
        assert torch.equal(source.layers[0].directions[0].weight_x[:3], weight if is_transposed else weight.T)
        assert any("all weights are square" in note for note in source.notes) == (not options)
    mixed = under("a", GRU_FORWARD) | under("b", transposed)
    with pytest.raises(FormatError, match="is laid out as in PyTorch"):
        read(tmp_path, mixed)


def test_what_a_record_does_not_say_are_options(tmp_path):
    tensors = under("layers.0", GRU_FORWARD) | under("layers.1", GRU_REVERSE) | {"head.weight": torch.zeros(3, 1)}
    source = read(
        tmp_path,
        tensors,
        activation="relu",
        gate_activation="hard_sigmoid(0.2, 0.5)",
        cell_clip=0.5,
        reset_after="false",
    )
    layer = source.layers[0]
    assert str(layer.gate_activation) == "hard_sigmoid(0.2, 0.5)" and str(layer.activation) == "relu"
    assert layer.cell_clip == 0.5 and not layer.reset_after
    assert source.ignored == ["head.weight"] and [layer.continues for layer in source.layers] == [False, False]
    assert not any("defaults are assumed" in note for note in source.notes)
    coupled = read(tmp_path, BILSTM["forward"], coupled_input_forget=True).layers[0]
    assert coupled.coupled == "input"
    with pytest.raises(FormatError, match="burn files have no option 'units'"):
        read(tmp_path, tensors, units=3)
    assert [layer.name for layer in read(tmp_path, tensors, module="layers.1").layers] == ["layers.1"]
    with pytest.raises(FormatError, match=r"has no recurrent module 'x'; it has layers.0, layers.1"):
        read(tmp_path, tensors, module="x")


def test_a_prelu_of_one_slope_is_in_the_record(tmp_path):
    slope = {"hidden_activation.PRelu.alpha": torch.tensor([0.25])}
    source = read(tmp_path, GRU_FORWARD | slope)
    assert str(source.layers[0].activation) == "leaky_relu(0.25)" and not source.ignored
    with pytest.raises(FormatError, match="is a PRelu with a slope for each unit"):
        read(tmp_path, GRU_FORWARD | {"hidden_activation.PRelu.alpha": torch.tensor([0.25, 0.5, 0.5])})
    with pytest.raises(FormatError, match="is of an activation that can't be expressed"):
        read(tmp_path, GRU_FORWARD | {"hidden_activation.SwiGlu.linear_inner.weight": torch.zeros(3, 3)})


def test_broken_records_are_named(tmp_path):
    def without(part):
        return {name: tensor for name, tensor in GRU_FORWARD.items() if part not in name}

    cases = {
        "has no weights of new_gate, as a Gru has": without("new_gate"),
        "has no weights of update_gate": without("update_gate.hidden_transform.weight"),
        "has gates gate, new_gate": GRU_FORWARD | renamed(RNN_FORWARD, "gate") | without("reset_gate"),
        r"reset_gate.input_transform.bias has shape \[2\], expected \[3\]": GRU_FORWARD
        | {"reset_gate.input_transform.bias": torch.zeros(2)},
        "has dtype int64": GRU_FORWARD | {"new_gate.input_transform.weight": torch.zeros(2, 3, dtype=torch.int64)},
        "has dtype float64, the layer's other weights have float32": GRU_FORWARD
        | {"new_gate.hidden_transform.weight": torch.zeros(3, 3, dtype=torch.float64)},
        "its two directions are of different kinds": under("forward", GRU_FORWARD)
        | under("reverse", BILSTM["reverse"]),
    }
    for words, tensors in cases.items():
        if "has gates" in words:
            tensors = {k: v for k, v in tensors.items() if not k.startswith(("reset", "update"))}
        with pytest.raises(FormatError, match=words) as error:
            read(tmp_path, tensors)
        assert "\n" not in str(error.value)


def made(kind, inputs, hidden, name, directions=1, biases=2, reverse=False, dtype=torch.float32, **fields):
    gates = len(GATES[kind])
    both = [
        Direction(
            torch.randn(gates * hidden, inputs, dtype=dtype),
            torch.randn(gates * hidden, hidden, dtype=dtype),
            torch.randn(gates * hidden, dtype=dtype) if biases > 0 else None,
            torch.randn(gates * hidden, dtype=dtype) if biases > 1 else None,
            reverse=reverse or i == 1,
        )
        for i in range(directions)
    ]
    return Layer(name, kind, both, **fields)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_records_are_written_in_burns_layout_and_read_back(tmp_path, suffix):
    layers = [
        made("GRU", 2, 3, "gru.l0", directions=2),
        made("GRU", 6, 3, "gru.l1", directions=2, continues=True),
        made("LSTM", 6, 4, "encoder/lstm", biases=1, continues=True, dtype=torch.bfloat16),
        made("RNN", 4, 2, "(root)", biases=0),
    ]
    path = tmp_path / f"record{suffix}"
    notes = formats.write(layers, path, format="burn")
    assert notes == [
        "gru.l0.0 is BiGruConfig::new(2, 3, true)",
        "gru.l0.1 is BiGruConfig::new(6, 3, true)",
        "encoder_lstm is LstmConfig::new(6, 4, true)",
        "rnn is RnnConfig::new(4, 2, false)",
    ]
    if suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "safetensors"}
            found = file.get_tensor("gru.l0.0.reverse.new_gate.input_transform.weight")
        assert torch.equal(found, layers[0].directions[1].weight_x[6:].T)
    read = formats.read(path).layers
    by_name = {layer.name: layer for layer in read}
    assert [layer.name for layer in read if layer.continues] == ["gru.l0.1"]
    for name, layer in zip(("gru.l0.0", "gru.l0.1", "encoder_lstm", "rnn"), layers, strict=True):
        x = torch.randn(3, 2, layer.input_size)
        assert torch.equal(run_layers([by_name[name]], x), run_layers([layer], x))


def test_the_configuration_of_a_record_is_in_the_notes(tmp_path):
    hard = Activation("hard_sigmoid", 0.2, 0.5)
    gru = made("GRU", 2, 3, "a", reset_after=False, gate_activation=hard, activation=Activation("relu"), cell_clip=2.0)
    lstm = made("LSTM", 2, 3, "b", coupled="input", reverse=True, output_activation=Activation("leaky_relu", 0.1))
    assert formats.write([gru, lstm], tmp_path / "r.safetensors", format="burn") == [
        "a is GruConfig::new(2, 3, true).with_reset_after(false).with_gate_activation(ActivationConfig::HardSigmoid("
        "HardSigmoidConfig::new().with_alpha(0.2).with_beta(0.5))).with_hidden_activation(ActivationConfig::Relu)"
        ".with_clip(Some(2.0))",
        "b is LstmConfig::new(2, 3, true).with_hidden_activation(ActivationConfig::LeakyRelu(LeakyReluConfig::new()"
        ".with_negative_slope(0.1))).with_input_forget(true).with_reverse(true)",
    ]


def test_what_burn_cannot_express_is_named(tmp_path):
    lstm = made("LSTM", 3, 4, "a", coupled="forget", clip=3.0, activation=Activation("mish"))
    lstm.directions[0].projection = torch.zeros(2, 4)
    gru = made("GRU", 3, 4, "b", reverse=True)
    both = made("RNN", 3, 4, "c", directions=2, merge="sum")
    with pytest.raises(FormatError) as error:
        formats.write([lstm, gru, both], tmp_path / "model.safetensors", format="burn")
    for words in (
        "a projection of the output (a)",
        "clip of what goes into the activations (a)",
        "an input gate that is 1 - the forget gate (a)",
        "activation mish (a)",
        "a Gru that runs backwards alone (b)",
        "merged other than by concatenation (c)",
    ):
        assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []
