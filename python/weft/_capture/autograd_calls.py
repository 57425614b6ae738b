"""Calls that ask something of autograd and leave no operation behind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import torch_private
from weft._base.errors import UnsupportedError

#: The error's words for a hook that PyTorch has since 2.14. Under Weft the hook would see autograd's nodes of a
#: program, not those of the step.
NODES_WATCHED = "a hook on the creation of autograd's nodes (torch.autograd.graph.node_creation_hook)"

_installed = False


def install() -> None:
    """From now on checks these calls within a recording."""
    global _installed
    if _installed:
        return
    torch_private.replace_engine_run_backward(lambda backward: _watched(backward, _look_at_backward))
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        setattr(Tensor, name, _watched(getattr(Tensor, name), _look_at_hook))
    hooks = torch.autograd.graph.saved_tensors_hooks
    hooks.__enter__ = _watched(hooks.__enter__, _look_at_saved)  # type: ignore[method-assign]
    if nodes := getattr(torch.autograd.graph, "node_creation_hook", None):
        nodes.__enter__ = _watched(nodes.__enter__, _refuse_watched_nodes)
    saved = torch_private.SavedTensor
    saved.register_hooks = _watched(saved.register_hooks, _look_at_saved)
    _installed = True  # last: another thread must not record before all calls are watched


def _watched(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if _C.recording():
            look(*args, **kwargs)
        return function(*args, **kwargs)

    return watched


def _look_at_backward(
    outputs: Any,
    grad_tensors: Any = None,
    keep_graph: Any = None,
    create_graph: Any = None,
    inputs: Any = (),
    *_: Any,
    accumulate_grad: bool = False,
    **__: Any,
) -> None:
    tensors = [output for output in outputs if isinstance(output, Tensor)]
    wanted = [x for x in inputs or () if isinstance(x, Tensor)]
    _C.refuse_backward(tensors, wanted, accumulate_grad)


def _look_at_hook(tensor: Any, *_: Any, **__: Any) -> None:
    if _C.is_from_outside(tensor) and not torch_private.is_functorch_wrapped_tensor(tensor):
        raise UnsupportedError("a hook on the gradient of a tensor from outside")


def _look_at_saved(hooks: Any, *_: Any, **__: Any) -> None:
    # Hooks that unpack exactly the values that they packed.
    same = (*torch_private.hooks_of_checkpoints(), torch.autograd.graph.save_on_cpu)
    if not isinstance(hooks, same):
        raise UnsupportedError("hooks on what autograd saves (saved_tensors_hooks)")


def _refuse_watched_nodes(*_: Any) -> None:
    raise UnsupportedError(NODES_WATCHED)
