"""Ways to run a cell of examples/cells: weft.scan, a loop in Python, that loop or its step compiled, jax.lax.scan."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from cells.python_loop import python_loop
from torch import Tensor
from torch.utils import _pytree as pytree

import weft
from cell_cases import CellCase, Example, example_of, hoisted, torch_call
from peers import Prepared, Result, fastest
from peers.process import Worker
from peers.pytorch import plain
from peers.xla import ONE_KERNEL, worker

Cotangents = list[Tensor | None]


class Weft:
    name = "weft"

    def prepare(self, case: CellCase, cotangents: Cotangents) -> Prepared:
        return torch_call(case, example_of(case), cotangents)


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """weft.scan is a loop inside."""
    scan = weft.scan
    weft.scan = python_loop
    try:
        yield
    finally:
        weft.scan = scan


def as_loop(prepared: Prepared) -> Prepared:
    """Plain PyTorch, with a loop in Python."""

    def guarded(function: Callable[[], Any]) -> Callable[[], Any]:
        def inner() -> Any:
            with in_python():
                return function()

        return inner

    prepared = plain(prepared)
    return Prepared(guarded(prepared.run), guarded(prepared.result))


class Loop:
    name = "loop"

    def prepare(self, case: CellCase, cotangents: Cotangents) -> Prepared:
        return as_loop(torch_call(case, hoisted(example_of(case)), cotangents))


class Remote(Prepared):
    """A cell prepared in a worker, which does the timing itself."""

    def __init__(self, worker: Worker, *request: Any, budget: float | None = None, note: str = "", ends: bool) -> None:
        """`ends`: the process serves this cell only."""
        self.worker, self.ends = worker, ends
        self.compile_seconds = worker.ask("prepare", *request, budget=budget)
        super().__init__(lambda: self.time(0), lambda: worker.ask("result"), note=note)

    def time(self, seconds: float) -> list[float]:
        return self.worker.ask("time", seconds)

    def close(self) -> None:
        if self.ends:
            self.worker.close()


class Compiled:
    """torch.compile with its default backend: for the whole `loop`, which it unrolls, or for its `step`. Each cell has
    a process and caches of its own, and `budget` seconds."""

    def __init__(self, what: str, budget: float) -> None:
        self.name = f"compiled_{what}"
        self.what, self.budget = what, budget
        self.too_long: dict[str, str] = {}  # by cell, why its forward was given up: its training takes longer

    def prepare(self, case: CellCase, cotangents: Cotangents) -> Prepared:
        from peers import SkipCase

        if case.name in self.too_long:
            raise SkipCase(f"forward: {self.too_long[case.name]}")
        caches = tempfile.mkdtemp(prefix="inductor-")
        process = Worker("compiled_cells_worker.py", self.what, TORCHINDUCTOR_CACHE_DIR=caches, WEFT="0")
        try:
            return Remote(process, case, cotangents, budget=self.budget, ends=True)
        except SkipCase as reason:
            process.close()
            self.too_long[case.name] = str(reason)
            raise SkipCase(f"compiling: {reason}") from None


def to_jax(name: str, value: np.ndarray) -> np.ndarray:
    """Weights in jax's usual layout, [in, out]; the function is its own inverse."""
    matrix = value.ndim == 2 and name.rsplit(".")[-1] in ("weight", "weight_ih", "weight_hh")
    return np.ascontiguousarray(value.T) if matrix else value


class JaxScan:
    """Unrolled by 1 and 8, with and without the loop as one kernel; the fastest counts."""

    name = "jax"
    unrolls = (1, 8)

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}

    def prepare(self, case: CellCase, cotangents: Cotangents) -> Prepared:
        example = example_of(case)
        module = example.module
        parameters = {} if module is None else dict(module.named_parameters())
        weights = {name: to_jax(name, value.detach().numpy()) for name, value in parameters.items()}
        inputs = pytree.tree_map(Tensor.numpy, example.inputs)
        numbers = [None if c is None else c.numpy() for c in cotangents]
        variants: dict[str, Callable[[], Prepared]] = {}
        for label, flags in (("", ""), (" one kernel", ONE_KERNEL)):
            if label not in self.workers:
                self.workers[label] = worker("jax_cells_worker.py", flags)
            for unroll in self.unrolls:
                variants[f"unroll {unroll}{label}"] = lambda label=label, unroll=unroll: JaxPrepared(
                    self.workers[label], case, weights, inputs, numbers, unroll
                )
        return fastest(variants)


class JaxPrepared(Prepared):
    def __init__(self, worker: Worker, case: CellCase, *rest: Any) -> None:
        self.worker = worker
        self.key, self.compile_seconds = worker.ask("prepare", case.name, case.mode, case.random, *rest)
        super().__init__(lambda: self.time(0), self._result)

    def _result(self) -> Result:
        return {name: to_jax(name, value) for name, value in self.worker.ask("result", self.key).items()}

    def time(self, seconds: float) -> list[float]:
        return self.worker.ask("time", self.key, seconds)

    def close(self) -> None:
        self.worker.ask("drop", self.key)


__all__ = ["Compiled", "Example", "JaxScan", "Loop", "Weft", "as_loop", "in_python"]
