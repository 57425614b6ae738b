"""One step of a subject, run as it is or changed, and timed beside others."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import logging
import random
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch._dynamo import config

from weft._base.torch_private import TorchCompileInductorWrapper, TorchCompileWrapper, pytree
from weft.explanation import _C
from weft.explanation._changes.code import Put, replaced, swapped
from weft.explanation._report.records import Measured
from weft.explanation._watching import clock
from weft.explanation._watching.watch import CompiledGraph, GraphCall, Watch, tensors


@dataclasses.dataclass
class Step:
    """A step: a call, and in training the backward of the sum of its results."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    train: bool
    grad: bool  #: whether grad mode is on

    def run(self, function: Callable[..., Any]) -> Any:
        """Runs one step with `function` instead; returns its result."""
        with torch.set_grad_enabled(self.grad or self.train):
            result = function(*self.args, **self.kwargs)
            if self.train:
                outputs = [leaf for leaf in tensors(result) if leaf.requires_grad]
                if outputs:
                    torch.autograd.backward(torch.stack([leaf.float().sum() for leaf in outputs]).sum())
        return result

    def clear_gradients(self) -> None:
        """No gradient from the step before."""
        for module in self.modules():
            module.zero_grad(set_to_none=True)

    def modules(self) -> list[nn.Module]:
        """The modules of the step, as far as its function and arguments show them."""
        function = self.function
        seen = [function, getattr(function, "__self__", None), *self.args, *self.kwargs.values()]
        seen += [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _filled(cell)]
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        seen += [function.__globals__.get(name) for name in names]
        return [thing for thing in seen if isinstance(thing, nn.Module)]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@dataclasses.dataclass
class Variant:
    """A way to run the step: with other code, other settings, or a separate compilation."""

    name: str
    call: Callable[..., Any]
    swaps: list[tuple[FunctionType, CodeType]] = dataclasses.field(default_factory=list)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    puts: list[Put] = dataclasses.field(default_factory=list)
    after: Callable[[], None] | None = None  #: what a step ends with, such as a sync
    step: Step | None = None  #: where it is not that of the others: its arguments are elsewhere
    graphs: list[CompiledGraph] = dataclasses.field(default_factory=list)
    rounds: list[float] = dataclasses.field(default_factory=list)  #: seconds of a step, by round

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Applies the variant's changes within the context."""
        watch = Watch._running
        kept = watch.interrupts.kept() if watch else contextlib.nullcontext()
        with swapped(self.swaps), replaced(self.puts), config.patch(self.settings), kept:
            yield

    def measured(self) -> Measured | None:
        """Seconds of a step."""
        return Measured(*_C.median_interval(self.rounds)) if self.rounds else None


def compiled(step: Step, options: dict[str, Any], backend: Any = None) -> Callable[..., Any]:
    """The step's function compiled separately: it uses no code that was compiled for others."""
    chosen = {key: value for key, value in options.items() if key not in ("backend", "mode", "options", "fullgraph")}
    chosen["backend"] = _backend_of_its_own(options) if backend is None else _backend_of_its_own({"backend": backend})
    own = Watch._running
    compile: Any = own._compile if own is not None else torch.compile
    return compile(step.function, isolate_recompiles=True, **chosen)  # type: ignore[no-any-return]


def _backend_of_its_own(options: dict[str, Any]) -> Callable[..., Any]:
    """A backend that is equal to no other. Dynamo reuses code that was compiled for an equal backend."""
    name, mode, more = options.get("backend") or "inductor", options.get("mode"), options.get("options")
    more = dict(more) if isinstance(more, dict) else None
    dynamic = options.get("dynamic")
    if name == "inductor":
        wrapper = TorchCompileInductorWrapper
        chosen = wrapper(mode or (None if more else "default"), more, dynamic)
    else:
        wrapper = TorchCompileWrapper
        chosen = wrapper(name, mode, more, dynamic)

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return chosen(module, inputs)

    return backend


@contextlib.contextmanager
def undisturbed(step: Step) -> Iterator[None]:
    """Restores random numbers, and the modules' parameters, buffers and gradients; discards the program's output."""
    modules = step.modules()
    kept = [
        [(tensor, tensor.detach().clone()) for tensor in (*module.parameters(), *module.buffers())]
        for module in modules
        if not any(_is_lazy(parameter) for parameter in module.parameters())
    ]
    gradients = [[(p, p.grad) for p in module.parameters()] for module in modules]
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]), _silent():
            yield
    finally:
        random.setstate(state)
        with torch.no_grad():
            for group in kept:
                for tensor, value in group:
                    tensor.copy_(value)
        for pairs in gradients:
            for parameter, gradient in pairs:
                parameter.grad = gradient


def _is_lazy(parameter: nn.Parameter) -> bool:
    return isinstance(parameter, nn.parameter.UninitializedParameter)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing is written to the console, by the program's loggers neither."""
    nowhere = _Nowhere()
    consoles = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    handlers = [reference() for reference in logging._handlerList]
    changed = [
        (handler, handler.stream)
        for handler in handlers
        if type(handler) is logging.StreamHandler and any(handler.stream is stream for stream in consoles)
    ]
    try:
        for handler, _ in changed:
            handler.setStream(nowhere)
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        for handler, stream in changed:
            handler.setStream(stream)


class _Nowhere(io.TextIOBase):
    """A stream that discards text and takes nearly as long as writing to a file."""

    def write(self, text: str) -> int:
        return len(text)


def run_once(variant: Variant, step: Step) -> Any:
    """The result of one step, and in training the gradients, with the same random numbers every time."""
    step.clear_gradients()
    with variant.inside():
        torch.manual_seed(0)
        random.seed(0)
        result = step.run(variant.call)
        if variant.after:
            variant.after()
    gradients = [parameter.grad for module in step.modules() for parameter in module.parameters()]
    return copy_of((result, gradients if step.train else []))


def copy_of(result: Any) -> Any:
    """A copy that later steps don't change."""
    return pytree.tree_map(
        lambda leaf: leaf.detach().to("cpu", copy=True) if isinstance(leaf, torch.Tensor) else copy.copy(leaf), result
    )


def same(left: Any, right: Any) -> bool:
    """Whether two results are equal up to rounding. For a tensor the tolerance is relative to its largest number."""
    lefts, rights = pytree.tree_leaves(left), pytree.tree_leaves(right)
    return len(lefts) == len(rights) and all(_same_leaf(a, b) for a, b in zip(lefts, rights, strict=True))


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape:
            return False
        a, b = a.double(), b.double()
        finite = b[b.isfinite()].abs()
        largest = finite.max().item() if finite.numel() else 0.0
        return torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(largest, 1.0), equal_nan=True)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-4 + 1e-3 * abs(b) or (a != a and b != b)
    return True


def as_near(result: Any, reference: Any, exact: Any) -> bool:
    """Whether each tensor of a result is at most ten times as far from the exact one as the reference's is. The
    reference's own distance must be rounding: all of it together less than a twentieth in norm."""
    found, known, wanted = (
        [leaf.double() for leaf in pytree.tree_leaves(each) if isinstance(leaf, torch.Tensor)]
        for each in (result, reference, exact)
    )
    if [leaf.shape for leaf in found] != [leaf.shape for leaf in wanted] or not wanted:
        return False
    if [leaf.shape for leaf in known] != [leaf.shape for leaf in wanted]:
        return False
    rounding, norm = (
        sum(leaf.square().sum().item() for leaf in leaves) ** 0.5
        for leaves in ([b - c for b, c in zip(known, wanted, strict=True)], wanted)
    )
    if not rounding <= norm / 20:
        return False
    return all(
        bool((a - c).abs().max() <= 10 * (b - c).abs().max() + 1e-4 * c.abs().max())
        for a, b, c in zip(found, known, wanted, strict=True)
        if c.numel() > 0
    )


class Race:
    """Variants of a step that take turns, so that disturbances of the machine slow all of them."""

    def __init__(self, step: Step, variants: list[Variant], seconds: float, rounds: int) -> None:
        self.step, self.variants = step, variants
        self.seconds, self.rounds = seconds, rounds
        self._order = random.Random(0)

    def run(self, progress: Callable[[float], None]) -> int:
        """Runs rounds until the time is over, at least three. Returns the number of rounds. Every round has each
        variant once.

        Ctrl-C ends it between rounds or within one; what whole rounds measured stays.
        """
        begin = clock.now()
        done = 0
        steps = self._steps_of_a_turn()
        while done < self.rounds and (done < 3 or clock.now() - begin < self.seconds):
            times = {}
            for index in self._order.sample(range(len(self.variants)), len(self.variants)):
                times[index] = self._turn(self.variants[index], steps[index])
            for index, seconds in times.items():
                self.variants[index].rounds.append(seconds)
            done += 1
            progress(min(1.0, max(done / self.rounds, (clock.now() - begin) / self.seconds)))
        return done

    def _steps_of_a_turn(self) -> list[int]:
        """The number of steps that take a few milliseconds, so that a turn isn't a single disturbed step."""
        return [max(3, min(50, round(0.01 / max(self._turn(variant, 2), 1e-6)))) for variant in self.variants]

    def _turn(self, variant: Variant, steps: int) -> float:
        """The lower quartile of the turn's steps, since disturbances only make a step longer. The first step, which
        finds other variants' data in the caches, is left out."""
        times = []
        step = variant.step or self.step
        with variant.inside():
            for index in range(steps + 1):
                step.clear_gradients()
                begin = clock.now()
                result = step.run(variant.call)
                if variant.after:
                    variant.after()
                end = clock.now()
                del result  # and not before: what nobody holds the lazy device does not compute
                if index:
                    times.append(end - begin)
        return float(_C.quantile(times, 0.25))


def recorded_steps(
    watch: Watch, variant: Variant, step: Step, count: int
) -> list[tuple[float, float, list[GraphCall]]]:
    """`count` steps with every call of a compiled graph: begin, end, calls."""
    found = []
    with variant.inside():
        for _ in range(count):
            step.clear_gradients()
            calls: list[GraphCall] = []
            watch.graph_calls = calls
            try:
                begin = clock.now()
                step.run(variant.call)
                found.append((begin, clock.now(), calls))
            finally:
                watch.graph_calls = None
    return found
