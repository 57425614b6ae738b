"""Watches this process: compilations, and calls of compiled functions."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from weft._base.torch_private import OutputGraph, pytree, trace_log
from weft.explanation._watching import clock
from weft.explanation._watching.collect import is_library
from weft.explanation._watching.interrupts import Interrupts
from weft.explanation._watching.said import Said
from weft.explanation._watching.trace import Listener, TraceEvent

_MOST_EVENTS = 200_000
_MOST_KINDS = 6  #: of calls whose arguments are kept

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass
class CompiledGraph:
    """A graph as it was given to the backend."""

    compile_id: str
    subject: int
    module: torch.fx.GraphModule
    inputs: tuple[Any, ...] | None = None  #: of its first call, if they were to be kept


@dataclasses.dataclass
class GraphCall:
    """One call of a compiled graph."""

    graph: CompiledGraph
    begin: float
    end: float
    bytes: int  #: of its results; -1 where that was not asked for
    backward: bool = False


@dataclasses.dataclass
class Watched:
    """Something given to torch.compile, and how it was called."""

    number: int
    function: Callable[..., Any]
    options: dict[str, Any]
    calls: int = 0
    arguments: Arguments | None = None  #: of the last call
    variety: dict[Any, Arguments] = dataclasses.field(default_factory=dict)  #: of the first call of each kind
    place: tuple[str, int] = ("", 0)  #: from where it was called last
    grad: bool = False  #: whether a result of the last call wants a gradient
    seconds: list[float] = dataclasses.field(default_factory=list)


class Watch:
    """Records what is compiled and called between its begin and its end. One at a time in a process."""

    _running: Watch | None = None

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.watched: list[Watched] = []
        self.graph_calls: list[GraphCall] | None = None  #: a list while calls are recorded
        self.count_bytes = False
        self.keep_graphs = False  #: with the inputs of their first calls
        self.children = 0  #: processes forked from this one
        self.last_graphs: list[CompiledGraph] = []
        self.said = Said()
        self.interrupts = Interrupts()
        self._process = os.getpid()
        self._thread = threading.local()

    @property
    def subject(self) -> int:
        """The number of the entry of `watched` whose calls and compilations the calling thread now makes; -1 outside of
        all entries."""
        return getattr(self._thread, "subject", -1)

    @subject.setter
    def subject(self, number: int) -> None:
        self._thread.subject = number

    def __enter__(self) -> Watch:
        if Watch._running is not None:
            raise RuntimeError("weft.explain is running in this process already")
        Watch._running = self
        self.said.__enter__()
        self.interrupts.__enter__()
        self._listener = Listener(self._take, lambda: self.subject)
        trace_log.addHandler(self._listener)
        self._compile = torch.compile
        torch.compile = self._watching_compile()
        self._call_compiler = OutputGraph.call_user_compiler
        OutputGraph.call_user_compiler = self._timing_compiler()  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        OutputGraph.call_user_compiler = self._call_compiler  # type: ignore[method-assign]
        torch.compile = self._compile
        trace_log.removeHandler(self._listener)
        self.interrupts.__exit__()
        self.said.__exit__(kind, error, traceback)
        Watch._running = None

    def _take(self, event: TraceEvent) -> None:
        if os.getpid() == self._process and len(self.events) < _MOST_EVENTS:
            self.events.append(event)

    def add(self, function: Callable[..., Any], options: dict[str, Any]) -> Watched:
        """A new subject."""
        self.watched.append(Watched(len(self.watched), function, options))
        return self.watched[-1]

    def _watching_compile(self) -> Callable[..., Any]:
        original = self._compile

        @functools.wraps(original)
        def compile(model: Any = None, **options: Any) -> Any:
            if model is None:
                return lambda model: compile(model, **options)
            compiled = original(model, **options)
            if options.get("disable") or not callable(compiled):
                return compiled
            watched = self.add(model, dict(options))
            if isinstance(compiled, torch.nn.Module):
                compiled.__dict__["forward"] = self._calling(watched, compiled.forward)
                return compiled
            return self._calling(watched, compiled)

        return compile

    def _calling(self, watched: Watched, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled` with its calls recorded. A call from inside another compiled function counts as part of that
        one."""

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():
                return compiled(*args, **kwargs)
            if Watch._running is not self or self.subject != -1 or os.getpid() != self._process:
                return compiled(*args, **kwargs)
            watched.calls += 1
            watched.arguments = (args, kwargs)
            watched.place = _caller()
            if len(watched.variety) < _MOST_KINDS:
                watched.variety.setdefault(_kind(watched.arguments), watched.arguments)
            self.subject = watched.number
            begin = clock.now()
            try:
                with self.interrupts.kept():
                    result = compiled(*args, **kwargs)
            finally:
                self.subject = -1
            watched.seconds.append(clock.now() - begin)
            watched.grad = any(leaf.requires_grad for leaf in tensors(result))
            return result

        return call

    def _timing_compiler(self) -> Callable[..., Any]:
        """OutputGraph.call_user_compiler: what the backend returns tells when it runs."""
        original = self._call_compiler

        @functools.wraps(original)
        def call_user_compiler(output: OutputGraph, module: torch.fx.GraphModule, *rest: Any, **named: Any) -> Any:
            # A copy, since a backend may change the graph.
            kept = torch.fx.GraphModule(module, copy.deepcopy(module.graph)) if self.keep_graphs else module
            compiled = original(output, module, *rest, **named)
            graph = CompiledGraph(str(output.dynamo_compile_id), self.subject, kept)
            self.last_graphs.append(graph)
            return self._timed(graph, compiled)

        return call_user_compiler

    def _timed(self, graph: CompiledGraph, compiled: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def run(*args: Any) -> Any:
            calls = self.graph_calls
            if self.keep_graphs and graph.inputs is None:
                graph.inputs = args
            if calls is None:
                return compiled(*args)
            begin = clock.now()
            result = compiled(*args)
            end = clock.now()
            size = sum(leaf.nbytes for leaf in tensors(result)) if self.count_bytes else -1
            calls.append(GraphCall(graph, begin, end, size))
            _time_backward(graph, result, calls)
            return result

        return run


def _time_backward(graph: CompiledGraph, result: Any, calls: list[GraphCall]) -> None:
    """AOTAutograd's graph is one node of autograd's; a graph that autograd follows op by op has none of its own."""
    nodes = {node for leaf in tensors(result) if leaf.grad_fn for node in _and_next(leaf.grad_fn)}
    for node in nodes:
        if node.name() != "CompiledFunctionBackward":
            continue
        begins: list[float] = []
        node.register_prehook(lambda gradients, begins=begins: begins.append(clock.now()))

        def done(inputs: Any, outputs: Any, begins: list[float] = begins) -> None:
            end = clock.now()
            calls.append(GraphCall(graph, begins.pop(), end, -1, True))

        node.register_hook(done)


def _and_next(node: Any) -> list[Any]:
    """A result that is a view of another is made one outside of the graph."""
    return [node, *(following for following, _ in node.next_functions if following)]


def _caller() -> tuple[str, int]:
    """The innermost line of the user's."""
    frame = inspect.currentframe()
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _kind(arguments: Arguments) -> Any:
    """The parts of the arguments that may make Dynamo compile again."""

    def of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return tuple(leaf.shape), leaf.dtype, leaf.requires_grad
        return leaf if isinstance(leaf, (bool, int, float, str)) else type(leaf)

    leaves, spec = pytree.tree_flatten(arguments)
    return str(spec), tuple(map(of, leaves))


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a result, whatever it is made of."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
