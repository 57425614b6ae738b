"""Packages built and run for the tests: natively, or under an emulator of another processor."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import weft
from weft import _C

FOLDER = Path(__file__).resolve().parents[1] / "packages"
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """How programs for a target are built and run here."""

    compiler: str
    run: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        return [each for each in (self.compiler, *self.run[:1]) if shutil.which(each) is None]


MACHINES = {
    "aarch64": Machine("aarch64-linux-gnu-gcc", ("qemu-aarch64",)),
    "riscv64": Machine("riscv64-linux-gnu-gcc", ("qemu-riscv64",)),
}
NATIVE = [
    name for name, architecture in _C.package_targets() if architecture == dict(_C.package_targets())[_C.package_host()]
]
NATIVE = NATIVE[: NATIVE.index(_C.package_host()) + 1]


def machine_of(target: str) -> Machine:
    """Skips the test where it can't be run here."""
    machine = MACHINES.get(target, Machine("cc"))
    if machine.missing:
        pytest.skip(f"{target} needs {', '.join(machine.missing)}")
    return machine


def build(folder: Path, source: Path, target: str, *flags: str) -> Path:
    """A program of a file of tests/packages and the package in `folder`."""
    machine, name = machine_of(target), folder.name
    program = folder / f"{source.stem}.{target}"
    command = [machine.compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-static", *flags]
    command += [
        f"-DMODEL={name}_model",
        "-I",
        str(folder),
        str(source),
        str(folder / f"{name}.{target}.o"),
        "-o",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(
    folder: Path,
    target: str,
    inputs: Sequence[Tensor],
    steps: int,
    outputs: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> list[Tensor]:
    """The outputs of the package's steps by tests/packages/driver.c, which checks chunks, saving and restoring too."""
    program = build(folder, FOLDER / "driver.c", target)
    given, made = folder / "in.bin", folder / "out.bin"
    given.write_bytes(b"".join(_bytes(tensor) for tensor in inputs))
    command = [*machine_of(target).run, str(program), str(steps), str(given), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    data, found = made.read_bytes(), []
    for dtype, shape in outputs.values():
        size = torch.Size((steps, *shape)).numel() * dtype.itemsize
        flat = torch.frombuffer(bytearray(data[:size]), dtype=torch.uint8)
        found.append(flat.view(dtype).reshape(steps, *shape))
        data = data[size:]
    assert not data
    return found


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@cache
def symbols(file: Path) -> list[tuple[str, str]]:
    """Kind and name of each symbol of an object."""
    text = subprocess.run(["nm", "-P", str(file)], capture_output=True, text=True, check=True).stdout
    return [(line.split()[1], line.split()[0]) for line in text.splitlines() if len(line.split()) > 1]


def loaded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> weft._packages.load.Model:
    """The package's library from a place of its own: a file that is loaded stays what it was."""
    place = tmp_path_factory.mktemp("library") / f"lib{folder.name}.so"
    shutil.copy(folder / f"lib{folder.name}.so", place)
    return weft.load(place)
