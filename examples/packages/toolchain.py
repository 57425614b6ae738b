"""Builds and runs the examples' programs with the machine's compilers, which CC and CXX name as usual."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def tool(name: str) -> str:
    """The path of a program.

    Raises:
        FileNotFoundError: it isn't installed.
    """
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"this example needs {name}, which is not installed")
    return found


def check_tools(*names: str) -> None:
    """Checks that all of these programs are installed, before a model is trained in vain.

    Raises:
        FileNotFoundError: some aren't installed.
    """
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise FileNotFoundError(f"this example needs {', '.join(missing)}, which this machine lacks")


def compiler(is_cpp: bool = False) -> list[str]:
    """The command of the C or the C++ compiler."""
    return shlex.split(os.environ.get("CXX", "c++") if is_cpp else os.environ.get("CC", "cc"))


def build(output: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compiles and links files of C11 or, if one ends in .cpp, C++17. Warnings are errors.

    Raises:
        FileNotFoundError: there is no compiler.
        RuntimeError: with what the compiler says.
    """
    is_cpp = any(source.suffix == ".cpp" for source in sources)
    program, *options = compiler(is_cpp)
    standard = "-std=c++17" if is_cpp else "-std=c11"
    files = [str(source) for source in sources]
    command = [tool(program), *options, standard, "-O2", *WARNINGS, *files, *flags, "-o", str(output)]
    output.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}:\n{done.stderr}")
    return output


def run(command: Sequence[str | Path], given: bytes | None = None) -> bytes:
    """Runs a program; returns its output.

    Raises:
        RuntimeError: it fails; the message has its output.
    """
    done = subprocess.run([str(word) for word in command], input=given, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{Path(command[0]).name} ends with status {done.returncode}: {said}")
    return done.stdout


def pipe(program: Path, x: Tensor) -> tuple[Tensor, str]:
    """Pipes samples, [T], through a program as floats. Returns its samples, and its messages.

    Raises:
        RuntimeError: it fails; the message has its output.
    """
    done = subprocess.run([str(program)], input=x.numpy().tobytes(), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} ends with status {done.returncode}: {done.stderr.decode()}")
    return torch.from_numpy(np.frombuffer(done.stdout, np.float32).copy()), done.stderr.decode().strip()


def command_line(description: str | None, output: str, seconds: float) -> argparse.ArgumentParser:
    """The options of all examples: how long to train, and where to write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds, help="of training")
    parser.add_argument("--output", type=Path, default=Path("out") / output)
    return parser
