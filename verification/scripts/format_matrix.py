"""Every source x destination x kind of layer of `weft.formats`, run by the frameworks themselves.

For each source a model with random weights is made, run and saved by its framework; `weft.formats` converts it to each
destination, whose framework loads the result and runs it on the same input. A cell is the largest difference. Burn
isn't a Python package: its records are run by verification/tests/python/layer_reference.py, and marked.

    python verification/scripts/format_matrix.py            prints the table
    python verification/scripts/format_matrix.py --write    and puts it into docs/formats.md
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "python"))

import numpy as np
import torch
from layer_reference import run_layers
from torch import Tensor, nn

import weft.nn
from weft import formats

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
#: The columns: the cells, the number of layers, the number of directions.
KINDS: dict[str, list[tuple[str, int, int]]] = {
    "GRU": [("GRU", 1, 1)],
    "LSTM": [("LSTM", 1, 1)],
    "RNN": [("RNN", 1, 1)],
    "bidirectional": [("LSTM", 1, 2), ("GRU", 1, 2), ("RNN", 1, 2)],
    "stacked": [("GRU", 2, 1), ("LSTM", 2, 1), ("RNN", 2, 1)],
}
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
BURN = "burn"

Case = tuple[str, int, int]


class Sizes:
    """T, B, I, H."""

    def __init__(self, steps: int = 32, batch: int = 3, inputs: int = 6, units: int = 16) -> None:
        self.steps, self.batch, self.inputs, self.units = steps, batch, inputs, units

    def x(self) -> Tensor:
        return torch.randn(self.steps, self.batch, self.inputs)


def torch_module(case: Case, sizes: Sizes) -> nn.Module:
    kind, layers, directions = case
    module = getattr(nn, kind)(sizes.inputs, sizes.units, layers, bidirectional=directions == 2)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.eval().requires_grad_(False)


# Sources: each saves a model in the folder and returns the file, and what its framework makes of x.


def from_pytorch(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    module, path = torch_module(case, sizes), folder / "source.pt"
    torch.save(module.state_dict(), path)
    return path, module(x)[0]


def from_export(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    path = folder / "source.pt2"
    program = torch.export.export(torch_module(case, sizes), (x,))
    torch.export.save(program, path)
    return path, program.module()(x)[0]


def from_onnx(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    """Nodes by hand, with ONNX's own orders."""
    import onnx
    from onnx import helper

    kind, layers, directions = case
    rng = np.random.default_rng(0)
    nodes, constants, value = [], [], "x"
    for i in range(layers):
        width, g = (sizes.inputs if i == 0 else sizes.units * directions), GATES[kind]
        shapes = {"W": (g * sizes.units, width), "R": (g * sizes.units, sizes.units), "B": (2 * g * sizes.units,)}
        for name, shape in shapes.items():
            array = rng.normal(scale=0.4, size=(directions, *shape)).astype(np.float32)
            constants.append(onnx.numpy_helper.from_array(array, f"{name}{i}"))
        own = {"direction": "bidirectional" if directions == 2 else "forward", "hidden_size": sizes.units}
        own |= {"linear_before_reset": 1} if kind == "GRU" else {}
        nodes.append(helper.make_node(kind, [value, f"W{i}", f"R{i}", f"B{i}"], [f"y{i}"], **own))
        nodes.append(helper.make_node("Transpose", [f"y{i}"], [f"t{i}"], perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", [f"t{i}", "shape"], [value := f"z{i}"]))
    constants.append(onnx.numpy_helper.from_array(np.array([0, 0, -1]), "shape"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["T", "B", "I"])], [info(value, 1, ["T", "B", "O"])], constants)
    path = folder / "source.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 14)]), path)
    return path, run_onnx(path, x)


def from_keras(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    import keras

    kind, layers, directions = case
    cell = {"RNN": keras.layers.SimpleRNN, "GRU": keras.layers.GRU, "LSTM": keras.layers.LSTM}[kind]
    made = [cell(sizes.units, return_sequences=True) for _ in range(layers)]
    made = [keras.layers.Bidirectional(layer) for layer in made] if directions == 2 else made
    model = keras.Sequential([keras.Input((None, sizes.inputs)), *made])
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.4, size=weight.shape))
    model.save(folder / "source.keras")
    return folder / "source.keras", run_keras(folder / "source.keras", x)


def from_flax(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    import flax.linen
    import flax.serialization
    import jax

    kind, layers, directions = case
    cell = {"GRU": flax.linen.GRUCell, "LSTM": flax.linen.OptimizedLSTMCell, "RNN": flax.linen.SimpleCell}[kind]

    def one() -> object:
        pair = [flax.linen.RNN(cell(sizes.units)) for _ in range(directions)]
        return flax.linen.Bidirectional(*pair) if directions == 2 else pair[0]

    module = flax.linen.Sequential([one() for _ in range(layers)])
    variables = module.init(jax.random.key(0), x.transpose(0, 1).numpy())
    rng = np.random.default_rng(0)
    variables = jax.tree.map(lambda leaf: rng.normal(scale=0.4, size=leaf.shape).astype(np.float32), variables)
    path = folder / "source.msgpack"
    path.write_bytes(flax.serialization.to_bytes(variables))
    return path, run_flax(module, variables, x)


def from_burn(case: Case, sizes: Sizes, x: Tensor, folder: Path) -> tuple[Path, Tensor]:
    path = folder / "source.safetensors"
    layers = formats.layers_of_module(torch_module(case, sizes)).layers
    formats.write(layers, path, format=BURN)
    return path, run_layers(list(layers), x)


# Destinations: each loads the written file and runs it.


def run_pytorch(path: Path, x: Tensor, notes: list[str], case: Case, sizes: Sizes) -> Tensor:
    given = [note.partition("load it into ")[2] for note in notes if "load it into " in note]
    state = torch.load(path, weights_only=True)
    plain = f"nn.{case[0]}({sizes.inputs}, {sizes.units}, {case[1]}, bidirectional={case[2] == 2})"
    module = eval(given[0] if given else plain, {"nn": nn, "weft": weft, "torch": torch})
    module.load_state_dict(state)
    with torch.no_grad():
        return module.eval()(x)[0]


def run_export(path: Path, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.export.load(path).module()(x)


def run_onnx(path: Path, x: Tensor) -> Tensor:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def run_keras(path: Path, x: Tensor) -> Tensor:
    import keras

    with torch.no_grad():
        return keras.models.load_model(path)(x.transpose(0, 1)).transpose(0, 1)


def run_flax(module: object, variables: object, x: Tensor) -> Tensor:
    y = module.apply(variables, x.transpose(0, 1).numpy())  # type: ignore[attr-defined]
    return torch.from_numpy(np.array(y)).transpose(0, 1)


def load_flax(path: Path, x: Tensor, notes: list[str]) -> Tensor:
    import flax.linen
    import flax.serialization
    import jax
    import jax.numpy

    names = {"nn": flax.linen, "jnp": jax.numpy, "jax": jax}
    module = eval(notes[-1].partition("variables of ")[2], names)
    variables = flax.serialization.msgpack_restore(path.read_bytes())
    return run_flax(module, variables, x)


def run_read_back(path: Path, x: Tensor) -> Tensor:
    return run_layers(list(formats.read(path, format=BURN).layers), x)


SOURCES: dict[str, Callable[[Case, Sizes, Tensor, Path], tuple[Path, Tensor]]] = {
    "pytorch": from_pytorch,
    "torch.export": from_export,
    "onnx": from_onnx,
    "keras": from_keras,
    "flax": from_flax,
    BURN: from_burn,
}
#: The extension, and the function that runs the file.
DESTINATIONS: dict[str, tuple[str, Callable[[Path, Tensor, list[str], Case, Sizes], Tensor]]] = {
    "pytorch": (".pt", run_pytorch),
    "torch.export": (".pt2", lambda path, x, *_: run_export(path, x)),
    "onnx": (".onnx", lambda path, x, *_: run_onnx(path, x)),
    "keras": (".keras", lambda path, x, *_: run_keras(path, x)),
    "flax": (".msgpack", lambda path, x, notes, *_: load_flax(path, x, notes)),
    BURN: (".safetensors", lambda path, x, *_: run_read_back(path, x)),
}


def differences(source: str, case: Case, sizes: Sizes, destinations: list[str]) -> dict[str, float]:
    """For a source's model with these layers: by destination the largest difference of the outputs."""
    found = {}
    x = sizes.x()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path, wanted = SOURCES[source](case, sizes, x, folder)
        layers = formats.read(path, format=source)
        for destination in destinations:
            suffix, run = DESTINATIONS[destination]
            written = folder / f"written{suffix}"
            notes = formats.write(layers, written, format=destination)
            y = run(written, x, notes, case, sizes)
            assert y.shape == wanted.shape, f"{source} to {destination}: {y.shape}, {wanted.shape}"
            found[destination] = (y.double() - wanted.double()).abs().max().item()
    return found


def table(sizes: Sizes) -> str:
    torch.manual_seed(0)
    lines = ["| from | to | " + " | ".join(KINDS) + " |", "|---|---|" + "---|" * len(KINDS)]
    for source in SOURCES:
        rows: dict[str, list[str]] = {destination: [] for destination in DESTINATIONS}
        for cases in KINDS.values():
            found = [differences(source, case, sizes, list(DESTINATIONS)) for case in cases]
            for destination, row in rows.items():
                mark = " *" if BURN in (source, destination) else ""
                worst = max(each[destination] for each in found)
                row.append(f"{worst:.1e}{mark}" if worst else f"0{mark}")
        lines += [f"| {source} | {destination} | {' | '.join(row)} |" for destination, row in rows.items()]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    made = table(Sizes())
    print(made)
    if "--write" in arguments:
        before, _, rest = DOCUMENT.read_text().partition("<!-- matrix -->\n")
        after = rest.partition("<!-- /matrix -->\n")[2]
        DOCUMENT.write_text(f"{before}<!-- matrix -->\n{made}\n<!-- /matrix -->\n{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
