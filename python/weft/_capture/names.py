"""The user's name of a tensor that the user's function reads from outside, for messages."""

from __future__ import annotations

import dis
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

_MAX_DEPTH = 6


def name_of(tensor: Tensor, functions: tuple[Callable[..., Any], ...]) -> str:
    """The tensor's path from a variable of the functions, as `norm.running_mean`; "" if it isn't found."""
    seen: set[int] = set()
    for function in functions:
        for path, value in _variables(function):
            if (found := _path(tensor, value, path, seen, 0)) is not None:
                return found
    return ""


def line_of(name: str, functions: tuple[Callable[..., Any], ...]) -> str:
    """The first line of the functions that mentions the variable, as " (train.py:12)"; "" if none does."""
    root = re.split(r"[.\[]", name, maxsplit=1)[0]
    for function in functions:
        function = getattr(function, "forward", function) if isinstance(function, torch.nn.Module) else function
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        line = 0
        for instruction in dis.get_instructions(code) if code is not None else ():
            line = (
                instruction.starts_line or line
                if not isinstance(instruction.starts_line, bool)
                else (
                    instruction.line_number or line  # type: ignore[attr-defined]
                )
            )
            if root and instruction.argval == root:
                return f" ({code.co_filename.rsplit('/', 1)[-1]}:{line})"
    return ""


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    """The variables that the function can access by name: its closure, the globals that its code mentions, its
    `self`."""
    if isinstance(function, functools.partial):
        yield from _variables(function.func)
        yield from ((f"argument {i}", value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
        return
    receiver = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    if receiver is not None:
        yield from vars(receiver).items() if not isinstance(receiver, torch.nn.Module) else [("self", receiver)]
        function = getattr(type(function), "forward", None) if function is receiver else function
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
    yield from zip(code.co_varnames[-len(function.__defaults__ or ()) :], function.__defaults__ or (), strict=False)


def _path(tensor: Tensor, value: Any, path: str, seen: set[int], depth: int) -> str | None:
    if value is tensor:
        return path
    if id(value) in seen or depth > _MAX_DEPTH:
        return None
    seen.add(id(value))
    for step, item in _parts(value):
        if (found := _path(tensor, item, path + step, seen, depth + 1)) is not None:
            return found
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.nn.Module):
        named = (*value.named_parameters(), *value.named_buffers())
        yield from ((f".{name}", item) for name, item in named)
    if isinstance(value, list | tuple):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif callable(value) and not isinstance(value, type | torch.nn.Module):
        yield from ((f".{name}", item) for name, item in _variables(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type | Tensor) and type(value).__module__ != "builtins":
        yield from ((f".{name}", item) for name, item in vars(value).items())
