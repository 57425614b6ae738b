"""`torch_xla.compile`: what a function does as one step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from weft import device as weft_device
from weft.compat.torch_xla._missing import missing
from weft.compat.torch_xla._steps import end_step


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict[str, Any] | None = None,
) -> Any:
    """`f` with the end of a step before and after it, so that what it does is one program; without `f` a context for
    `with`, or a decorator.

        @torch_xla.compile
        def step(x, y):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

    Args:
        full_graph: whether asking for a value within `f`, which runs a part of it by itself, is an error. Other threads
            must not use the device meanwhile.
        name: taken, of no effect.
        max_different_graphs: the most different programs that `f` may have.
        custom_compile_options: must be empty.

    Raises:
        NotImplementedError: there are compile options.
        RuntimeError: when called, if there were several parts, or too many different programs.
    """
    set_custom_compile_options(custom_compile_options or {})
    session = _Session(full_graph, max_different_graphs)
    if f is None:
        return _Within(session)
    return functools.update_wrapper(lambda *args, **kwargs: session.call(f, args, kwargs), f, updated=())


def set_custom_compile_options(options: dict[str, Any]) -> None:
    """Takes {}.

    Raises:
        NotImplementedError: there are options, which are XLA's.
    """
    if options:
        missing("compiler with XLA's options", "leave them out; docs/debugging.md has the settings of weft")()


def step() -> Any:
    """`compile()`."""
    return compile()


class _Session:
    def __init__(self, full_graph: bool, most: int | None) -> None:
        self.full_graph, self.most, self.graphs = full_graph, most, 0

    def call(self, f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self.entered():
            return f(*args, **kwargs)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        end_step(counts=False)
        before = weft_device.stats()
        try:
            yield
            if self.full_graph:
                self._refuse_parts(before)
        finally:
            end_step(counts=False)
        self._count_graphs(before)

    def _refuse_parts(self, before: dict[str, Any]) -> None:
        now = weft_device.stats()
        if all(now[name] == before[name] for name in ("compiled_batches", "plain_batches")):
            return
        places = [
            f"{operation} at {place or 'a place without Python code'}"
            for operation, counts in now["ran_at_once"].items()
            for place, count in counts.items()
            if count > before["ran_at_once"].get(operation, {}).get(place, 0)
        ]
        raise RuntimeError(
            "weft.compat.torch_xla: with full_graph=True nothing within the compiled function may ask for values, "
            f"but something did: {', '.join(places) or 'a copy to the CPU'}"
        )

    def _count_graphs(self, before: dict[str, Any]) -> None:
        if self.most is None:
            return
        self.graphs += max(weft_device.stats()["records"] - before["records"], 0)
        if self.graphs > self.most:
            raise RuntimeError(
                f"weft.compat.torch_xla: the compiled function has done {self.graphs} different things, but "
                f"max_different_graphs is {self.most}; other sizes of its arguments are other programs"
            )


class _Within(contextlib.ContextDecorator):
    """A session as a context."""

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.stack: list[Any] = []

    def __enter__(self) -> None:
        context = self.session.entered()
        context.__enter__()
        self.stack.append(context)

    def __exit__(self, *error: Any) -> None:
        self.stack.pop().__exit__(*error)
