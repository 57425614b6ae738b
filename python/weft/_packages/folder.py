"""The files of a package."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor

from weft import _C
from weft._base.dtypes import DTYPES
from weft._packages import c_text
from weft._packages.load import ABI
from weft._packages.steps import Step


@dataclasses.dataclass(frozen=True)
class Object:
    """A step compiled for one target."""

    object: bytes
    assembly: str
    fingerprint: int
    state_bytes: int
    state_align: int
    saved_bytes: int
    weights: int  #: of products
    weight_bytes: int  #: of these as they are stored, with their scales


@dataclasses.dataclass(frozen=True)
class Contents:
    """Everything that a package is written from."""

    name: str
    step: Step
    objects: dict[str, Object]  #: by target
    outputs: list[tuple[str, list[int]]]  #: dtype and sizes of each
    quantize: str | None = None  #: what weights of products are stored as; None: as they are

    @property
    def state_bytes(self) -> int:
        """Enough for every target."""
        return max(each.state_bytes for each in self.objects.values())

    @property
    def state_align(self) -> int:
        return max(each.state_align for each in self.objects.values())


def write(path: Path, contents: Contents) -> None:
    """Writes all files, except those that need a missing program: a shared library needs a linker."""
    path.mkdir(parents=True, exist_ok=True)
    name = contents.name
    for target, each in contents.objects.items():
        (path / f"{name}.{target}.o").write_bytes(each.object)
        if each.assembly:
            (path / f"{name}.{target}.s").write_text(each.assembly)
    for library, (architecture, members) in _libraries(contents).items():
        (path / f"{library}.a").write_bytes(_C.package_archive(list(members.items()), architecture))
        _link(path / f"{library}.so", architecture, members)
    for file in ("weft_model.h", "weft_model.hpp"):
        text = importlib.resources.files("weft._packages").joinpath(file).read_text()
        (path / file).write_text(text)
    (path / f"{name}.h").write_text(
        c_text.header(
            name, contents.step, contents.outputs, contents.state_bytes, contents.state_align, contents.quantize
        )
    )
    (path / f"{name}.hpp").write_text(c_text.cpp_header(name))
    (path / "example.c").write_text(c_text.example(name, contents.step))
    (path / f"{name}Config.cmake").write_text(c_text.cmake(name))
    (path / f"{name}.json").write_text(json.dumps(_facts(contents), indent=2) + "\n")


def _libraries(contents: Contents) -> dict[str, tuple[str, dict[str, bytes]]]:
    """The architecture and the members of each library. All objects of x86-64 are one library, with the function that
    chooses among them. The library for this machine, or the only one, has the package's name alone."""
    name, known = contents.name, _C.package_targets()
    groups: dict[str, list[str]] = {}
    for target, architecture in known:
        if target in contents.objects:
            groups.setdefault("x86_64" if architecture == "x86_64" else target, []).append(target)
    libraries = {}
    host = dict(known)[_C.package_host()]
    for group, targets in groups.items():
        members = {}
        best_first = targets[::-1]
        if len(targets) > 1:
            members[f"{name}.choice.o"] = _C.package_choice(name, best_first)
        members |= {f"{name}.{target}.o": contents.objects[target].object for target in best_first}
        plain = len(groups) == 1 or group == host
        libraries[f"lib{name}" if plain else f"lib{name}-{group}"] = (dict(known)[targets[0]], members)
    return libraries


def _link(library: Path, architecture: str, members: dict[str, bytes]) -> None:
    """Links a shared library, by the first linker that can: LLVM's can for all architectures, GNU's for one."""
    library.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in members.items():
            (Path(folder) / name).write_bytes(data)
        for linker in ("ld.lld", "ld.lld-19", f"{architecture}-linux-gnu-ld", "ld"):
            if (program := shutil.which(linker)) is None:
                continue
            command = [
                program,
                "-shared",
                "-soname",
                library.name,
                "--gc-sections",
                # Binds the library's calls of its own functions when it is linked or loaded, not by a thread's first
                # call.
                "-Bsymbolic",
                "-z",
                "now",
                "-z",
                "noexecstack",
                "-o",
                str(library.absolute()),
                *members,
            ]
            if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0:
                return
            library.unlink(missing_ok=True)


def _facts(contents: Contents) -> dict[str, object]:
    def tensors(named: dict[str, Tensor]) -> list[dict[str, object]]:
        return [
            {"name": name, "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)} for name, tensor in named.items()
        ]

    first = next(iter(contents.objects.values()))
    return {
        "name": contents.name,
        "abi": ABI,
        "weft": _C.__version__,
        "fingerprint": f"{first.fingerprint:016x}",
        "inputs": tensors(contents.step.inputs),
        "outputs": [
            {"name": name, "dtype": dtype, "shape": sizes}
            for name, (dtype, sizes) in zip(contents.step.outputs, contents.outputs, strict=True)
        ],
        "states": tensors(contents.step.states),
        **({} if contents.step.lags is None else {"chunk": contents.step.chunk, "lags": contents.step.lags}),
        "saved_bytes": first.saved_bytes,
        "weights": {
            "stored_as": contents.quantize or "as given",
            "count": first.weights,
            "bytes": first.weight_bytes,
        },
        "targets": {
            target: {
                "object": f"{contents.name}.{target}.o",
                "bytes": len(each.object),
                "state_bytes": each.state_bytes,
                "state_align": each.state_align,
            }
            for target, each in contents.objects.items()
        },
    }
