"""`weft.package`: a trained step as a folder that C, C++ and others link."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from weft import _C
from weft._base.errors import raise_if_internal
from weft._base.words import did_you_mean
from weft._packages import folder
from weft._packages.c_text import CPP_KEYWORDS
from weft._packages.models import step_of_model
from weft._packages.steps import WHAT, Step, step_of
from weft._streaming.capture import Time


def package(
    model: nn.Module | Callable[..., Any],
    example: Any,
    output: str | Path,
    *,
    targets: str | Sequence[str] | None = None,
    name: str | None = None,
    assembly: bool = False,
    time: Time = None,
    delay: int = 0,
    quantize: str | None = None,
) -> Path:
    """Writes a trained recurrence as object files with a C header, which need no Python, no PyTorch, no Weft. ::

        gru = nn.GRU(1, 32)
        weft.package(gru, torch.randn(100, 1), "amp", targets=["x86-64-v3", "aarch64"])

        def step(carry, x): ...
        weft.package(step, (carry, x), "filter")

        denoiser = nn.Sequential(nn.Conv1d(...), ...).eval()
        weft.package(denoiser, torch.randn(1, 16, 100), "denoiser", time=2)

    Args:
        model: an `nn.GRU`, `nn.LSTM` or `nn.RNN` of one direction, or a step as weft.scan takes it: any function
            `carry, y = step(carry, x)` on pytrees. Or a model over whole sequences, any other module, which becomes a
            step as by weft.stream. What it does with tensors from outside alone, such as parameters, is computed now.
        example: of a module an input of it, or the tuple of its arguments; of a step the tuple (carry, x) of its first
            call. Sizes are those of the example; the carry's values are those that a state has after its reset.
        output: the folder to write. It gets `NAME.h`, `NAME.hpp`, an object file for each target, an archive
            (`libNAME.a`), a shared library where there is a linker (`libNAME.so`), `NAME.json`, `NAMEConfig.cmake` and
            `example.c`. What lies there by these names is overwritten.
        targets: machines by name ("x86-64", "x86-64-v3", "x86-64-v4", "aarch64", "riscv64", "cortex-m4", "cortex-m7",
            "cortex-m7-f64", "cortex-m33", "wasm32"; for "int8-dynamic" "x86-64-v3-avxvnni", "x86-64-v4-vnni" and
            "aarch64-dotprod" too, which have instructions for it); the one that runs this if nothing is said. Of
            several x86-64 the library chooses the best that the processor has, when it is asked for the model.
        name: the prefix of all names in C; the folder's name if nothing is said.
        assembly: write the machine code as text, too.
        time: of a model over whole sequences the dim that its steps are in, 1 if nothing is said; as weft.stream's.
            With it a function is such a model, too, and a module whose example is a tuple of two no step.
        delay: of such a model how many steps a result may lag behind the inputs that it needs; NAME.json has the lag of
            each output.
        quantize: "int8", "bfloat16" or "float16": the type in which the objects store the float32 weights of products,
            which are rounded to it (int8 as by weft.quantize, with a float32 scale for each output). Steps widen them
            in registers and compute in float32; biases, states and all else stay as they are. "int8-dynamic" stores
            weights as int8 does, and rounds the other factor of a product too, each row at each step by its largest
            element: products by weights of at least 16 inputs and 32 outputs multiply bytes and add up in 32 bits.

    Returns:
        The folder.

    Raises:
        TypeError: `model` is nothing that has steps, or `example` isn't one of it.
        ValueError: an unknown target or type of weights, or a name that C can't have.
        RuntimeError: the step can't be packaged, or the model can't be a step; which operation of it, and why. Or its
            weights can't be stored as `quantize` says: they are of float64, not finite, too large, or there are none.
    """
    path = Path(output)
    prefix = path.name if name is None else name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise ValueError(f"{WHAT}: {prefix!r} is no name in C, which the package's functions begin with: give another")
    if prefix in CPP_KEYWORDS:
        raise ValueError(
            f"{WHAT}: {prefix!r} is a keyword of C++, where the package's functions are a namespace: give another name"
        )
    stored, activations = _stored(quantize)
    wanted = _targets(targets, activations == "i8")
    if _is_over_time(model, example, time):
        step = step_of_model(model, example, 1 if time is None else time, delay)
    else:
        step = _given_step(model, example)
    compiled = step.model(prefix, stored, activations)
    try:
        outputs = compiled.outputs()
        objects = {target: folder.Object(**compiled.compile(target, assembly)) for target in wanted}
    except RuntimeError as error:
        raise_if_internal(error)
        raise RuntimeError(_with_place(str(error), step)) from None
    folder.write(path, folder.Contents(prefix, step, objects, outputs, quantize))
    return path


def _is_over_time(model: Any, example: Any, time: Time) -> bool:
    if time is not None:
        return True
    is_step = isinstance(example, tuple) and len(example) == 2
    return isinstance(model, nn.Module) and not isinstance(model, nn.RNNBase | nn.RNNCellBase) and not is_step


def _given_step(model: Any, example: Any) -> Step:
    """The step, checked. An argument that is no step may be a model over time, for which `time=` is missing."""
    try:
        return step_of(model, example)
    except (TypeError, ValueError) as error:
        if not callable(model) or isinstance(model, nn.RNNBase | nn.RNNCellBase) or not str(error).startswith(WHAT):
            raise
        hint = "a model over whole sequences is packaged with time=, the dim that its steps are in"
        raise type(error)(f"{error} ({hint})") from None


def _with_place(message: str, step: Step) -> str:
    """A refusal of an operation with the line that calls it: 'the step has the operation 'sort' (filter.py:7: ...)'."""
    found = re.search(r"the step has the operation '(?:extern' \(aten\.(\w+)\..*?\)|(\w+)')(?=, which)", message)
    place = step.place_of(f"aten::{found[1] or found[2]}") if found else ""
    return f"{message[: found.end()]} {place}{message[found.end() :]}" if found and place else message


#: What weights of products can be stored as and activations be rounded to, as types of the engine.
STORED = {"int8": ("i8", "f32"), "int8-dynamic": ("i8", "i8"), "bfloat16": ("bf16", "f32"), "float16": ("f16", "f32")}


def _stored(quantize: str | None) -> tuple[str, str]:
    if quantize is None:
        return "f32", "f32"
    if quantize not in STORED:
        names = ", ".join(map(repr, STORED))
        hint = did_you_mean(quantize, list(STORED)) if isinstance(quantize, str) else ""
        raise ValueError(f"{WHAT}: quantize should be one of {names} or None, got {quantize!r}{hint}")
    return STORED[quantize]


def _targets(given: str | Sequence[str] | None, multiplies_bytes: bool) -> list[str]:
    known = [name for name, _ in _C.package_targets()]
    names = [_C.package_host(multiplies_bytes)] if given is None else [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{WHAT}: there is no target {name!r}{hint}")
    if not names:
        raise ValueError(f"{WHAT}: targets is empty: name at least one machine")
    return list(dict.fromkeys(names))


__all__ = ["STORED", "package"]
