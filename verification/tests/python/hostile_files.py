"""Files made to harm whoever reads them. `FILES` has a function for each: it writes the file and gives what the error
must say. Run by test_formats_fuzz.py in a process whose memory is limited."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from format_fuzzing import check, limit_memory

HUGE = 1 << 60
MARKER = "executed"  # a file that code in a hostile file would make


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


class Storage:
    """Pickles as a storage of a tensor."""

    def __init__(self, key, numel):
        self.identifier = ("storage", torch.FloatStorage, key, "cpu", numel)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.identifier if isinstance(value, Storage) else None


def torch_file(value, records=None) -> bytes:
    """A file as torch.save writes it, with any pickle and any records."""
    out, data = io.BytesIO(), io.BytesIO()
    if isinstance(value, bytes):
        data.write(value)
    else:
        _Pickler(data, protocol=2).dump(value)
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("m/data.pkl", data.getvalue())
        archive.writestr("m/version", "3\n")
        archive.writestr("m/byteorder", "little")
        for key, content in (records or {}).items():
            archive.writestr(f"m/data/{key}", content)
    return out.getvalue()


def shared_tuples(depth) -> bytes:
    """The pickle of a dict with one key: a tuple of twice a tuple of twice ..., which takes 2^depth steps to hash."""
    made = b"\x80\x02)q\x00"
    for i in range(depth):
        made += bytes([ord("h"), i, ord("h"), i, 0x86, ord("q"), i + 1])
    return made + b"}" + bytes([ord("h"), depth]) + b"K\x01s."


def tensor(size, stride, numel, offset=0):
    return Call(torch._utils._rebuild_tensor_v2, Storage("0", numel), offset, size, stride, False, OrderedDict())


def _torch_files() -> dict[str, tuple[bytes, str]]:
    shell = f"open({MARKER!r}, 'w')"
    small = {"0": b"\0" * 64}
    laughs: dict = {"w": 1}
    for _ in range(60):
        laughs = {"a": laughs, "b": laughs}
    long: dict = {"w": 1}
    for _ in range(40):
        long = {f"{'a' * 100_000}{i}": long for i in range(3)}
    return {
        "code.pt": (torch_file({"w": Call(eval, shell)}), "object of builtins.eval"),
        "system.pt": (torch_file({"w": Call(__import__("os").system, f"touch {MARKER}")}), "object of posix.system"),
        "old.pt": (pickle.dumps(Call(eval, shell)), "is a pickle, maybe of PyTorch's format before 1.6"),
        "storage.pt": (torch_file({"w": tensor((16,), (1,), HUGE)}, small), "claims 1152921504606846976 numbers"),
        "beyond.pt": (torch_file({"w": tensor((17,), (1,), 16)}, small), "reaches beyond its storage of 16 numbers"),
        "offset.pt": (torch_file({"w": tensor((4,), (1,), 16, HUGE)}, small), "reaches beyond its storage"),
        "negative.pt": (torch_file({"w": tensor((4,), (1,), 16, -4)}, small), "which are no sizes"),
        "repeated.pt": (torch_file({"w": tensor((HUGE,), (0,), 16)}, small), "is a view that repeats its 16 numbers"),
        "bytes.pt": (torch_file({"w": Call(bytearray, 1 << 40)}), "object of builtins.bytearray"),
        "sized.pt": (torch_file({"w": Call(torch.FloatStorage, 1 << 40)}), "calls torch.FloatStorage"),
        "tuples.pt": (torch_file(shared_tuples(60)), "nests tuples"),
        "names.pt": (torch_file(long), "a name of more than 1024 letters"),
        "marks.pt": (torch_file(b"\x80\x02" + b"N" * 100_000 + b"(t" * 100_000 + b"."), "holds no recurrent layer"),
        "laughs.pt": (torch_file(laughs), "nested deeper, or has more entries"),
    }


def _npz(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _npz_files() -> dict[str, tuple[bytes, str]]:
    good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1), }", b"\0" * 4)
    objects = io.BytesIO()
    np.save(objects, np.array([Call(eval, f"open({MARKER!r}, 'w')")], dtype=object), allow_pickle=True)
    shapes = {
        "huge.npz": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({HUGE},), }}",
        "wrapped.npz": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 62}, 4), }}",
        "code.npz": f"{{'descr': '<f4', 'shape': open({MARKER!r}, 'w')}}",
        "nested.npz": "(" * 100,
    }
    found = {
        name: (_npz(x=npy(header, b"\0" * 4), y=good), "claims shape" if name[0] in "hw" else "has a damaged header")
        for name, header in shapes.items()
    }
    return found | {
        "bomb.npz": (_npz(x=b"\0" * (1 << 29), y=good), "claims 536871"),
        "objects.npz": (_npz(x=objects.getvalue(), y=good), "has dtype object"),
    }


def safetensors(header: bytes | dict, data: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def _safetensors_files() -> dict[str, tuple[bytes, str]]:
    def entry(shape, offsets, dtype="F32"):
        return {"rnn.weight_hh_l0": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}

    return {
        "header.safetensors": (safetensors({}, size=HUGE), "is a damaged safetensors file"),
        "huge.safetensors": (safetensors(entry([HUGE], [0, HUGE * 4])), "is a damaged safetensors file"),
        "wrapped.safetensors": (safetensors(entry([1 << 62, 4], [0, 0])), "is a damaged safetensors file"),
        "beyond.safetensors": (safetensors(entry([4], [0, 16]), b"\0" * 8), "is a damaged safetensors file"),
        "nested.safetensors": (safetensors(b'{"a":' * 100_000), "is a damaged safetensors file"),
        "names.safetensors": (
            safetensors({"a" * 10_000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
            "a name of more than 1024 letters",
        ),
    }


def _export_files() -> dict[str, tuple[bytes, str]]:
    def archive(model: bytes, config: bytes = b'{"config": {}}') -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as made:
            made.writestr("m/archive_format", "pt2")
            made.writestr("m/models/model.json", model)
            made.writestr("m/data/weights/model_weights_config.json", config)
            made.writestr("m/data/weights/weight_0", b"\0" * 64)
        return out.getvalue()

    def config(sizes, strides):
        meta = {"dtype": 7, "layout": 7, "storage_offset": {"as_int": 0}, "sizes": [{"as_int": s} for s in sizes],
                "strides": [{"as_int": s} for s in strides]}  # fmt: skip
        entry = {"path_name": "weight_0", "use_pickle": False, "is_param": True, "tensor_meta": meta}
        return json.dumps({"config": {"w": entry}}).encode()

    def nested(depth):
        graph: dict = {"nodes": [], "inputs": [], "outputs": []}
        for _ in range(depth):
            node = {"target": "torch.ops.higher_order.f", "outputs": [],
                    "inputs": [{"name": "", "arg": {"as_graph": {"name": "g", "graph": graph}}}]}  # fmt: skip
            graph = {"nodes": [node], "inputs": [], "outputs": []}
        return json.dumps({"graph_module": {"graph": graph, "signature": {"input_specs": []}}}).encode()

    return {
        "nested.pt2": (archive(b"[" * 1_000_000), "isn't JSON"),
        "graphs.pt2": (archive(nested(100)), "nested deeper than 32"),
        "huge.pt2": (archive(b"{}", config([HUGE], [1])), "which its 64 bytes can't hold"),
        "repeated.pt2": (archive(b"{}", config([HUGE], [0])), "which its 64 bytes can't hold"),
        "stride.pt2": (archive(b"{}", config([2], [HUGE])), "which its 64 bytes can't hold"),
        "empty.pt2": (archive(b"{}"), "has no graph as torch.export writes it"),
    }


def _onnx_files() -> dict[str, tuple[bytes, str]]:
    import onnx
    from onnx import helper

    def model(nodes, initializers=(), functions=()):
        nodes = [*nodes, helper.make_node("GRU", ["x", "W", "R"], ["y"], hidden_size=1)]
        x = helper.make_tensor_value_info("x", 1, None)
        graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", 1, None)], initializers)
        return helper.make_model(graph, functions=functions).SerializeToString()

    huge = onnx.TensorProto(name="W", data_type=1, dims=[1, HUGE, 1], raw_data=b"\0" * 4)
    wrapped = onnx.TensorProto(name="W", data_type=1, dims=[1 << 62, 4, 1])
    shape = onnx.numpy_helper.from_array(np.array([1, 1 << 40, 1]), "shape")
    one = onnx.numpy_helper.from_array(np.ones((1, 3, 1), np.float32), "one")
    functions = [
        helper.make_function(
            "d", f"f{i}", ["a"], ["b"],
            [helper.make_node(f"f{i + 1}", a, b, domain="d") for a, b in ((["a"], ["c"]), (["c"], ["b"]))]
            if i < 29 else [helper.make_node("Relu", ["a"], ["b"])],
            [helper.make_opsetid("", 14), helper.make_opsetid("d", 1)],
        )
        for i in range(30)
    ]  # fmt: skip
    itself = helper.make_function("d", "f", ["a"], ["b"], [helper.make_node("f", ["a"], ["b"], domain="d")], [])
    return {
        "huge.onnx": (model([], [huge]), "claims shape [1, 1152921504606846976, 1]"),
        "wrapped.onnx": (model([], [wrapped]), "claims shape"),
        "filled.onnx": (
            model([helper.make_node("ConstantOfShape", ["shape"], ["W"])], [shape]),
            "weights that are constants",
        ),
        "expanded.onnx": (
            model([helper.make_node("Expand", ["one", "shape"], ["W"])], [one, shape]),
            "that are constants",
        ),
        "doubled.onnx": (
            model(
                [helper.make_node("Concat", [f"d{i}", f"d{i}"], [f"d{i + 1}"], axis=1) for i in range(60)]
                + [helper.make_node("Identity", ["d60"], ["W"])],
                [onnx.numpy_helper.from_array(np.ones((1, 3, 1), np.float32), "d0")],
            ),
            "as no weights do",
        ),
        "cycle.onnx": (
            model([helper.make_node("Identity", ["R"], ["W"]), helper.make_node("Identity", ["W"], ["R"])]),
            "is made of itself",
        ),
        "functions.onnx": (
            model([helper.make_node("f0", ["x"], ["z"], domain="d")], functions=functions),
            "more than 500000",
        ),
        "itself.onnx": (model([helper.make_node("f", ["x"], ["z"], domain="d")], functions=[itself]), "deeper than 32"),
    }


FILES: dict[str, Callable[[], dict[str, tuple[bytes, str]]]] = {
    "torch": _torch_files,
    "npz": _npz_files,
    "safetensors": _safetensors_files,
    "export": _export_files,
    "onnx": _onnx_files,
}


def main(folder: Path) -> None:
    files = {name: entry for group in FILES.values() for name, entry in group().items()}
    limit_memory()
    for name, (data, wanted) in files.items():
        path = folder / name
        path.write_bytes(data)
        start = time.perf_counter()
        text = check(path, name)
        assert wanted in text, f"{name}: {text!r} should say {wanted!r}"
        print(f"{name}: {time.perf_counter() - start:.2f} s: {text}")
        assert not (folder / MARKER).exists(), f"{name}: what is in it was executed"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
