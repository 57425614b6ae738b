"""Weft switched on and off: `weft.enable`, `disable`, `disabled`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from weft import _C
from weft._base import fork, torch_private
from weft._base.import_hooks import when_imported
from weft._base.torch_private import UNSET_SENTINEL
from weft._patches import (
    compiled_functions,
    flop_counter,
    higher_order_kernels,
    onnx_recurrent,
    rnn_decompositions,
    variable_functions,
    vmap,  # noqa: F401  registers its rule
)

_OVERRIDDEN = rnn_decompositions.OVERRIDDEN
_TAG = f"weft-{_C.__version__}"

_lock = threading.RLock()
fork.hold_across_fork(_lock, fork.SWITCH)
_undo: dict[tuple[str, str], Any] = {}


def enable() -> None:
    """Run `nn.GRU`, `nn.LSTM` and `nn.RNN` on Weft from now on, in every thread; the state after `import weft`."""
    with _lock:
        _C.set_enabled(True)
        _set_default(
            torch.compiler.config, "cache_key_tag", _with_tag(_default(torch.compiler.config, "cache_key_tag"))
        )
        when_imported("torch._dynamo.config", _allow_rnn)
        higher_order_kernels.disable()
        higher_order_kernels.enable()
        compiled_functions.enable()
        variable_functions.enable()
        _forget_dispatch()


def disable() -> None:
    """Leave `nn.GRU`, `nn.LSTM` and `nn.RNN` to PyTorch from now on, in every thread.

    Undoes every change of PyTorch's state listed in `weft._patches`. A graph that was compiled before keeps what it
    captured.
    """
    with _lock:
        _C.set_enabled(False)
        for (module, name), value in _undo.items():
            _write_default(sys.modules[module], name, value)
        _undo.clear()
        higher_order_kernels.disable()
        compiled_functions.disable()
        variable_functions.disable()
        _forget_dispatch()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Within the context, in this thread, `nn.GRU`, `nn.LSTM` and `nn.RNN` run and trace as they would without Weft."""
    with contextlib.ExitStack() as stack:
        for (module, name), value in list(_undo.items()):
            stack.enter_context(_overridden(sys.modules[module], name, value))
        _C.enter_disabled()
        stack.callback(_C.exit_disabled)
        yield


@contextlib.contextmanager
def _overridden(config: ModuleType, name: str, value: Any) -> Iterator[None]:
    """config.patch, but without leaving a value of this thread's own: afterwards the default applies again, even if it
    has changed meanwhile."""
    variable = config._config[name].user_override
    token = variable.set(value)
    _mark_changed(config, name)
    try:
        yield
    finally:
        variable.reset(token)
        _mark_changed(config, name)


def _with_tag(tag: str) -> str:
    return f"{tag}+{_TAG}" if tag else _TAG


def _allow_rnn(config: ModuleType) -> None:
    with _lock:
        if _C.enabled():
            _set_default(config, "allow_rnn", True)


def _default(config: ModuleType, name: str) -> Any:
    entry = config._config[name]
    return entry.default if entry.env_value_default is UNSET_SENTINEL else entry.env_value_default


def _set_default(config: ModuleType, name: str, value: Any) -> None:
    if (config.__name__, name) in _undo:
        return
    _undo[config.__name__, name] = _default(config, name)
    _write_default(config, name, value)


def _write_default(config: ModuleType, name: str, value: Any) -> None:
    """Writes a new default for all threads, in the place where an environment variable's value stands."""
    config._config[name].env_value_default = value
    _mark_changed(config, name)


def _mark_changed(config: ModuleType, name: str) -> None:
    config._hash_dirty_var.set(True)
    config._mark_get_dict_dirty(name)


def _name_to_dynamo(_: ModuleType) -> None:
    from weft._control import under_dynamo

    under_dynamo.install()


def _forget_dispatch() -> None:
    """Forgets the old kernels, which earlier traces may have left in PyTorch's caches."""
    for name in _OVERRIDDEN:
        recurrence = getattr(torch.ops.aten, name)
        step = getattr(torch.ops.aten, f"{name}_cell")
        for op in (recurrence.input, recurrence.data, step.default):
            op._dispatch_cache.clear()
    torch_private.forget_fake_dispatch()


when_imported("torch.utils.flop_counter", flop_counter.install)
when_imported(torch_private.DECOMPOSITIONS, rnn_decompositions.install)
when_imported(torch_private.DYNAMO_HIGHER_ORDER, _name_to_dynamo)
when_imported("torch.export.exported_program", rnn_decompositions.keep_exported)
when_imported(torch_private.ONNX_REGISTRATION, onnx_recurrent.install)
if _C.enabled():  # WEFT=0 keeps Weft disabled
    enable()
