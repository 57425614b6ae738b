"""`weft.package`: a trained step as a folder that C, C++ and others link."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from weft import _C
from weft._base.words import did_you_mean
from weft._packages import folder
from weft._packages.steps import WHAT, step_of


def package(
    model: nn.Module | Callable[..., Any],
    example: Any,
    output: str | Path,
    *,
    targets: str | Sequence[str] | None = None,
    name: str | None = None,
    assembly: bool = False,
) -> Path:
    """Writes a trained recurrence as object files with a C header, which need no Python, no PyTorch, no Weft. ::

        gru = nn.GRU(1, 32)
        weft.package(gru, torch.randn(100, 1), "amp", targets=["x86-64-v3", "aarch64"])

        def step(carry, x): ...
        weft.package(step, (carry, x), "filter")

    Args:
        model: an `nn.GRU`, `nn.LSTM` or `nn.RNN` of one direction, or a step as weft.scan takes it: any function
            `carry, y = step(carry, x)` on pytrees. It computes one step; what it does with tensors from outside alone,
            such as parameters, is computed now.
        example: of a module an input of it; of a step the tuple (carry, x) of its first call. Sizes are those of the
            example; the carry's values are those that a state has after its reset.
        output: the folder to write. It gets `NAME.h`, `NAME.hpp`, an object file for each target, an archive
            (`libNAME.a`), a shared library where there is a linker (`libNAME.so`), `NAME.json`, `NAMEConfig.cmake` and
            `example.c`. What lies there by these names is overwritten.
        targets: machines by name ("x86-64", "x86-64-v3", "x86-64-v4", "aarch64", "riscv64", "cortex-m4", "cortex-m7",
            "cortex-m33", "wasm32"); the one that runs this if nothing is said. Of several x86-64 the library chooses
            the best that the processor has, when it is asked for the model.
        name: the prefix of all names in C; the folder's name if nothing is said.
        assembly: write the machine code as text, too.

    Returns:
        The folder.

    Raises:
        TypeError: `model` is nothing that has steps, or `example` isn't one of it.
        ValueError: an unknown target, or a name that C can't have.
        RuntimeError: the step can't be packaged; which operation of it, and why.
    """
    path = Path(output)
    prefix = path.name if name is None else name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise ValueError(f"{WHAT}: {prefix!r} is no name in C, which the package's functions begin with: give another")
    wanted = _targets(targets)
    step = step_of(model, example)
    compiled = step.model(prefix)
    objects = {target: folder.Object(**compiled.compile(target, assembly)) for target in wanted}
    folder.write(path, folder.Contents(prefix, step, objects))
    return path


def _targets(given: str | Sequence[str] | None) -> list[str]:
    known = [name for name, _ in _C.package_targets()]
    names = [_C.package_host()] if given is None else [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{WHAT}: there is no target {name!r}{hint}")
    if not names:
        raise ValueError(f"{WHAT}: targets is empty: name at least one machine")
    return list(dict.fromkeys(names))


__all__ = ["package"]
