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

FOLDER = Path(__file__).resolve().parents[2] / "packages"
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
    flags: tuple[str, ...] = ("-static",)

    @property
    def missing(self) -> list[str]:
        return [each for each in (self.compiler, *self.run[:1]) if shutil.which(each) is None]

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """The command that runs a program."""
        return [*self.run, str(program), *arguments]


class Microcontroller(Machine):
    """A target without an operating system, emulated with files of this machine."""

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        words = ",".join(f"arg={word}" for word in (program.name, *arguments))
        config = f"enable=on,target=native,{words}"
        return [*self.run, "-nographic", "-monitor", "none", "-semihosting-config", config, "-kernel", str(program)]


def _cortex(cpu: str, fpu: str, board: str) -> Microcontroller:
    flags = ("-mthumb", f"-mcpu={cpu}", "-mfloat-abi=hard", f"-mfpu={fpu}", "--specs=rdimon.specs")
    files = (f"-T{FOLDER / 'cortex_m.ld'}", str(FOLDER / "cortex_m.c"))
    return Microcontroller("arm-none-eabi-gcc", ("qemu-system-arm", "-M", board), (*flags, *files))


AARCH64 = Machine("aarch64-linux-gnu-gcc", ("qemu-aarch64",))
MACHINES = {
    "aarch64": AARCH64,
    "riscv64": Machine("riscv64-linux-gnu-gcc", ("qemu-riscv64",)),
    "cortex-m4": _cortex("cortex-m4", "fpv4-sp-d16", "mps2-an386"),
    "cortex-m7": _cortex("cortex-m7", "fpv5-sp-d16", "mps2-an500"),
    "cortex-m7-f64": _cortex("cortex-m7", "fpv5-d16", "mps2-an500"),
    "wasm32": Machine("wasm-ld-19", ("node",)),
}
MACHINES_BYTES = {**MACHINES, "aarch64-dotprod": AARCH64}
#: All that this machine runs; some differ from others in products of bytes alone.
NATIVE_BYTES = [name for name, _ in _C.package_targets() if _C.package_runs(name)]
NATIVE = [name for name in NATIVE_BYTES if not name.endswith("vnni") and not name.endswith("dotprod")]


def machine_of(target: str) -> Machine:
    """Skips the test where it can't be run here."""
    machine = MACHINES_BYTES.get(target, Machine("cc"))
    if machine.missing:
        pytest.skip(f"{target} needs {', '.join(machine.missing)}")
    return machine


def build(folder: Path, source: Path, target: str) -> Path:
    """A program of a file of tests/packages and the package in `folder`."""
    machine, name = machine_of(target), folder.name
    program = folder / f"{source.stem}.{target}"
    command = [machine.compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-DMODEL={name}_model"]
    command += ["-I", str(folder), str(source), str(folder / f"{name}.{target}.o"), *machine.flags, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def _command(folder: Path, target: str, arguments: list[str]) -> list[str]:
    """The command that runs the driver of a package."""
    if target != "wasm32":
        return machine_of(target).command(build(folder, FOLDER / "driver.c", target), arguments)
    machine, module = machine_of(target), folder / "model.wasm"
    exports = [f"--export={folder.name}_model", "--export=__heap_base", "--export-table"]
    link = [machine.compiler, "--no-entry", *exports, str(folder / f"{folder.name}.wasm32.o"), "-o", str(module)]
    subprocess.run(link, check=True, capture_output=True)
    return machine.command(FOLDER / "wasm.mjs", [str(module), folder.name, *arguments])


def run(
    folder: Path,
    target: str,
    inputs: Sequence[Tensor],
    steps: int,
    outputs: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> list[Tensor]:
    """The outputs of the package's steps by tests/packages/driver.c, which checks chunks, saving and restoring too."""
    given, made = folder / "in.bin", folder / "out.bin"
    given.write_bytes(b"".join(_bytes(tensor) for tensor in inputs))
    command = _command(folder, target, [str(steps), given.name, made.name])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
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
    """The package's library, loaded from a copy: a loaded file must not change."""
    place = tmp_path_factory.mktemp("library") / f"lib{folder.name}.so"
    shutil.copy(folder / f"lib{folder.name}.so", place)
    return weft.load(place)
