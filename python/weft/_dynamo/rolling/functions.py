"""Dynamo's operator for a call of a torch.autograd.Function, which has two graphs, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from weft._base.errors import UnsupportedError
from weft._base.torch_private import autograd_function_apply


def is_function(target: Any) -> bool:
    return target is autograd_function_apply


def apply(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    *args: Any,
    non_differentiable_idx: Any = (),
    dirty_idx: Any = (),
    **_: Any,
) -> Any:
    """The operator, run as a Function. PyTorch's kernel would keep the saved tensors in a cell of its own, beyond the
    call."""
    if dirty_idx:
        raise UnsupportedError("a torch.autograd.Function that changes its inputs in place")
    return _Applied.apply(forward, backward, tuple(non_differentiable_idx), *args)


class _Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: fx.GraphModule, backward: fx.GraphModule, fixed: tuple[int, ...], *args: Any) -> Any:
        results, ctx.saved = fx.Interpreter(forward).run(*args)
        ctx.graph = backward
        outputs = results if isinstance(results, list | tuple) else [results]
        ctx.mark_non_differentiable(*(outputs[i] for i in fixed))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        found = fx.Interpreter(ctx.graph).run(*gradients, *ctx.saved)
        return None, None, None, *(found if isinstance(found, list | tuple) else [found])
