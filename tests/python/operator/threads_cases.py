"""Steps whose columns threads share, and the same call on one thread and on several: every bit must agree."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import weft

Step = Callable[[Any, Any], tuple[Any, Any]]
TEAMS = (2, 3, 7)  # more threads than there are cores


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gate(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A step that reads nothing of other columns, except a reduction in its results."""
    e = torch.tanh(0.5 * h + x)
    return e, (e * x).sum(1)


def relative(seed: int, width: int = 256, products: bool = False) -> Step:
    """A random relative of the gate: elementwise between steps, with reductions in the results, in a second carry, or
    in what the next carry is made of; with `products`, also matrix products."""
    draw = random.Random(seed)
    unary = [torch.tanh, torch.sigmoid, torch.relu, torch.neg, torch.sin]
    binary = [torch.add, torch.sub, torch.mul, torch.maximum]
    reduce: list[Callable[[Tensor], Tensor]] = [
        lambda v: v.mean(-1),
        lambda v: v.sum(-1) / 64,
        lambda v: v.amax(-1),
        lambda v: torch.linalg.vector_norm(v, dim=-1) / 16,
        lambda v: torch.softmax(v, -1)[:, 0],
    ]
    kinds = ["unary", "binary", "binary", "reduce"] + ["product"] * products
    plan = [draw.choice(kinds) for _ in range(draw.randint(2, 6))]
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=generator) / 16 for _ in plan]
    choices = [
        (draw.random(), draw.random(), draw.choice(unary), draw.choice(binary), draw.choice(reduce)) for _ in plan
    ]
    into_carry, second, count = draw.random() < 0.3, draw.random() < 0.5, draw.randint(1, 3)
    outputs = [(draw.random(), draw.choice(reduce), draw.random() < 0.6) for _ in range(count)]

    def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[Any, Any]:
        h, s = carry
        pool, sums = [h, x], [s]
        for i, (kind, (a, b, one, two, total)) in enumerate(zip(plan, choices, strict=True)):
            left, right = pool[int(a * len(pool))], pool[int(b * len(pool))]
            if kind == "unary":
                pool.append(one(left))
            elif kind == "binary":
                pool.append(two(left, right))
            elif kind == "reduce":
                sums.append(total(left))
            else:
                pool.append(left @ weights[i])
        after = torch.tanh(0.5 * h + pool[-1])
        if into_carry:
            after = after * torch.sigmoid(sums[-1]).unsqueeze(-1)
        pool.append(after)
        ys = [total(pool[int(a * len(pool))]) if reduces else pool[int(a * len(pool))] for a, total, reduces in outputs]
        return (after, torch.tanh(0.5 * s + sums[-1]) if second else s), ys

    return step


def results(function: Callable[..., Any], inputs: list[Tensor], training: bool) -> list[Tensor]:
    """Outputs, and with `training` the gradients of the inputs for fixed cotangents."""
    if training:
        inputs = [value.detach().requires_grad_() for value in inputs]
    outputs = [leaf for leaf in pytree.tree_leaves(function(*inputs)) if isinstance(leaf, Tensor)]
    found = [leaf.detach() for leaf in outputs]
    smooth = [leaf for leaf in outputs if leaf.requires_grad]
    if training and smooth:
        cotangents = [torch.cos(torch.arange(leaf.numel(), dtype=leaf.dtype)).reshape(leaf.shape) for leaf in smooth]
        gradients = torch.autograd.grad(smooth, inputs, cotangents, allow_unused=True, materialize_grads=True)
        found += [gradient.detach() for gradient in gradients]
    return found


def is_the_same_on_all_teams_in_pytorch(function: Callable[..., Any], inputs: list[Tensor]) -> bool:
    found = []
    for count in (1, *TEAMS):
        with threads(count), weft.disabled():
            found.append(results(function, inputs, False))
    return all(torch.equal(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))


def assert_same_on_all_teams(
    function: Callable[..., Any],
    inputs: list[Tensor],
    training: bool,
    label: str,
    calls: int = 2,
    *,
    exactly: bool = True,
) -> list[Tensor]:
    """Compares the teams; returns the result of one thread."""
    with threads(1):
        expected = results(function, inputs, training)
    for count in TEAMS:
        with threads(count):
            for call in range(calls):
                for index, (found, wanted) in enumerate(
                    zip(results(function, inputs, training), expected, strict=True)
                ):
                    where = f"{label}: result {index} of call {call} on {count} threads"
                    if exactly:
                        assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0)), where
                    else:
                        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, msg=where)
    return expected


def check_gate(steps: int, training: bool) -> None:
    for batch in (1, 3, 7):
        xs, h0 = torch.randn(steps, batch, 256), torch.randn(batch, 256)
        assert_same_on_all_teams(lambda h, x: weft.scan(gate, h, x), [h0, xs], training, f"the gate, batch {batch}")


def check_relatives(first: int, last: int, steps: int) -> None:
    for seed in range(first, last):
        torch.manual_seed(seed)
        batch, width = (1, 1, 2, 3, 5, 7)[seed % 6], (64, 128, 256, 257, 500)[seed % 5]
        inputs = [torch.randn(batch, width), torch.randn(batch), torch.randn(steps, batch, width)]
        step = relative(seed, width, products=seed % 4 == 0)
        assert_same_on_all_teams(
            lambda h, s, xs, step=step: weft.scan(step, (h, s), xs), inputs, seed % 2 == 0, f"relative {seed}", 1
        )


def check_both_ways(steps: int) -> None:
    """Bidirectional layers, whose directions may run side by side."""
    for kind, batch, packed in itertools.product(("GRU", "LSTM", "RNN"), (1, 3), (False, True)):
        torch.manual_seed(1)
        module = getattr(nn, kind)(24, 128, num_layers=2, bidirectional=True)
        names = [name for name, _ in module.named_parameters()]

        def call(
            xs: Tensor, *weights: Tensor, module: nn.Module = module, names: list[str] = names, packed: bool = packed
        ) -> object:
            lengths = [len(xs)] + [len(xs) // 2] * (xs.shape[1] - 1)
            rows = nn.utils.rnn.pack_padded_sequence(xs, lengths) if packed else xs
            ys, states = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (rows,))
            return (ys.data, states) if packed else (ys, states)

        inputs = [torch.randn(steps, batch, 24), *module.parameters()]
        for training in (False, True):
            assert_same_on_all_teams(call, inputs, training, f"{kind}, {batch} rows, {packed=}, {training=}")
