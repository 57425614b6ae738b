"""Work of PyTorch's own that no result depends on, and that takes a tenth of the tests' time: it is left out here.

What a release calls otherwise, or no longer does, is left as it is.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from weft._base.import_hooks import when_imported


class _WithoutStacks:
    """The module `traceback`, except that no call has a stack."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def format_stack(self) -> list[str]:
        return []


def _seeds_without_stacks() -> None:
    """torch.manual_seed keeps the seed for each kind of device that isn't there, in case it is started later, with the
    stack of the call as text: that takes 1 ms, a hundred times as long as the seed."""
    for kind in ("cuda", "xpu", "mtia"):
        module = getattr(torch, kind, None)
        if getattr(module, "traceback", None) is traceback:
            module.traceback = _WithoutStacks()


def _stacks_without_columns(exc: ModuleType) -> None:
    """At each break of a graph Dynamo keeps the stack of the call for its message, and for the marks below its lines it
    lists the places of all instructions of each function on it; under pytest there are forty of them."""

    def extract() -> traceback.StackSummary:
        stack = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe(1)), lookup_lines=False)
        stack.reverse()
        return stack

    if hasattr(exc, "_extract_stack_with_positions"):
        exc._extract_stack_with_positions = extract


def _lines_without_functions(convert: ModuleType) -> None:
    """Dynamo splits each file whose lines it follows into tokens, to say in its log which function a line is in."""
    if hasattr(convert, "get_funcname"):
        convert.get_funcname = lambda *_: None


def _untimed_guards(guards: ModuleType) -> None:
    """Dynamo measures how long the guards of each graph take, for its log, after it has emptied the caches: 20 ms."""
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0


def _composites_found_once(utils: ModuleType) -> None:
    """A decomposition of an exported program looks up all composite operators of C++ once for each of 25 libraries.
    They are looked up again when there are others than last time."""
    if not hasattr(utils, "_materialize_cpp_cia_ops"):
        return
    look_up: Callable[[], None] = utils._materialize_cpp_cia_ops
    known: list[str] = []

    @functools.wraps(look_up)
    def look_up_others() -> None:
        nonlocal known
        there = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if there != known:
            look_up()
            known = there

    utils._materialize_cpp_cia_ops = look_up_others


def leave_out() -> None:
    """To be called once in a process."""
    _seeds_without_stacks()
    when_imported("torch._dynamo.exc", _stacks_without_columns)
    when_imported("torch._dynamo.symbolic_convert", _lines_without_functions)
    when_imported("torch._dynamo.guards", _untimed_guards)
    when_imported("torch._export.utils", _composites_found_once)
