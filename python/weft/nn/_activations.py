"""Activations by name, and callables as the text of a program of one elementwise function.

The engine knows `NATIVE` itself. Every other name stands for a function of torch, which is captured like a callable
that the user gives: traced once with make_fx and written as IR, so that Weft differentiates it with the rest of the
step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft._base import torch_private

Activation = str | Callable[[Tensor], Tensor]

#: Activations that the engine computes itself.
NATIVE = ("sigmoid", "tanh", "relu", "hard_sigmoid", "identity")
_ALIASES = {
    "linear": "identity",
    "hardsigmoid": "hard_sigmoid",
    "hardtanh": "hard_tanh",
    "swish": "silu",
    "logsigmoid": "log_sigmoid",
    "hardswish": "hard_swish",
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hard_tanh": functional.hardtanh,
    "hard_swish": functional.hardswish,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "log_sigmoid": functional.logsigmoid,
    "mish": functional.mish,
    "relu6": functional.relu6,
    "selu": functional.selu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
}
#: All names, in the order in which errors list them.
NAMES = (*NATIVE, *_FUNCTIONS, *_ALIASES)

#: The dtypes in which a step may be computed, as the IR names them.
_DTYPES = {"f32": torch.float32, "f64": torch.float64}


def resolve(option: str, activation: Activation) -> dict[str, str]:
    """What the operator takes for an activation, by the dtype that is computed in ("f32", "f64"): a native name, or the
    text of a program.

    Raises:
        ValueError: a name that there isn't, or a callable that isn't elementwise or that the IR can't express.
        TypeError: neither a name nor a callable.
    """
    if isinstance(activation, str):
        name = _ALIASES.get(activation, activation)
        if name in NATIVE:
            return dict.fromkeys(_DTYPES, name)
        if name not in _FUNCTIONS:
            raise ValueError(
                f"{option}: there is no activation {activation!r}; there are {', '.join(NAMES)}, and any callable "
                "on tensors"
            )
        activation = _FUNCTIONS[name]
    elif not callable(activation):
        raise TypeError(f"{option} must be the name of an activation or a callable on tensors, not {activation!r}")
    if isinstance(activation, nn.Module) and next(activation.parameters(), None) is not None:
        raise ValueError(f"{option}: {type(activation).__name__} has parameters, which an activation can't have here")
    return {name: _captured(option, activation, dtype) for name, dtype in _DTYPES.items()}


def _captured(option: str, function: Callable[[Tensor], Any], dtype: torch.dtype) -> str:
    """The program of a callable of one [B,H]: y = f(x)."""
    from torch.fx.experimental.proxy_tensor import make_fx  # imports modules that `import weft` must not wait for

    from weft import _C
    from weft._base.errors import UnsupportedError, raise_if_internal
    from weft._capture.fx_nodes import Importer, Types, example_of

    label = getattr(function, "__name__", None) or type(function).__name__

    def refused(why: object) -> ValueError:
        return ValueError(
            f"{option}: {label} can't be an activation, an elementwise function of a tensor [B, H]: {why}"
        )

    example = torch.empty(3, 5, dtype=dtype, device="cpu")
    try:
        with torch.no_grad():
            graph = make_fx(
                lambda x: function(x),
                decomposition_table=_decompositions(),
                tracing_mode="symbolic",
                _allow_non_fake_inputs=True,
            )(example).graph
    except Exception as error:
        raise refused(f"tracing it failed: {error}") from error

    program = Importer(Types(halves=False))
    try:
        for node in graph.nodes:
            if node.op == "placeholder":
                program.value(node)
            elif node.op == "get_attr":
                raise refused("it reads a tensor that isn't its argument")
            elif node.op == "output":
                (result,) = node.args
            elif node.target is operator.getitem:
                raise refused(f"{node.args[0].target} returns several tensors")
            elif isinstance(example_of(node), Tensor):
                program.values[node] = program.operation(node.target, node)
    except (UnsupportedError, RuntimeError) as error:
        raise_if_internal(error)
        raise refused(error) from error

    (x,) = graph.find_nodes(op="placeholder")
    types = {node: str(program.region.type(value)) for node, value in program.values.items()}
    if types.get(result) != types[x]:
        raise refused(f"of a {dtype} tensor [B, H] it must return a {dtype} tensor [B, H]")
    finished = program.region.finish([program.values[result]])
    if not _C.is_elementwise(finished):
        raise refused("it isn't elementwise")
    return finished.text


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """ATen's activations in terms of the IR's ops. PyTorch's decompositions that overflow in the branch not taken,
    which would make the gradient NaN, are written anew."""
    aten = torch.ops.aten
    table = torch_private.get_decompositions(
        [
            aten.celu, aten.gelu, aten.hardsigmoid, aten.hardswish, aten.hardtanh, aten.leaky_relu, aten.mish,
            aten.relu6, aten.selu, aten.silu, aten.softshrink, aten.hardshrink, aten.threshold, aten.square,
            aten.addcmul, aten.addcdiv, aten.heaviside, aten.lerp, aten.rsub, aten.sgn, aten.clamp_min, aten.clamp_max,
        ]
    )  # fmt: skip
    return table | {
        aten.elu.default: _elu,
        aten.expm1.default: _expm1,
        aten.softplus.default: _softplus,
        aten.log_sigmoid_forward.default: lambda x: (-_softplus(-x), torch.zeros_like(x)),
        aten.clamp.default: _clamp,
    }


def _expm1(x: Tensor) -> Tensor:
    """expm1 for small x: exp(x) - 1 = 2 t / (1 - t) with t = tanh(x/2)."""
    t = torch.tanh(torch.minimum(x, torch.ones_like(x)) * 0.5)
    return torch.where(x < 1, 2 * t / (1 - t), torch.exp(x) - 1)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    t = torch.tanh(torch.minimum(x, torch.zeros_like(x)) * (0.5 * input_scale))
    return torch.where(x > 0, x * scale, 2 * t / (1 - t) * (alpha * scale))


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = x * beta
    small = torch.log1p(torch.exp(torch.minimum(scaled, torch.full_like(scaled, threshold)))) / beta
    return torch.where(scaled > threshold, x, small)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Exactly at the bounds the gradient passes, as in ATen's clamp."""
    if low is not None:
        x = torch.where(x < low, low, x)
    return x if high is None else torch.where(x > high, high, x)
