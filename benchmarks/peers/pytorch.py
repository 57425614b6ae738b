"""PyTorch's own module: eager, through Inductor, and with weft's kernels under it."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cases import Case, Data
from peers import Prepared, Result, SkipCase

MODULES = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
STATES = ("h0", "c0")


def module_of(case: Case, data: Data) -> nn.Module:
    """The layers with the case's weights, of their type."""
    module = MODULES[case.cell](
        case.inputs,
        case.hidden,
        num_layers=case.layers,
        bidirectional=case.directions > 1,
        dtype=data.x.dtype,
    )
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), data.weights, strict=True):
            parameter.copy_(value)
    return module


def states_of(case: Case, states: tuple[Tensor, ...]) -> Any:
    """The states as the module takes them: a tensor, or a pair for an LSTM."""
    return states if case.cell == "lstm" else states[0]


def numbers(value: Tensor) -> np.ndarray:
    """A copy, in float32 where numpy lacks the type."""
    value = value.detach()
    return (value if value.dtype in (torch.float32, torch.float64) else value.float()).numpy().copy()


def forward_call(case: Case, data: Data, module: Callable[..., Any]) -> Prepared:
    """Calls the module as in inference, without recording a graph. A streaming case has one call a step."""
    states = states_of(case, data.states)
    parts = data.x.split(1) if case.streaming else (data.x,)

    def run() -> Any:
        last, found = states, []
        with torch.inference_mode():
            for x in parts:
                y, last = module(x, last)
                found.append(y)
        return found, last

    def result() -> Result:
        found, last = run()
        last = last if isinstance(last, tuple) else (last,)
        values = (torch.cat(found), *last)
        return {name: numbers(value) for name, value in zip(("y", "h_n", "c_n"), values, strict=False)}

    return Prepared(run, result)


def training_call(case: Case, data: Data, module: Callable[..., Any], parameters: list[Tensor]) -> Prepared:
    """Forward, then the gradients of sum(y * cotangent) with respect to x, the initial states and all weights."""
    x = data.x.clone().requires_grad_()
    states = tuple(state.clone().requires_grad_() for state in data.states)
    wanted = [x, *states, *parameters]
    names = ["d_x", *(f"d_{name}" for name in STATES[: len(states)]), *(f"d_{name}" for name in case.weight_names)]

    def run() -> Any:
        y, _ = module(x, states_of(case, states))
        return torch.autograd.grad(y, wanted, data.cotangent)

    def result() -> Result:
        return {name: numbers(value) for name, value in zip(names, run(), strict=True)}

    return Prepared(run, result)


def call(case: Case, data: Data, module: nn.Module, compiled: Callable[..., Any] | None = None) -> Prepared:
    """The case's mode over `module`, called through `compiled` when there is one."""
    function = module if compiled is None else compiled  # a compiled module has no truth: it asks the module for len()
    if case.mode == "forward":
        return forward_call(case, data, function)
    return training_call(case, data, function, list(module.parameters()))


def without_weft() -> contextlib.AbstractContextManager[Any]:
    """Plain PyTorch, in a process where weft was never imported."""
    weft = sys.modules.get("weft")
    return weft.disabled() if weft is not None else contextlib.nullcontext()


@contextlib.contextmanager
def unrolling() -> Iterator[None]:
    """Plain PyTorch, with Dynamo tracing recurrent modules. `weft.disabled()` resets this setting of Dynamo's, so it
    has to be made within."""
    with without_weft(), torch._dynamo.config.patch(allow_rnn=True):
        yield


def plain(
    prepared: Prepared, surroundings: Callable[[], contextlib.AbstractContextManager[Any]] = without_weft
) -> Prepared:
    """The same with weft's kernels out of the way during each call."""
    run, result = prepared.run, prepared.result

    def guarded(function: Callable[[], Any]) -> Callable[[], Any]:
        def inner() -> Any:
            with surroundings():
                return function()

        return inner

    return Prepared(guarded(run), guarded(result), prepared.variant, prepared.note)


class Eager:
    name = "eager"

    def prepare(self, case: Case, data: Data) -> Prepared:
        return plain(call(case, data, module_of(case, data)))


class Inductor:
    """torch.compile with its default backend, which unrolls the loop; given up when compiling takes longer than a
    budget."""

    name = "inductor"

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.too_long: dict[str, int] = {}  # by mode: the fewest steps that went over the budget

    def prepare(self, case: Case, data: Data) -> Prepared:
        known = self.too_long.get(case.mode)
        if known is not None and case.steps >= known:
            raise SkipCase(f"compiling {known} steps took over {self.budget:.0f} s")
        torch._dynamo.reset()
        module = module_of(case, data)
        prepared = plain(call(case, data, module, torch.compile(module, fullgraph=True)), unrolling)
        start = time.perf_counter()
        try:
            with alarm(self.budget):
                prepared.run()
        except TimeoutError:
            self.too_long[case.mode] = case.steps
            raise SkipCase(f"compiling {case.steps} steps took over {self.budget:.0f} s") from None
        except Exception as error:  # whatever a compiler raises is a reason to leave it out, not to stop
            raise SkipCase(f"{type(error).__name__}: {str(error).splitlines()[0][:120]}") from None
        prepared.note = f"compiled in {time.perf_counter() - start:.0f} s"
        return prepared


class Weft:
    """The same module with weft imported, whose kernels are registered for aten::gru, lstm and rnn."""

    name = "weft"

    def prepare(self, case: Case, data: Data) -> Prepared:
        import weft  # noqa: F401

        return call(case, data, module_of(case, data))


def stop_compiling() -> None:
    """Stops Inductor's threads after it was given up. They would go on compiling for minutes, on cores that the next
    measurements need: a layer whose threads wait for each other at each step then took 34 ms instead of 0.25."""
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.pool().shutdown(wait=True, cancel_futures=True)
    AsyncCompile.pool.cache_clear()


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread after `seconds`, even if a compiler catches it and goes on."""
    rang = False

    def ring(*_: Any) -> None:
        nonlocal rang
        rang = True
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception:
        if not rang:
            raise
        stop_compiling()
        raise TimeoutError from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
