"""Random steps that do things to autograd: inner gradients, hooks, detaching, leaves, Functions, checkpoints."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

WIDTH = 3
#: Weft's message about a missing second derivative.
REFUSED = "weft: the second derivative through a hook"

Pool = list[Tensor]
Part = Callable[[Pool, Tensor], None]


class Scaled(torch.autograd.Function):
    """Sine with a derivative of its own, which reads the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        y = torch.sin(x)
        ctx.save_for_backward(x, y)
        ctx.by = by
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        return g * (ctx.by * torch.cos(x) + 0.1 * y), None


class Straight(torch.autograd.Function):
    """A step function with a straight-through derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": lambda a, b: torch.tanh(a + 0.3 * b),
    "sigmoid": lambda a, b: torch.sigmoid(a) * b,
    "exp": lambda a, b: torch.exp(-a * a) + b,
    "div": lambda a, b: a / (1 + b * b),
    "softmax": lambda a, b: torch.softmax(a, -1) - b,
    "log_softmax": lambda a, b: 0.2 * torch.log_softmax(a * b, -1),
    "norm": lambda a, b: a / (1 + b.norm()),
    "sqrt": lambda a, b: torch.sqrt(1 + a * a) * 0.5 - b,
    "mean": lambda a, b: a - (a * b).mean(),
    "where": lambda a, b: torch.where(a > b, a * b, b),
    "gelu": lambda a, b: torch.nn.functional.gelu(a) - 0.5 * b,
    "silu": lambda a, b: torch.nn.functional.silu(a + b),
    "cat": lambda a, b: torch.cat([a[1:], b[:1]]),
    "mse": lambda a, b: torch.nn.functional.mse_loss(a, b) * a,
    "half": lambda a, b: (a.float() + b.float()).to(a.dtype) * 0.5,
}


@dataclasses.dataclass
class Step:
    """A step: its functions, and the tensors that it captures."""

    parts: list[tuple[str, Part]]
    weights: list[Tensor]
    twice: bool = True  #: whether the step has second derivatives

    def __call__(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        pool = [h, x]
        for _, part in self.parts:
            part(pool, self.weights[0])
        return torch.tanh(pool[-1] + 0.3 * pool[-2] @ self.weights[1]), pool[-1] * pool[2]

    def __repr__(self) -> str:
        return " | ".join(name for name, _ in self.parts)


def make(seed: int) -> Step:
    """The step of this number."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((WIDTH,), (WIDTH, WIDTH))]
    step = Step([_plain(draw)], [w.mul_(0.5).requires_grad_() for w in weights])
    for _ in range(draw.randint(1, 4)):
        step.parts.append(draw.choice(_KINDS)(draw))
        if draw.random() < 0.5:
            step.parts.append(_plain(draw))
    return step


def _two(draw: random.Random) -> tuple[int, int]:
    return -draw.randint(1, 2), -draw.randint(1, 3)


def _function(draw: random.Random) -> tuple[str, Callable[[Tensor, Tensor], Tensor]]:
    return draw.choice(list(FUNCTIONS.items()))


def _at(pool: Pool, i: int) -> Tensor:
    return pool[max(i, -len(pool))]


def _plain(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    return name, lambda pool, w: pool.append(f(_at(pool, i) * w, _at(pool, j)))


def _inner(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    graph, lone = draw.random() < 0.8, draw.random() < 0.3

    def part(pool: Pool, w: Tensor) -> None:
        a, b = _at(pool, i), _at(pool, j)
        a = a * 1.0 if lone else a
        if not a.requires_grad:
            a = a.detach().requires_grad_()
        (g,) = grad((f(a, b) * w).sum(), a, create_graph=graph, retain_graph=True)
        pool.append(b - 0.3 * g)

    return f"grad of {name}{'' if graph else ' once'}", part


def _transform(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)

    def part(pool: Pool, w: Tensor) -> None:
        b = _at(pool, j)
        pool.append(b - 0.3 * torch.func.grad(lambda p: (f(p, b) * w).sum())(_at(pool, i)))

    return f"func.grad of {name}", part


def _hook(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    bound = draw.choice([0.01, 0.3])
    hooks: dict[str, Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]] = {
        "clamp": lambda a, w: lambda g: g.clamp(-bound, bound),
        "scale": lambda a, w: lambda g: 0.5 * g,
        "value": lambda a, w: lambda g: g * torch.sigmoid(a),
        "weight": lambda a, w: lambda g: g * w,
        "norm": lambda a, w: lambda g: g * (bound / (g.norm() + 1e-6)).clamp(max=1.0),
        "twice": lambda a, w: lambda g: torch.tanh(g) * 2,
        "detached": lambda a, w: lambda g: g * a.detach() + 0.5 * g,
        "not zero": lambda a, w: lambda g: g + 0.1,
    }
    kind, where = draw.choice(list(hooks)), draw.choice(["value", "value", "node", "argument", "result"])

    def part(pool: Pool, w: Tensor) -> None:
        a, b = _at(pool, i), _at(pool, j)
        z = f(a * w, b)
        hook = hooks[kind](a, w)
        if where == "value" and z.requires_grad:
            z.register_hook(hook)
        elif where == "node" and z.grad_fn is not None:
            z.grad_fn.register_prehook(lambda gs: tuple(None if g is None else hook(g) for g in gs))
        elif where == "argument" and pool[0].requires_grad:
            pool[0].register_hook(hook)
        elif where == "result" and z.grad_fn is not None:
            z.grad_fn.register_hook(lambda gs, _: tuple(None if g is None else 0.5 * g for g in gs))
        pool.append(z)

    return f"{kind} hook on {where} of {name}", part


def _stop(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    how = draw.choice(["detach", "detach_", "data", "no_grad", "leaf", "enable_grad", "requires_grad_"])

    def part(pool: Pool, w: Tensor) -> None:
        a, b = _at(pool, i), _at(pool, j)
        if how == "detach":
            a = f(a, b).detach() * w
        elif how == "detach_":
            z = f(a, b)
            a = z + z.detach_() * w
        elif how == "data":
            a = f(a.data, b) * a
        elif how == "no_grad":
            with torch.no_grad():
                z = f(a * w, b)
            a = z * a
        elif how == "leaf":
            p = a.detach().requires_grad_()
            (g,) = grad((f(p, b) ** 2).sum(), p, retain_graph=True)
            a = a - 0.1 * g + p * w
        elif how == "enable_grad":
            with torch.no_grad(), torch.enable_grad():
                a = f(a, b * w)
        else:
            z = f(a, b).detach()
            a = z.requires_grad_() * a
        pool.append(a)

    return f"{how} of {name}", part


def _own(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    straight, inner = draw.random() < 0.3, draw.random() < 0.4

    def part(pool: Pool, w: Tensor) -> None:
        a, b = _at(pool, i), _at(pool, j)
        z = Straight.apply(f(a * w, b)) if straight else Scaled.apply(f(a * w, b), 0.7)
        if inner and a.requires_grad and z.requires_grad:
            (g,) = grad(z.sum(), a, create_graph=True, retain_graph=True, allow_unused=True)
            z = z if g is None else z + g
        pool.append(z + 0.1 * a)

    return f"{'straight' if straight else 'scaled'} Function of {name}{', derived' if inner else ''}", part


def _checkpoint(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)

    def part(pool: Pool, w: Tensor) -> None:
        pool.append(checkpoint(f, _at(pool, i) * w, _at(pool, j), use_reentrant=False))

    return f"checkpoint of {name}", part


def _in_place(draw: random.Random) -> tuple[str, Part]:
    (name, f), (i, j) = _function(draw), _two(draw)
    how = draw.choice(["add_", "view", "buffer", "detached", "copy_", "after hook"])

    def part(pool: Pool, w: Tensor) -> None:
        a, b = _at(pool, i), _at(pool, j)
        z = a * w
        if how == "add_":
            z += b
        elif how == "view":
            z[1:] *= 0.5
            z[0] = b[0]
        elif how == "buffer":
            z = torch.zeros(WIDTH, dtype=a.dtype)
            z[:2] = a[1:]
            z[2] = b[0] * w[1]
        elif how == "detached":
            z = f(a, b).detach()
            z += a
        elif how == "copy_":
            z = z.clone()
            z[1:].copy_(f(a, b)[:2])
        elif z.requires_grad:
            z.register_hook(lambda g: g.clamp(-0.1, 0.1))
            z = z * 1.0
            z.add_(b)
        pool.append(f(z, b))

    return f"{how} in place, {name}", part


_KINDS: list[Callable[[random.Random], tuple[str, Part]]] = [
    _inner, _inner, _transform, _hook, _hook, _stop, _stop, _own, _checkpoint, _in_place,
]  # fmt: skip


def derivatives(how: Callable[..., Any], step: Step, length: int) -> tuple[list[Tensor], ...]:
    """Values, gradients by all inputs, and gradients of a function of these; none where Weft refuses them."""
    generator = torch.Generator().manual_seed(length)
    h = torch.randn(WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    xs = torch.randn(length, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    inputs = [h, xs, *step.weights]
    last, ys = how(step, h, xs)
    total = (last * torch.arange(1.0, WIDTH + 1)).sum() + (ys * ys).sum()
    first = _filled(grad(total, inputs, create_graph=True, allow_unused=True), inputs)
    squares = sum((g * g * (1 + i)).sum() for i, g in enumerate(first))
    second = [torch.zeros_like(x) for x in inputs]
    if isinstance(squares, Tensor) and squares.requires_grad:
        try:
            second = _filled(grad(squares, inputs, allow_unused=True), inputs)
        except RuntimeError as error:
            if REFUSED not in str(error):
                raise
            second = []
    return [last.detach(), ys.detach()], [g.detach() for g in first], second


def _filled(gradients: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]
