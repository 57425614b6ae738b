"""weft.formats and Flax: linen's and nnx's cells compute the layers that are read from them, and linen runs the files
that are written."""

from __future__ import annotations

import os

import msgpack
import numpy as np
import pytest
import torch
from layer_reference import run_layers

from weft import formats
from weft.formats import GATES, Activation, Direction, FormatError, Layer

os.environ.setdefault("JAX_PLATFORMS", "cpu")

jax = pytest.importorskip("jax")
nn = pytest.importorskip("flax.linen")

import flax.serialization  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import safetensors.flax  # noqa: E402
from flax import nnx  # noqa: E402
from flax.traverse_util import flatten_dict, unflatten_dict  # noqa: E402


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


class Compact(nn.Module):
    """Cells that linen names itself: nothing in their names says that two belong to a Bidirectional."""

    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.GRUCell(4))(x)
        x = nn.Bidirectional(nn.RNN(nn.GRUCell(5)), nn.RNN(nn.GRUCell(5)))(x)
        return nn.RNN(nn.OptimizedLSTMCell(6))(x)


class Mixed(nn.Module):
    """A model whose names alone put the GRUs before the LSTMs."""

    @nn.compact
    def __call__(self, x):
        x = nn.Bidirectional(nn.RNN(nn.OptimizedLSTMCell(4)), nn.RNN(nn.OptimizedLSTMCell(4)))(x)
        x = nn.RNN(nn.GRUCell(5))(x)
        x = nn.RNN(nn.OptimizedLSTMCell(6))(x)
        return nn.Bidirectional(nn.RNN(nn.SimpleCell(2)), nn.RNN(nn.SimpleCell(2)))(x)


class SetUp(nn.Module):
    def setup(self):
        self.encoder = nn.Bidirectional(nn.RNN(nn.LSTMCell(3)), nn.RNN(nn.LSTMCell(3)))
        self.steps = [nn.RNN(nn.SimpleCell(4)) for _ in range(11)]

    def __call__(self, x):
        x = self.encoder(x)
        for step in self.steps:
            x = step(x)
        return x


def run_flax(module, variables, x):
    """[T, B, I] -> [T, B, O]"""
    y = jax.jit(module.apply)(variables, jnp.asarray(x.transpose(0, 1).numpy()))
    return torch.from_numpy(np.array(y)).double().transpose(0, 1)


def made_of(module, dtype=np.float32):
    variables = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((2, 5, 3), jnp.float32))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(scale=0.5, size=leaf.shape).astype(dtype), variables)


def save(variables, path):
    flat = flatten_dict(variables, sep="." if path.suffix == ".npz" else "/")
    if path.suffix == ".msgpack":
        path.write_bytes(flax.serialization.to_bytes(variables))
    elif path.suffix == ".npz":
        np.savez(path, **flat)
    else:
        safetensors.flax.save_file({name: jnp.asarray(value) for name, value in flat.items()}, path)


@pytest.mark.parametrize(
    ("module", "suffix"),
    [(Compact(), ".msgpack"), (Compact(), ".safetensors"), (Mixed(), ".msgpack"), (SetUp(), ".npz")],
    ids=["compact", "compact, sorted", "mixed", "setup"],
)
def test_linen_computes_what_is_read(module, suffix, tmp_path):
    variables = made_of(module)
    save(variables, tmp_path / f"model{suffix}")
    source = formats.read(tmp_path / f"model{suffix}")
    assert source.format == "flax" and not source.ignored
    x = torch.randn(6, 2, 3)
    layers = source.layers
    if isinstance(module, SetUp):
        # The names of attributes say nothing of which layer feeds which, except in one list.
        assert [layer.continues for layer in layers] == [False, False] + [True] * 10
        assert [layer.name for layer in layers] == ["encoder", *(f"steps_{i}" for i in range(11))]
    else:
        assert all(layer.continues for layer in layers[1:])
        assert any("for the directions of one layer" in note for note in source.notes)
    torch.testing.assert_close(run_layers(layers, x), run_flax(module, variables, x), atol=2e-6, rtol=2e-6)


def test_cells_that_may_be_two_layers_or_two_directions(tmp_path):
    class Both(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Bidirectional(nn.RNN(nn.GRUCell(3)), nn.RNN(nn.GRUCell(3)))(x)

    variables = made_of(Both())
    path = tmp_path / "model.msgpack"
    save(variables, path)
    source = formats.read(path)
    assert [layer.continues for layer in source.layers] == [False, True]
    assert any("option bidirectional=true or false" in note for note in source.notes)
    source = formats.read(path, options={"bidirectional": True})
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(run_layers(source.layers, x), run_flax(Both(), variables, x), atol=2e-6, rtol=2e-6)


def test_functions_and_a_residual_are_options(tmp_path):
    modules = {
        "gru": nn.RNN(nn.GRUCell(4, gate_fn=nn.hard_sigmoid, activation_fn=nn.relu), reverse=True, keep_order=True),
        "lstm": nn.RNN(nn.LSTMCell(4, gate_fn=nn.hard_sigmoid, activation_fn=nn.soft_sign)),
        "rnn": nn.RNN(nn.SimpleCell(4, residual=True)),
    }
    options = {
        "gru": {"gate_activation": "hard_sigmoid", "activation": "relu", "reverse": True},
        "lstm": {"gate_activation": "hard_sigmoid", "activation": "softsign"},
        "rnn": {"residual": True},
    }
    x = torch.randn(6, 2, 3)
    for name, module in modules.items():
        variables = made_of(module)
        save(variables, tmp_path / "model.msgpack")
        layers = formats.read(tmp_path / "model.msgpack", options=options[name]).layers
        torch.testing.assert_close(run_layers(layers, x), run_flax(module, variables, x), atol=2e-6, rtol=2e-6)
        assert layers[0].name == "(root)"


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs))
        self.b = nnx.RNN(nnx.LSTMCell(4, 5, rngs=rngs))
        self.c = nnx.RNN(nnx.OptimizedLSTMCell(5, 2, rngs=rngs))
        self.d = nnx.Bidirectional(nnx.RNN(nnx.SimpleCell(2, 3, rngs=rngs)), nnx.RNN(nnx.SimpleCell(2, 3, rngs=rngs)))

    def __call__(self, x):
        return self.d(self.c(self.b(self.a(x))))


def test_nnx_computes_what_is_read(tmp_path):
    module = Nnx(nnx.Rngs(0))
    state = nnx.state(module, nnx.Param)
    rng = np.random.default_rng(0)
    state = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(scale=0.5, size=leaf.shape).astype(np.float32)), state)
    nnx.update(module, state)
    x = torch.randn(6, 2, 3)
    expected = torch.from_numpy(np.array(module(jnp.asarray(x.transpose(0, 1).numpy())))).double().transpose(0, 1)
    pure = nnx.to_pure_dict(state)
    nested = unflatten_dict({(*path, "value"): leaf for path, leaf in flatten_dict(pure).items()})
    for variables in (
        pure,
        nested,
        {"params": pure, "opt_state": {"0": {"mu": pure, "nu": pure}}, "step": np.int32(3)},
    ):
        save({"model": variables}, tmp_path / "model.msgpack")
        source = formats.read(tmp_path / "model.msgpack")
        assert [layer.kind for layer in source.layers] == ["GRU", "LSTM", "LSTM", "RNN"]
        torch.testing.assert_close(run_layers(source.layers, x), expected, atol=2e-6, rtol=2e-6)
    assert [layer.name for layer in source.layers] == ["a", "b", "c", "d"]
    assert "model.opt_state.0.mu.a.cell.dense_i.kernel" in source.ignored and "model.step" in source.ignored
    assert [layer.name for layer in formats.read(tmp_path / "model.msgpack", options={"module": "c"}).layers] == ["c"]


def test_other_cells_are_noted(tmp_path):
    class Odd(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.RNN(nn.MGUCell(4))(nn.RNN(nn.GRUCell(4))(x))

    save(made_of(Odd()), tmp_path / "model.msgpack")
    source = formats.read(tmp_path / "model.msgpack")
    assert [layer.kind for layer in source.layers] == ["GRU"]
    assert any("MGUCell_0 is an MGUCell, which isn't read" in note for note in source.notes)
    assert len(source.ignored) == 7


def made(kind, inputs, hidden, name="", directions=1, biases=2, dtype=torch.float64, reverse=False, **fields):
    gates = len(GATES[kind])
    both = [
        Direction(
            torch.randn(gates * hidden, inputs).mul(0.5).to(dtype),
            torch.randn(gates * hidden, hidden).mul(0.5).to(dtype),
            torch.randn(gates * hidden).to(dtype) if biases > 0 else None,
            torch.randn(gates * hidden).to(dtype) if biases > 1 else None,
            reverse=reverse or i == 1,
        )
        for i in range(directions)
    ]
    return Layer(name or kind.lower(), kind, both, **fields)


CHAINS = {
    "gru": lambda: [made("GRU", 3, 4, biases=1)],
    "all": lambda: [
        made("GRU", 3, 4),
        made("LSTM", 4, 3, directions=2, continues=True, merge="ave"),
        made("RNN", 3, 5, continues=True, reverse=True),
        made("GRU", 5, 2, biases=0, continues=True),
    ],
    "functions": lambda: [
        made("GRU", 3, 4, gate_activation=Activation("hard_sigmoid", 0.2, 0.5), activation=Activation("relu6")),
        made(
            "LSTM",
            4,
            3,
            continues=True,
            activation=Activation("scaled_tanh", 1.5, 0.5),
            output_activation=Activation("scaled_tanh", 1.5, 0.5),
        ),
    ],
    "bfloat16": lambda: [made("LSTM", 3, 4, dtype=torch.bfloat16)],
}


@pytest.mark.parametrize("suffix", [".msgpack", ".safetensors", ".npz"])
@pytest.mark.parametrize("name", CHAINS)
def test_linen_runs_what_is_written(name, suffix, tmp_path):
    layers = CHAINS[name]()
    path = tmp_path / f"model{suffix}"
    if (name, suffix) == ("bfloat16", ".npz"):
        with pytest.raises(FormatError, match="is bfloat16, which NumPy files don't have"):
            formats.write(layers, path, format="flax")
        return
    notes = formats.write(layers, path, format="flax")
    module = eval(notes[-1].partition("variables of ")[2], {"nn": nn, "jnp": jnp, "jax": jax})
    if suffix == ".msgpack":
        given = jnp.zeros((2, 5, 3), str(layers[0].directions[0].weight_x.dtype).removeprefix("torch."))
        variables = flax.serialization.from_bytes(
            jax.eval_shape(module.init, jax.random.key(0), given), path.read_bytes()
        )
    else:
        flat = safetensors.flax.load_file(path) if suffix == ".safetensors" else dict(np.load(path))
        variables = unflatten_dict(flat, sep="/")
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    expected = run_layers(layers, x)
    error = 2e-2 if name == "bfloat16" else 1e-12
    if name == "bfloat16":
        variables = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), variables)
        module = nn.Sequential([nn.RNN(nn.OptimizedLSTMCell(4, param_dtype=jnp.float64))])
    torch.testing.assert_close(run_flax(module, variables, x), expected, atol=error, rtol=error)
    assert any("were added" in note for note in notes) == (name != "gru")
    again = formats.read(path, options={"merge": "ave"} if name == "all" else None)
    assert [layer.continues for layer in again.layers] == [layer.continues for layer in layers]
    assert [len(layer.directions) for layer in again.layers] == [len(layer.directions) for layer in layers]
    if name == "gru":
        assert torch.equal(run_layers(again.layers, x), expected)


def test_layers_that_do_not_feed_each_other_are_stacks(tmp_path):
    layers = [made("GRU", 3, 4), made("LSTM", 4, 2, continues=True), made("RNN", 4, 2)]
    notes = formats.write(layers, tmp_path / "model.msgpack")
    assert (
        notes[-1] == "stack_1 has the variables of nn.Sequential([nn.RNN(nn.SimpleCell(2, param_dtype=jnp.float64))])"
    )
    read = formats.read(tmp_path / "model.msgpack").layers
    assert [(layer.name, layer.continues) for layer in read] == [
        ("stack_0/layers_0", False),
        ("stack_0/layers_1", True),
        ("stack_1/layers_0", False),
    ]


def test_what_flax_cannot_express_is_named(tmp_path):
    gru = made("GRU", 3, 4, "a", reset_after=False, cell_clip=1.0)
    lstm = made("LSTM", 5, 4, "b", continues=True, coupled="input", output_activation=Activation("relu"))
    with pytest.raises(FormatError) as error:
        formats.write([gru, lstm], tmp_path / "model.msgpack")
    for words in (
        "reset_after=False (a)",
        "clip of the state (a)",
        "coupled input and forget gates (b)",
        "an output activation of its own (b)",
        "an input of 5 from an output of 4 (b)",
    ):
        assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_arrays_in_pieces_and_of_other_dtypes(tmp_path, monkeypatch):
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 64)
    variables = made_of(nn.RNN(nn.GRUCell(4)), np.float64)
    half = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), variables)
    state = {"a": variables, "b": half, "key": np.uint32([1, 2]), "scalar": np.float32(2), "z": 1j}
    path = tmp_path / "model.msgpack"
    path.write_bytes(flax.serialization.msgpack_serialize(state))
    a, b = formats.read(path).layers
    assert a.directions[0].weight_x.dtype == torch.float64 and b.directions[0].weight_x.dtype == torch.bfloat16
    kernel = variables["params"]["cell"]["iz"]["kernel"]
    np.testing.assert_array_equal(a.directions[0].weight_x[4:8].T, kernel)
    monkeypatch.setattr(formats._files.msgpack, "_CHUNK", 64)
    formats.write(a, tmp_path / "again.msgpack")
    restored = flax.serialization.msgpack_restore((tmp_path / "again.msgpack").read_bytes())
    np.testing.assert_array_equal(restored["params"]["layers_0"]["cell"]["iz"]["kernel"], kernel)


def test_claims_of_messagepack_are_checked(tmp_path):
    path = tmp_path / "model.msgpack"

    def array(shape, dtype="float32", content=b"\0" * 16):
        return msgpack.ExtType(1, msgpack.packb((shape, dtype, content)))

    cases = {
        "claims shape [1000000, 1000000] of float32, but 16 bytes": {"a": array((10**6, 10**6))},
        "has an array of dtype 'object'": {"a": array((4,), "object")},
        "an array that isn't a shape, a dtype and bytes": {"a": msgpack.ExtType(1, msgpack.packb([1, 2]))},
        "claims shape": {"a": {"__msgpack_chunked_array__": True, "shape": {"0": 9}, "chunks": {"0": array((4,))}}},
        "aren't counted from 0": {
            "a": {"__msgpack_chunked_array__": True, "shape": {"1": 4}, "chunks": {"0": array((4,))}}
        },
        "NamedMpkFileRecorder": {"metadata": {}, "item": {}},
        "holds a list where": [1, 2],
    }
    packed = {words: msgpack.packb(value) for words, value in cases.items()}
    packed["max_array_len"] = b"\xdd\x7f\xff\xff\xff" * 200 + b"\0" * 2000
    packed["no MessagePack"] = b"\x81" * 3000
    for words, data in packed.items():
        path.write_bytes(data)
        with pytest.raises(FormatError) as error:
            formats.read(path)
        assert words in str(error.value) and "\n" not in str(error.value)
