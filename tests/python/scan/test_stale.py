"""A step whose surroundings change: the program is that of the step as it is now, never of the step as it was.

Each case changes something that the step depends on, and changes it back. After each change the result must be that of
the plain loop.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from oracles import loop
from stale_cases import CASES, Step
from torch import Tensor, nn

import weft

H, X = torch.linspace(-1, 1, 6).reshape(2, 3), torch.linspace(-2, 1, 24).reshape(4, 2, 3)


def compare(step: Step, h: Tensor = H, xs: Tensor = X) -> None:
    """Compares the results, and the gradients and states that training would see."""
    expected, found = loop(step, h, xs), weft.scan(step, h, xs)
    rounding = {"atol": 1e-2, "rtol": 1e-2} if torch.is_autocast_enabled("cpu") else {}
    torch.testing.assert_close(found, expected, **rounding)
    if torch.is_grad_enabled():
        inputs = [t.clone().requires_grad_() for t in (h, xs)]
        gradients = []
        for run in (loop, weft.scan):
            last, ys = run(step, *inputs)
            total = last.sum() + (ys * ys).sum()
            gradients.append(torch.autograd.grad(total, inputs, allow_unused=True) if total.requires_grad else ())
        torch.testing.assert_close(gradients[1], gradients[0], **rounding)


@dataclasses.dataclass
class Config:
    scale: float = 0.5
    shift: bool = False
    depth: int = 1


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_changed_and_changed_back(name: str, grad: bool) -> None:
    torch.manual_seed(0)
    step, changes = CASES[name]()
    with torch.set_grad_enabled(grad):
        compare(step)
        compare(step)
        for change in [*changes, *changes]:
            change()
            compare(step)
    compare(step)


def test_grad_mode() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(h) * (2.0 if torch.is_grad_enabled() else 3.0) + x, h

    for enabled in (True, False, True):
        with torch.set_grad_enabled(enabled):
            compare(step)
    with torch.inference_mode():
        compare(step)


def test_a_config_changed_in_place_under_jit() -> None:
    config = Config()

    @weft.jit
    def f(h: Tensor, xs: Tensor, config: Config) -> Tensor:
        last, _ = weft.scan(lambda h, x: (torch.tanh(h * config.scale) + x, h), h, xs)
        for _ in range(config.depth):
            last = last + 1
        return last.flip(0) if config.shift else last

    def plainly() -> Tensor:
        last, _ = loop(lambda h, x: (torch.tanh(h * config.scale) + x, h), H, X)
        return (last + config.depth).flip(0) if config.shift else last + config.depth

    for _ in range(2):
        for name, value in [("scale", 2.0), ("shift", True), ("depth", 3), ("shift", False), ("scale", 0.5)]:
            setattr(config, name, value)
            torch.testing.assert_close(f(H, X, config), plainly())


def test_while_loops() -> None:
    limits = {"most": 5.0, "by": 2.0}
    for most, by in [(5.0, 2.0), (50.0, 2.0), (50.0, 3.0), (5.0, 2.0)]:
        limits.update(most=most, by=by)
        for bound in (None, 3):
            found = weft.while_loop(
                lambda h: h.abs().sum() < limits["most"], lambda h: h * limits["by"], H, max_steps=bound
            )
            expected, steps = H, 0
            while expected.abs().sum() < most and (bound is None or steps < bound):
                expected, steps = expected * by, steps + 1
            torch.testing.assert_close(found, expected)


def test_steps_made_and_dropped() -> None:
    """An address is somebody else's soon after."""

    def make(kind: int) -> Step:
        scale = kind / 300
        functions = [torch.tanh, torch.sin, torch.sigmoid, torch.relu]
        act = functions[kind % 4]
        if kind % 3 == 0:
            return lambda h, x: (act(h) * scale + x, h)
        if kind % 3 == 1:
            return lambda h, x: (act(h + x), h * scale)

        class Made(nn.Module):
            def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return act(h - scale) + x, x

        return Made()

    with torch.no_grad():
        for kind in range(300):
            compare(make(kind))


def test_random_numbers_of_python_and_numpy() -> None:
    """Drawn anew at each call, once for all steps."""

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * random.random() + float(np.random.rand())
        return h + x, h

    for seed in range(20):
        random.seed(seed), np.random.seed(seed)
        found = weft.scan(step, H, X)
        random.seed(seed), np.random.seed(seed)
        a, b = random.random(), float(np.random.rand())
        torch.testing.assert_close(found, loop(lambda h, x, a=a, b=b: ((h * a + b) + x, h * a + b), H, X))
        after = random.random()
        random.seed(seed), random.random()
        assert after == random.random()


@pytest.mark.parametrize(
    "step_of",
    [
        lambda v: lambda h, x: (h * v + x, h),
        lambda v: lambda h, x: (torch.lerp(h, x, v), h),
        lambda v: lambda h, x: (h.clamp(-v, v) + x, h),
        lambda v: lambda h, x: (torch.nn.functional.leaky_relu(h, v) + x, h),
        lambda v: lambda h, x: (h.abs() ** v + x, h - v),
        lambda v: lambda h, x: (torch.add(h, x, alpha=v), v / (1 + h * h)),
        lambda v: lambda h, x: (torch.where(h > v, h, v) + x, (h > v).float()),
        lambda v: lambda h, x: (h.masked_fill(x > 0, v) + torch.full((3,), v), 1 - v * h),
    ],
    ids=["mul", "lerp", "clamp", "leaky_relu", "pow", "alpha", "where", "fill"],
)
def test_a_number_that_anneals(step_of: Callable[[float], Step]) -> None:
    h, xs = torch.randn(5, 3), torch.randn(4, 5, 3)
    before = weft.stats()["compiled"]
    with torch.no_grad():
        for value in np.linspace(0.9, 0.1, 60):
            step = step_of(float(value))
            torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))
    assert weft.stats()["compiled"] - before <= 4


def test_checkpointing_saves_the_same_twice() -> None:
    """Also where the forward's call captures the step and the second finds it."""
    weight = torch.randn(3, 3, requires_grad=True)
    h, xs = torch.randn(4, 3, requires_grad=True), torch.randn(7, 4, 3)

    def run(h: Tensor, xs: Tensor) -> Tensor:
        return weft.scan(lambda h, x: (torch.tanh(h @ weight + x) * 1.25, torch.sin(h)), h, xs)[1].sum()

    for _ in range(2):
        again = torch.utils.checkpoint.checkpoint(run, h, xs, use_reentrant=False)
        torch.testing.assert_close(
            torch.autograd.grad(again, [h, weight]), torch.autograd.grad(run(h, xs), [h, weight])
        )


def test_a_derivative_of_its_own_on_a_product() -> None:
    class Rectified(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.abs()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * torch.sign(x) * scale[0]

    scale, weight = [2.0], torch.randn(3, 3, requires_grad=True)
    for scale[0] in (2.0, 3.0, 2.0):  # numbers that the backward reads count as well
        compare(lambda h, x: (torch.tanh(h + Rectified.apply(x @ weight)), h))


def test_programs_kept_are_bounded_and_shown() -> None:
    compare(lambda h, x: (h * 0.123 + x, h))
    kept = weft.stats()["captured"]
    assert 0 < kept["programs"] <= kept["most"] and kept["bytes"] > 0


# ---- random steps over random surroundings, mutated at random


class Surroundings:
    """The surroundings of random steps: a tree of objects, some of whose parts are changed now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
        self.numbers = {"scale": 0.5, "shift": 0.1, "power": 2.0}
        self.functions: list[Callable[[Tensor], Tensor]] = [torch.tanh, torch.sin]
        self.tensors = [torch.rand(3), torch.rand(1), torch.rand(())]
        self.flags = [True, False, True]
        self.kind = type("Kind", (), {"factor": 0.7, "act": lambda self, h: h * self.factor})
        self.object = self.kind()
        self.sizes = [1, 2]

    def mutate(self) -> None:
        rng = self.rng
        choice = rng.randrange(10)
        if choice == 0:
            self.numbers[rng.choice(list(self.numbers))] = rng.choice([0.5, 0.1, 2.0, rng.random(), -1.0, 0.0])
        elif choice == 1:
            acts = [torch.tanh, torch.sin, torch.sigmoid, torch.relu, nn.functional.softplus, torch.cos]
            self.functions[rng.randrange(2)] = rng.choice(acts)
        elif choice == 2:
            self.tensors[rng.randrange(3)] = rng.choice(
                [torch.rand(3), torch.rand(1), torch.rand(()), torch.rand(2, 1)]
            )
        elif choice == 3:
            self.flags[rng.randrange(3)] ^= True
        elif choice == 4:
            self.kind.factor = rng.choice([0.7, 0.2, rng.random()])
        elif choice == 5:
            self.kind.act = rng.choice([lambda self, h: h * self.factor, lambda self, h: h + self.factor])
        elif choice == 6:
            self.module["a"], self.module["b"] = self.module["b"], self.module["a"]
        elif choice == 7:
            self.module[rng.choice("ab")] = nn.Linear(3, 3, bias=rng.random() < 0.5)
        elif choice == 8:
            with torch.no_grad():
                self.tensors[rng.randrange(3)].mul_(rng.random())
        else:
            self.sizes[rng.randrange(2)] = rng.randrange(3)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        numbers = self.numbers
        g = self.functions[0](self.module["a"](h) * numbers["scale"])
        if self.flags[0]:
            g = g + self.functions[1](self.module["b"](x)) * self.tensors[0]
        for _ in range(self.sizes[0]):
            g = self.object.act(g)
        if self.flags[1]:
            g = g.abs().clamp(min=numbers["shift"]) ** numbers["power"]
        if self.flags[2] and self.tensors[2].sum() > 0.5:
            g = g * self.tensors[1] + self.tensors[2].sum().item()
        y = torch.cat([g] * (self.sizes[1] + 1), -1) if self.flags[0] else g.sum(-1)
        return torch.tanh(g), y + numbers["shift"]


MUTATIONS = int(os.environ.get("WEFT_RANDOM_MUTATIONS", "100"))


@pytest.mark.parametrize("seed", range(max(MUTATIONS // 50, 1)))
def test_random_mutations(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    around = Surroundings(rng)
    for _ in range(50):
        around.mutate()
        batch = rng.choice([1, 2, 2, 5])
        if rng.random() < 0.2 or any(t.dim() == 2 for t in around.tensors):
            batch = 2
        h, xs = torch.randn(batch, 3), torch.randn(rng.randint(1, 4), batch, 3)
        with torch.set_grad_enabled(rng.random() < 0.3):
            torch.testing.assert_close(weft.scan(around.step, h, xs), loop(around.step, h, xs))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
    torch.set_autocast_enabled("cpu", False)


def test_an_operator_whose_derivative_is_registered_anew() -> None:
    @torch.library.custom_op("weft_test_stale::square", mutates_args=())
    def square(x: Tensor, k: float) -> Tensor:
        return x * x * k

    @square.register_fake
    def _(x: Tensor, k: float) -> Tensor:
        return torch.empty_like(x)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(square(h, 0.5) + x), h

    h, xs = torch.randn(3, 4, requires_grad=True), torch.randn(5, 3, 4)
    for factor in (2.0, 3.0, 2.0):
        square.register_autograd(
            lambda ctx, g, factor=factor: (g * factor * ctx.saved_tensors[0] * ctx.k, None), setup_context=keep
        )
        ours = torch.autograd.grad(weft.scan(step, h, xs)[0].sum(), h)[0]
        last = h
        for x in xs:
            last, _ = step(last, x)
        torch.testing.assert_close(ours, torch.autograd.grad(last.sum(), h)[0])
