"""The process behind cells.JaxScan."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from serve import serve

from measure import timed_calls

try:
    import jax
    import jax.numpy as jnp
    from jax_cells import CELLS

    WHY_NOT = None
except ImportError as error:
    WHY_NOT = str(error)


def split(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Floating inputs, whose gradients are asked for, and the others."""
    floating = {name: value for name, value in inputs.items() if isinstance(value, tuple) or value.dtype.kind == "f"}
    return floating, {name: value for name, value in inputs.items() if name not in floating}


def named(gradients: dict[str, Any]) -> dict[str, np.ndarray]:
    found = {}
    for name, value in gradients.items():
        parts = {f"{name}.{k}": part for k, part in enumerate(value)} if isinstance(value, tuple) else {name: value}
        found |= {f"d_{part}": np.asarray(gradient) for part, gradient in parts.items()}
    return found


class Cell:
    """A compiled call and its arguments."""

    def __init__(self, name: str, mode: str, random: bool, weights: Any, inputs: Any, cotangents: Any, unroll: int):
        self.training = mode == "training"
        floating, whole = split(inputs)
        self.arguments = jax.device_put((weights, floating, whole, cotangents))
        self.key = jax.random.key(0)
        start = time.perf_counter()
        self.plain = self.function(name, unroll, None)
        self.compiled = self.function(name, unroll, self.key) if random else self.plain
        self.compile_seconds = time.perf_counter() - start

    def function(self, name: str, unroll: int, key: Any) -> Any:
        def forward(weights: Any, floating: Any, whole: Any, _: Any, key: Any) -> list[Any]:
            return jax.tree.leaves(CELLS[name](weights, floating | whole, unroll, key))

        def train(weights: Any, floating: Any, whole: Any, cotangents: Any, key: Any) -> Any:
            def loss(weights: Any, floating: Any) -> Any:
                outputs = forward(weights, floating, whole, None, key)
                return sum(jnp.vdot(v, c) for v, c in zip(outputs, cotangents, strict=True) if c is not None)

            return jax.grad(loss, (0, 1))(weights, floating)

        function = train if self.training else forward
        compiled = jax.jit(function).lower(*self.arguments, key).compile()
        return lambda: jax.block_until_ready(compiled(*self.arguments, key))

    def result(self) -> dict[str, np.ndarray]:
        if not self.training:
            return {f"output {k}": np.asarray(value) for k, value in enumerate(self.plain())}
        weights, inputs = self.plain()
        return named(weights) | named(inputs)


class Cells:
    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self.next = 0

    def prepare(self, *request: Any) -> tuple[int, float]:
        self.next += 1
        self.cells[self.next] = Cell(*request)
        return self.next, self.cells[self.next].compile_seconds

    def result(self, key: int) -> dict[str, np.ndarray]:
        return self.cells[key].result()

    def time(self, key: int, seconds: float) -> list[float]:
        return timed_calls(self.cells[key].compiled, seconds)

    def drop(self, key: int) -> None:
        del self.cells[key]
        jax.clear_caches()


if __name__ == "__main__":
    serve(Cells(), WHY_NOT)
