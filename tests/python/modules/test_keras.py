"""weft.compat.keras: Keras's recurrent layers by weft.scan give what Keras's own loops give, and train alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import pytest
import torch

import weft
import weft.compat.keras

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend in this process", allow_module_level=True)

layers = keras.layers
B, T, I = 4, 6, 5  # noqa: E741

LAYERS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: layers.LSTM(8, return_sequences=True),
    "lstm, last": lambda: layers.LSTM(8),
    "lstm, states": lambda: layers.LSTM(8, return_state=True),
    "lstm, no bias": lambda: layers.LSTM(8, use_bias=False),
    "gru": lambda: layers.GRU(8, return_sequences=True),
    "gru, reset before": lambda: layers.GRU(8, reset_after=False, return_sequences=True),
    "gru, other activations": lambda: layers.GRU(8, activation="relu", recurrent_activation="hard_sigmoid"),
    "simple": lambda: layers.SimpleRNN(1, return_sequences=True),
    "simple, unrolled": lambda: layers.SimpleRNN(8, unroll=True),
    "bidirectional": lambda: layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
    "bidirectional, summed": lambda: layers.Bidirectional(layers.GRU(8), merge_mode="sum"),
    "backwards": lambda: layers.LSTM(8, go_backwards=True, return_sequences=True),
    "backwards, any cell": lambda: layers.SimpleRNN(8, go_backwards=True, return_sequences=True),
    "stacked cells": lambda: layers.RNN([layers.LSTMCell(8), layers.GRUCell(7)], return_state=True),
    "zeros behind the end": lambda: layers.RNN(layers.GRUCell(8), return_sequences=True, zero_output_for_mask=True),
    "dropout": lambda: layers.LSTM(8, recurrent_dropout=0.3, dropout=0.2, seed=3),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    weft.compat.keras.uninstall()


def results(layer: Any, x: np.ndarray, mask: np.ndarray | None) -> list[torch.Tensor]:
    """Outputs, then gradients of the input and of the weights."""
    given = torch.tensor(x, requires_grad=True)
    outputs = layer(given, training=True, **({} if mask is None else {"mask": torch.tensor(mask)}))
    outputs = torch.utils._pytree.tree_leaves(outputs)
    loss = sum((y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in outputs)
    weights = [weight.value for weight in layer.trainable_variables]
    return [*outputs, *torch.autograd.grad(loss, [given, *weights], allow_unused=True)]


@pytest.mark.parametrize("steps", [1, T])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_keras_gives(name: str, masked: bool, steps: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(B, steps, I)).astype("float32")
    mask = rng.random((B, steps)) > 0.4 if masked else None
    made = []
    for _ in range(2):  # the second run has the same weights, and draws the same dropout
        keras.utils.set_random_seed(0)
        made.append(LAYERS[name]())
        made[-1].build(x.shape)
    made[1].set_weights(made[0].get_weights())
    expected = results(made[0], x, mask)
    weft.compat.keras.install()
    weft.reset_stats()
    found = results(made[1], x, mask)
    assert weft.stats()["calls"] > 0 and weft.stats()["fallbacks"] == {}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def model() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            layers.Input((T, I)),
            layers.Masking(),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.GRU(6, recurrent_dropout=0.2),
            layers.Dense(1),
        ]
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(8, T, I)).astype("float32")
    x[:4, 4:] = 0  # these are masked
    return x, rng.normal(size=(8, 1)).astype("float32")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fit_predict_save_and_load(tmp_path: Path) -> None:
    x, y = data()
    predicted = []
    for ours in (False, True):
        if ours:
            weft.compat.keras.install()
        trained = model()
        trained.compile(optimizer="adam", loss="mse")
        keras.utils.set_random_seed(5)
        trained.fit(x, y, epochs=2, batch_size=4, shuffle=False, verbose=0)
        predicted.append(trained.predict(x, verbose=0))
        trained.save(tmp_path / "model.keras")
        predicted.append(keras.models.load_model(tmp_path / "model.keras").predict(x, verbose=0))
    for other in predicted[1:]:
        np.testing.assert_allclose(other, predicted[0], rtol=1e-4, atol=1e-5)


def test_states_go_from_batch_to_batch() -> None:
    x, _ = data()
    found = []
    for ours in (False, True):
        if ours:
            weft.compat.keras.install()
        keras.utils.set_random_seed(0)
        layer = layers.LSTM(8, stateful=True)
        layer.build(x.shape)
        with torch.no_grad():
            first, second = layer(torch.tensor(x)), layer(torch.tensor(x))
            layer.reset_state()
            found.append([first, second, layer(torch.tensor(x))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1][2], found[1][0])


class Noisy(keras.layers.Layer):
    """A cell that draws from a generator of Keras's at every step, which no program can."""

    state_size = output_size = I

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, inputs: Any, states: Any) -> Any:
        h = keras.ops.tanh(inputs + states[0]) + keras.random.normal((I,), seed=self.seeds)
        return h, [h]


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_what_cannot_be_captured_runs_as_keras_runs_it() -> None:
    x = torch.tensor(data()[0])
    expected = layers.RNN(Noisy())(x)
    weft.compat.keras.install()
    weft.reset_stats()
    torch.testing.assert_close(layers.RNN(Noisy())(x), expected)
    assert sum(weft.stats()["fallbacks"].values()) == 1


def test_install_is_undone() -> None:
    before = keras.src.backend.rnn, keras.src.backend.lstm, keras.src.backend.gru
    weft.compat.keras.install()
    weft.compat.keras.install()
    assert keras.src.backend.lstm is not before[1]
    weft.compat.keras.uninstall()
    assert (keras.src.backend.rnn, keras.src.backend.lstm, keras.src.backend.gru) == before
