"""Equinox, MLX and Haiku: arrays named as theirs against their equations, written down from their sources, and against
the frameworks themselves where these are installed. And parameters beside a cell's own, which nothing uses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from layer_reference import run_layers

import weft
from weft import formats
from weft._command_line import main
from weft.formats import FormatError

NUMBERS = np.random.default_rng(0)
STEPS, ROWS, INPUTS, UNITS = 7, 2, 3, 5
X = NUMBERS.standard_normal((STEPS, ROWS, INPUTS))


def array(*shape: int) -> np.ndarray:
    return NUMBERS.standard_normal(shape) * 0.5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def unrolled(step, state, x: np.ndarray) -> np.ndarray:
    """`step` takes x [B, I] and a state (h first), and gives the next state."""
    ys = []
    for each in x:
        state = step(each, *state)
        ys.append(state[0])
    return np.stack(ys)


def zeros(count: int) -> tuple[np.ndarray, ...]:
    return tuple(np.zeros((ROWS, UNITS)) for _ in range(count))


# By framework and cell: names of the arrays, and what the framework computes of them ----------------------------------


def equinox_gru():
    p = {"weight_ih": array(15, INPUTS), "weight_hh": array(15, UNITS), "bias": array(15), "bias_n": array(UNITS)}

    def step(x, h):
        i, g = np.split(x @ p["weight_ih"].T + p["bias"], 3, 1), np.split(h @ p["weight_hh"].T, 3, 1)
        reset, inp = sigmoid(i[0] + g[0]), sigmoid(i[1] + g[1])
        new = np.tanh(i[2] + reset * (g[2] + p["bias_n"]))
        return (new + inp * (h - new),)

    return p, unrolled(step, zeros(1), X)


def lstm_of_one_bias(weight_x, weight_h, bias):
    """Arrays with these names for an LSTM."""
    p = {weight_x: array(20, INPUTS), weight_h: array(20, UNITS), bias: array(20)}

    def step(x, h, c):
        i, f, g, o = np.split(x @ p[weight_x].T + h @ p[weight_h].T + p[bias], 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return p, unrolled(step, zeros(2), X)


def equinox_lstm():
    return lstm_of_one_bias("weight_ih", "weight_hh", "bias")


def mlx_gru():
    p = {"Wx": array(15, INPUTS), "Wh": array(15, UNITS), "b": array(15), "bhn": array(UNITS)}

    def step(x, h):
        x, g = x @ p["Wx"].T + p["b"], h @ p["Wh"].T
        r, z = np.split(sigmoid(x[:, :10] + g[:, :10]), 2, 1)
        n = np.tanh(x[:, 10:] + r * (g[:, 10:] + p["bhn"]))
        return ((1 - z) * n + z * h,)

    return p, unrolled(step, zeros(1), X)


def mlx_lstm():
    return lstm_of_one_bias("Wx", "Wh", "bias")


def mlx_rnn():
    p = {"Wxh": array(UNITS, INPUTS), "Whh": array(UNITS, UNITS), "bias": array(UNITS)}
    return p, unrolled(lambda x, h: (np.tanh(x @ p["Wxh"].T + h @ p["Whh"].T + p["bias"]),), zeros(1), X)


def haiku_gru():
    p = {"w_i": array(INPUTS, 15), "w_h": array(UNITS, 15), "b": array(15)}

    def step(x, h):
        zr = sigmoid(x @ p["w_i"][:, :10] + h @ p["w_h"][:, :10] + p["b"][:10])
        z, r = np.split(zr, 2, 1)
        a = np.tanh(x @ p["w_i"][:, 10:] + (r * h) @ p["w_h"][:, 10:] + p["b"][10:])
        return ((1 - z) * h + z * a,)

    return {f"gru/{name}": value for name, value in p.items()}, unrolled(step, zeros(1), X)


def haiku_lstm():
    w, b = array(INPUTS + UNITS, 20), array(20)

    def step(x, h, c):
        i, g, f, o = np.split(np.concatenate([x, h], 1) @ w + b, 4, 1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return {"lstm/linear/w": w, "lstm/linear/b": b}, unrolled(step, zeros(2), X)


def haiku_rnn():
    w, b, w_h, b_h = array(INPUTS, UNITS), array(UNITS), array(UNITS, UNITS), array(UNITS)
    y = unrolled(lambda x, h: (np.maximum(x @ w + b + h @ w_h + b_h, 0),), zeros(1), X)
    one, two = "vanilla_rnn/linear", "vanilla_rnn/linear_1"
    return {f"{one}/w": w, f"{one}/b": b, f"{two}/w": w_h, f"{two}/b": b_h}, y


CELLS = [equinox_gru, equinox_lstm, mlx_gru, mlx_lstm, mlx_rnn, haiku_gru, haiku_lstm, haiku_rnn]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)
@pytest.mark.parametrize("prefix", ["", "net.encoder.", "net/~/encoder/"])
def test_cells_compute_what_their_framework_does(cell, prefix: str, tmp_path: Path) -> None:
    parameters, y = cell()
    path = tmp_path / "model.npz"
    np.savez(path, **{prefix + name: value for name, value in parameters.items()})
    source = formats.read(path)
    format, kind = cell.__name__.split("_")
    assert (source.format, source.layers[0].kind, len(source.layers)) == (format, kind.upper(), 1)
    assert not source.ignored and not source.unused
    np.testing.assert_allclose(run_layers(source.layers, torch.from_numpy(X)), y, atol=1e-13)
    report = weft.verify(path, {"x": X, "y": y})
    assert report.agrees, report
    with pytest.raises(FormatError, match=f"files of {format} can be read, but not written"):
        formats.write(source, tmp_path / "again.npz", format=format)
    formats.write(source, tmp_path / "again.pt")
    options = {"nonlinearity": "relu"} if cell is haiku_rnn else {"reset_after": cell.__name__ != "haiku_gru"}
    again = formats.read(tmp_path / "again.pt", options=options)
    np.testing.assert_allclose(run_layers(again.layers, torch.from_numpy(X)), y, atol=1e-13)


@pytest.mark.parametrize("package", ["equinox", "mlx", "haiku"])
def test_the_frameworks_themselves(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} isn't installed")
    x = X.astype(np.float32)
    for parameters, y in {"equinox": _of_equinox, "mlx": _of_mlx, "haiku": _of_haiku}[package](x):
        np.savez(tmp_path / "model.npz", **parameters)
        source = formats.read(tmp_path / "model.npz")
        assert source.format == package and not source.ignored
        np.testing.assert_allclose(run_layers(source.layers, torch.from_numpy(x)), y, atol=1e-6)


def _of_equinox(x):
    import equinox
    import jax

    for kind in (equinox.nn.GRUCell, equinox.nn.LSTMCell):
        cell = kind(INPUTS, UNITS, key=jax.random.key(1))
        names = ("weight_ih", "weight_hh", "bias", "bias_n")
        ys = []
        for row in range(ROWS):
            state = np.zeros(UNITS, np.float32)
            state = (state, state) if kind is equinox.nn.LSTMCell else state
            rows = []
            for each in x[:, row]:
                state = cell(each, state)
                rows.append(np.asarray(state[0] if isinstance(state, tuple) else state))
            ys.append(np.stack(rows))
        yield {name: np.asarray(getattr(cell, name)) for name in names if hasattr(cell, name)}, np.stack(ys, 1)


def _of_mlx(x):
    import mlx.core as mx
    import mlx.nn

    for kind in (mlx.nn.RNN, mlx.nn.GRU, mlx.nn.LSTM):
        module = kind(INPUTS, UNITS)
        y = module(mx.array(x.transpose(1, 0, 2)))
        y = y[0] if isinstance(y, tuple) else y
        yield {name: np.array(value) for name, value in module.parameters().items()}, np.array(y).transpose(1, 0, 2)


def _of_haiku(x):
    import haiku
    import jax

    for kind in (haiku.GRU, haiku.LSTM, haiku.VanillaRNN):

        def stack(x, kind=kind):
            for units in (UNITS, UNITS + 1):
                core = kind(units)
                x, _ = haiku.dynamic_unroll(core, x, core.initial_state(ROWS))
            return x

        made = haiku.transform(stack)
        parameters = made.init(jax.random.key(0), x)
        parameters = jax.tree.map(lambda each: each + array(*each.shape).astype(np.float32), parameters)
        arrays = {f"{module}/{name}": np.asarray(v) for module, own in parameters.items() for name, v in own.items()}
        yield arrays, np.asarray(made.apply(parameters, None, x))


def test_cells_that_count_up_feed_each_other(tmp_path: Path) -> None:
    first = {f"gru/{name.split('/')[1]}": value for name, value in haiku_gru()[0].items()}
    second = {"gru_1/w_i": array(UNITS, 12), "gru_1/w_h": array(4, 12), "gru_1/b": array(12)}
    np.savez(tmp_path / "model.npz", **first, **second)
    source = formats.read(tmp_path / "model.npz")
    assert [layer.continues for layer in source.layers] == [False, True]
    only = formats.read(tmp_path / "model.npz", options={"module": "gru_1"})
    assert [layer.name for layer in only.layers] == ["gru_1"] and not only.layers[0].continues
    with pytest.raises(FormatError, match="has no cell 'lstm'; it has gru, gru_1"):
        formats.read(tmp_path / "model.npz", options={"module": "lstm"})


@pytest.mark.parametrize(
    ("cell", "changed", "message"),
    [
        (equinox_gru, {"bias_n": array(6)}, "bias_n has shape [6], expected [5]"),
        (equinox_gru, {"weight_hh": array(15, 4)}, "a GRUCell (with bias_n) has three times as many rows as columns"),
        (equinox_gru, {"bias": None}, "a GRUCell has both or none"),
        (mlx_gru, {"bhn": None}, "has one of b and bhn"),
        (mlx_lstm, {"Wh": array(20, 4)}, "an LSTM (Wx, Wh, bias) four times"),
        (haiku_gru, {"gru/w_h": array(5, 10)}, "gru/w_h has shape [5, 10], expected [5, 15]"),
        (haiku_lstm, {"lstm/linear/w": array(4, 20)}, "an LSTM of Haiku has [inputs + H, 4 H]"),
        (haiku_rnn, {"vanilla_rnn/linear/b": array(4)}, "vanilla_rnn/linear/b has shape [4], expected [5]"),
    ],
)
def test_parameters_that_do_not_fit_are_named(cell, changed: dict, message: str, tmp_path: Path) -> None:
    parameters = {name: value for name, value in (cell()[0] | changed).items() if value is not None}
    np.savez(tmp_path / "model.npz", **parameters)
    with pytest.raises(FormatError) as caught:
        formats.read(tmp_path / "model.npz")
    assert message in str(caught.value)


def test_mlx_says_what_its_releases_do_otherwise(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", **mlx_gru()[0])
    assert any("before 0.31.2 leaves bhn out at step 0" in note for note in formats.read(tmp_path / "model.npz").notes)


# Parameters beside a cell's own ---------------------------------------------------------------------------------------


def _with(prefix: str, extra: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    state = {prefix + name: value for name, value in torch.nn.GRUCell(3, 5).state_dict().items()}
    return state | {"head.weight": torch.zeros(2, 5)} | extra


@pytest.mark.parametrize(
    ("tensors", "unused"),
    [
        (_with("rnn.", {"rnn.bias": torch.ones(15)}), ["rnn.bias"]),
        (_with("rnn.", {"rnn.norm.weight": torch.ones(5), "rnn.s": torch.ones(1)}), ["rnn.norm.weight", "rnn.s"]),
        (_with("", {"scale": torch.ones(1)}), ["scale"]),
        (_with("rnn.", {"rnn2.scale": torch.ones(1)}), []),
        ({"weight_ih": torch.zeros(15, 3), "weight_hh": torch.zeros(15, 5), "bias": torch.zeros(15)}, ["bias"]),
        ({"cell/" + n: torch.zeros(s) for n, s in
          {"dense_i/kernel": (3, 15), "dense_h/kernel": (5, 15), "norm/scale": (5,)}.items()}, ["cell/norm/scale"]),
        ({f"rnn.gate.{side}_transform.weight": torch.zeros(5, 5) for side in ("input", "hidden")}
         | {"rnn.extra": torch.zeros(1)}, ["rnn.extra"]),
        ({name: torch.from_numpy(value) for name, value in mlx_lstm()[0].items()} | {"s": torch.ones(1)}, ["s"]),
    ],
)  # fmt: skip
def test_what_lies_beside_a_cell_is_named_and_not_dropped(tensors, unused: list[str], tmp_path: Path, capsys) -> None:
    from safetensors.torch import save_file

    path, target = tmp_path / "model.safetensors", tmp_path / "new.onnx"
    save_file(tensors, path)
    source = formats.read(path)
    assert source.unused == unused and set(unused) <= set(source.ignored)
    named = [note for note in source.notes if "not used" in note]
    assert bool(named) == bool(unused) and all(name in named[0] for name in unused)
    report = weft.verify(path, path)
    assert report.agrees and all(name in str(report) for name in unused)
    status = main(["convert", str(path), str(target)])
    said = capsys.readouterr()
    assert status == (2 if unused else 0) and target.exists() == (not unused), said
    if unused:
        assert all(name in said.err for name in unused) and "--allow-unused" in said.err
        assert main(["convert", str(path), str(tmp_path / "t.npz")]) == 2
        assert main(["convert", "--allow-unused", str(path), str(target)]) == 0
        said = capsys.readouterr()
        assert all(name in said.out for name in unused)
    if "head.weight" in tensors:
        assert "not converted, as no recurrent layer has" in said.out and "head.weight" in said.out
