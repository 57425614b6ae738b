"""What Weft changes in PyTorch's process-wide state, and how it takes that back.

- `aten::gru`, `lstm`, `rnn_tanh` and `rnn_relu` (the forms `input` and `data`, for packed sequences) and the single
  steps `gru_cell` and so on get kernels for CPU and AutogradCPU (`_C` registers them). They stay registered; disabled,
  they call what PyTorch would have called.
- While tracing, PyTorch decomposes these ops in Python, step by step; those decompositions ask Weft first.
- `torch._dynamo.config.allow_rnn` defaults to True: Dynamo then traces recurrent modules instead of refusing them.
- `torch.compiler.config.cache_key_tag` gets a suffix: PyTorch's compile cache on disk is keyed by the graph before our
  kernels are in it, so without the suffix it would mix runs with and without Weft.
- PyTorch's control flow operators (`torch._higher_order_ops.scan` and its kin) ask Weft first: `weft._higher_order`.
- Dynamo knows how to write a `weft.scan` as PyTorch's: `weft._under_dynamo`.
- `torch.ops.weft.call` has a rule for vmap and a formula for torch.utils.flop_counter.
- `FlopCounterMode`, and `ExportedProgram.run_decompositions` where lengths are fixed, are wrapped: within them modules
  are PyTorch's, so that both give what they give without Weft.

PyTorch's settings are thread-local; their defaults are not, so the defaults are what changes here.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils._config_module import _UNSET_SENTINEL

from weft import _C, _decompositions, _flops, _fork, _higher_order, _vmap  # noqa: F401  _vmap registers its rule
from weft._when_imported import when_imported

_OVERRIDDEN = _decompositions.OVERRIDDEN
_TAG = f"weft-{_C.__version__}"

_lock = threading.RLock()
_fork.hold_across_fork(_lock, _fork.SWITCH)
_undo: dict[tuple[str, str], Any] = {}


def enable() -> None:
    """Run `nn.GRU`, `nn.LSTM` and `nn.RNN` on Weft from now on, in every thread; the state after `import weft`."""
    with _lock:
        _C.set_enabled(True)
        _set_default(
            torch.compiler.config, "cache_key_tag", _with_tag(_default(torch.compiler.config, "cache_key_tag"))
        )
        when_imported("torch._dynamo.config", _allow_rnn)
        _higher_order.disable()
        _higher_order.enable()
        _forget_dispatch()


def disable() -> None:
    """Leave `nn.GRU`, `nn.LSTM` and `nn.RNN` to PyTorch from now on, in every thread.

    Undoes every change of PyTorch's state listed above. A graph that was compiled before keeps what it captured.
    """
    with _lock:
        _C.set_enabled(False)
        for (module, name), value in _undo.items():
            _write_default(sys.modules[module], name, value)
        _undo.clear()
        _higher_order.disable()
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
    """As config.patch, which however leaves the value before as this thread's own, whatever the default becomes."""
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
    return entry.default if entry.env_value_default is _UNSET_SENTINEL else entry.env_value_default


def _set_default(config: ModuleType, name: str, value: Any) -> None:
    if (config.__name__, name) in _undo:
        return
    _undo[config.__name__, name] = _default(config, name)
    _write_default(config, name, value)


def _write_default(config: ModuleType, name: str, value: Any) -> None:
    """A new default for all threads, in the place that an environment variable's value has."""
    config._config[name].env_value_default = value
    _mark_changed(config, name)


def _mark_changed(config: ModuleType, name: str) -> None:
    config._hash_dirty_var.set(True)
    config._mark_get_dict_dirty(name)


def _name_to_dynamo(higher_order_ops: ModuleType) -> None:
    from weft import _under_dynamo

    _under_dynamo.install(higher_order_ops)


def _forget_dispatch() -> None:
    """What was traced before may have left the old kernels in PyTorch's caches."""
    for name in _OVERRIDDEN:
        recurrence = getattr(torch.ops.aten, name)
        step = getattr(torch.ops.aten, f"{name}_cell")
        for op in (recurrence.input, recurrence.data, step.default):
            op._dispatch_cache.clear()
    if (fake := sys.modules.get("torch._subclasses.fake_tensor")) is not None:
        fake.FakeTensorMode.cache_clear()


when_imported("torch.utils.flop_counter", _flops.install)
when_imported("torch._decomp.decompositions", _decompositions.install)
when_imported("torch._dynamo.variables.higher_order_ops", _name_to_dynamo)
when_imported("torch.export.exported_program", _decompositions.keep_exported)
if _C.enabled():  # WEFT=0 says no
    enable()
