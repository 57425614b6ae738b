"""Steps and their dependences: each case is a step, and changes that end where they began."""

from __future__ import annotations

import functools
import importlib
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

GLOBAL = 2.0


def helper(h: Tensor) -> Tensor:
    return deeper(h)


def deeper(h: Tensor) -> Tensor:
    return h * GLOBAL


class Base(nn.Module):
    scale = 0.5

    def inherited(self, h: Tensor) -> Tensor:
        return h * self.scale


class Cell(Base):
    bias = 0.25

    def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.inherited(h) + x * GLOBAL + self.bias)
        return h, h + 1


class One:
    factor = 1.5

    def act(self, h: Tensor) -> Tensor:
        return h * self.factor


class Two(One):
    def act(self, h: Tensor) -> Tensor:
        return torch.sin(h) + GLOBAL


Change = Callable[[], None]
Case = tuple[Step, list[Change]]


def set_to(place: Any, name: str, *values: Any) -> list[Change]:
    """Functions that set the place to each of the values in turn, and at last to its present value."""
    before = place[name] if isinstance(place, dict) else getattr(place, name)
    put = place.__setitem__ if isinstance(place, dict) else functools.partial(setattr, place)
    return [functools.partial(put, name, value) for value in (*values, before)]


def class_attribute() -> Case:
    return Cell(), set_to(Cell, "bias", -1.0, 3.0)


def attribute_of_a_base_class() -> Case:
    return Cell(), set_to(Base, "scale", 2.0)


def method_of_a_base_class() -> Case:
    return Cell(), set_to(Base, "inherited", lambda self, h: torch.cos(h) * self.scale)


def forward_itself() -> Case:
    return Cell(), set_to(Cell, "forward", lambda self, h, x: (h - x, h * 2))


def global_in_forward() -> Case:
    return Cell(), set_to(globals(), "GLOBAL", 5.0)


def global_in_a_helpers_helper() -> Case:
    return lambda h, x: (helper(h) + x, h), set_to(globals(), "GLOBAL", -1.0)


def helper_itself() -> Case:
    return lambda h, x: (helper(h) + x, h), set_to(globals(), "deeper", torch.sin)


def by_globals() -> Case:
    return lambda h, x: (h * globals()["GLOBAL"] + x, h), set_to(globals(), "GLOBAL", 7.0)


def by_sys_modules() -> Case:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h * sys.modules[__name__].GLOBAL + x, h

    return step, set_to(globals(), "GLOBAL", 7.0)


def by_import() -> Case:
    module = types.ModuleType("weft_test_settings")
    module.scale = 0.5  # type: ignore[attr-defined]
    sys.modules["weft_test_settings"] = module

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        settings = importlib.import_module("weft_test_settings")
        return h * settings.scale + x, h

    return step, set_to(module, "scale", 3.0)


def method_behind_a_loop_variable() -> Case:
    objects = [One(), Two()]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        for each in objects:
            h = each.act(h)
        return torch.tanh(h) + x, h

    return step, [*set_to(One, "factor", 0.1), *set_to(globals(), "GLOBAL", 0.5), objects.reverse, objects.reverse]


def two_bound_methods() -> Case:
    one, two = One(), Two()
    current = [one.act]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return current[0](h) + x, h

    def swap(to: Any) -> Change:
        return lambda: current.__setitem__(0, to)

    return step, [swap(two.act), *set_to(globals(), "GLOBAL", 0.5), swap(one.act)]


def patched_function() -> Case:
    return lambda h, x: (torch.nn.functional.softplus(h) + x, h), set_to(torch.nn.functional, "softplus", torch.sin)


def patched_function_of_a_library() -> Case:
    return lambda h, x: (h * math.sqrt(2.0) + x, h), set_to(math, "sqrt", lambda x: x * 3)


def forward_hook() -> Case:
    layer = nn.Linear(3, 3)
    handles: list[Any] = []
    on = lambda: handles.append(layer.register_forward_hook(lambda module, args, out: out * 2))  # noqa: E731
    off = lambda: handles.pop().remove()  # noqa: E731
    return lambda h, x: (torch.tanh(layer(h)) + x, h), [on, off]


def global_forward_hook() -> Case:
    layer = nn.Linear(3, 3)
    handles: list[Any] = []

    def on() -> None:
        hook = lambda module, args, out: out * 2 if module is layer else None  # noqa: E731
        handles.append(nn.modules.module.register_module_forward_hook(hook))

    return lambda h, x: (torch.tanh(layer(h)) + x, h), [on, lambda: handles.pop().remove()]


def training_mode() -> Case:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    return lambda h, x: (torch.tanh(layer(h)) + x, h), [layer.eval, layer.train]


def closure_in_a_container() -> Case:
    parts = {"f": [torch.tanh]}
    return lambda h, x: (parts["f"][0](h) + x, h), [
        lambda: parts["f"].__setitem__(0, torch.sin),
        lambda: parts["f"].__setitem__(0, torch.tanh),
    ]


def slots() -> Case:
    class Slotted:
        __slots__ = ("scale",)

    slotted = Slotted()
    slotted.scale = 0.5
    return lambda h, x: (h * slotted.scale + x, h), set_to(slotted, "scale", 2.0)


def descriptor() -> Case:
    class Computed:
        def __init__(self) -> None:
            self.values = [0.5]

        @property
        def scale(self) -> float:
            return self.values[0]

    computed = Computed()
    change = lambda value: lambda: computed.values.__setitem__(0, value)  # noqa: E731
    return lambda h, x: (h * computed.scale + x, h), [change(2.0), change(0.5)]


def default_argument() -> Case:
    def scaled(h: Tensor, by: float = 0.5) -> Tensor:
        return h * by

    return lambda h, x: (scaled(h) + x, h), set_to(scaled, "__defaults__", (3.0,))


def code_of_a_function() -> Case:
    def f(h: Tensor) -> Tensor:
        return h * 2

    def g(h: Tensor) -> Tensor:
        return torch.sin(h)

    return lambda h, x: (f(h) + x, h), set_to(f, "__code__", g.__code__)


def reading_a_captured_tensor() -> Case:
    scale, flag, count = torch.tensor(0.5), torch.tensor(True), torch.tensor(2)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(int(count)):
            h = h * scale.item()
        return (h + x if flag else h - x), h

    return step, [lambda: scale.fill_(2.0), lambda: flag.fill_(False), lambda: count.fill_(0), lambda: count.fill_(2)]


def reading_what_is_made_of_a_captured_tensor() -> Case:
    mask = torch.tensor([True, False, True])

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if (mask.sum() * 2 > 2).item():
            h = h * mask
        return h + x * mask.tolist()[1], h

    return step, [lambda: mask.fill_(False), lambda: mask.fill_(True)]


def captured_tensor_of_another_shape() -> Case:
    bias = [torch.ones(3)]
    change = lambda value: lambda: bias.__setitem__(0, value)  # noqa: E731
    return lambda h, x: (h * 0.5 + x + bias[0], h), [
        change(torch.full((2, 1), 2.0)),
        change(torch.tensor(3.0)),
        change(torch.ones(3)),
    ]


def a_tensor_for_a_number() -> Case:
    scale: list[Any] = [0.5]
    change = lambda value: lambda: scale.__setitem__(0, value)  # noqa: E731
    return lambda h, x: (h * scale[0] + x, h), [
        change(torch.tensor(0.5)),
        change(2),
        change(True),
        change(-0.0),
        change(0.0),
        change(0.5),
    ]


def detached() -> Case:
    cut = [False]
    change = lambda value: lambda: cut.__setitem__(0, value)  # noqa: E731
    return lambda h, x: (torch.tanh(h.detach() if cut[0] else h) * x, h), [change(True), change(False)]


def data_of_a_tensor() -> Case:
    cut = [False]
    change = lambda value: lambda: cut.__setitem__(0, value)  # noqa: E731
    return lambda h, x: (torch.tanh(h.data if cut[0] else h) * x, h), [change(True), change(False)]


def no_grad_inside() -> Case:
    on = [True]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.set_grad_enabled(on[0]):
            g = torch.sin(h)
        return g + x, h

    change = lambda value: lambda: on.__setitem__(0, value)  # noqa: E731
    return step, [change(False), change(True)]


def autocast_outside() -> Case:
    layer = nn.Linear(3, 3)
    context: list[Any] = []

    def on() -> None:
        context.append(torch.autocast("cpu", torch.bfloat16))
        context[-1].__enter__()

    return lambda h, x: (torch.tanh(layer(h)).float() + x, h), [on, lambda: context.pop().__exit__(None, None, None)]


def default_dtype() -> Case:
    return lambda h, x: (h + x + torch.zeros(3).double().sum() + torch.ones(3).to(h.dtype), torch.ones(2)), [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ]


def swapped_parameters() -> Case:
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    layers = [one, two]
    return lambda h, x: (torch.tanh(layers[0](h)) + layers[1](x), h), [
        layers.reverse,
        lambda: layers.__setitem__(1, layers[0]),
        lambda: layers.__setitem__(slice(None), [one, two]),
    ]


def tied_weights() -> Case:
    one, two = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    own = two.weight
    return lambda h, x: (torch.tanh(one(h)) + two(x), h), [
        lambda: setattr(two, "weight", one.weight),
        lambda: setattr(two, "weight", own),
    ]


def parametrized() -> Case:
    layer = nn.Linear(3, 3)
    return lambda h, x: (torch.tanh(layer(h)) + x, h), [
        lambda: nn.utils.parametrizations.weight_norm(layer) and None,
        lambda: nn.utils.parametrize.remove_parametrizations(layer, "weight") and None,
    ]


CASES = {name: f for name, f in globals().items() if getattr(f, "__annotations__", {}).get("return") == "Case"}
