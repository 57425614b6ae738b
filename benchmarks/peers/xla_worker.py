"""The process behind xla.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from serve import serve

from measure import peak_bytes, resident_bytes, timed_calls

try:
    import jax
    import jax.numpy as jnp

    WHY_NOT = None
except ImportError as error:
    WHY_NOT = str(error)


def gru_step(carry: Any, projected: Any, recurrent: Any, bias: Any) -> Any:
    (h,) = carry
    r_x, z_x, n_x = jnp.split(projected, 3, -1)
    r_h, z_h, n_h = jnp.split(h @ recurrent + bias, 3, -1)
    r, z = jax.nn.sigmoid(r_x + r_h), jax.nn.sigmoid(z_x + z_h)
    n = jnp.tanh(n_x + r * n_h)
    h = n + z * (h - n)
    return (h,), h


def lstm_step(carry: Any, projected: Any, recurrent: Any, bias: Any) -> Any:
    h, c = carry
    i, f, g, o = jnp.split(projected + h @ recurrent + bias, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def rnn_step(carry: Any, projected: Any, recurrent: Any, bias: Any) -> Any:
    (h,) = carry
    h = jnp.tanh(projected + h @ recurrent + bias)
    return (h,), h


STEPS = {"gru": gru_step, "lstm": lstm_step, "rnn": rnn_step}


def layer(cell: str, unroll: int) -> Callable[..., Any]:
    """(x, states, weights) -> (y, last states); weights are in jax's usual layout, [in, out]."""

    def run(x: Any, states: Any, weights: Any) -> Any:
        w_x, w_h, b_x, b_h = weights
        projected = x @ w_x + b_x

        def step(carry: Any, row: Any) -> Any:
            return STEPS[cell](carry, row, w_h, b_h)

        last, y = jax.lax.scan(step, tuple(states), projected, unroll=unroll)
        return y, last

    return run


class Case:
    """A compiled call and its arguments."""

    def __init__(self, cell: str, mode: str, arrays: dict[str, Any], unroll: int) -> None:
        self.base = resident_bytes()
        self.mode = mode
        w_ih, w_hh, b_ih, b_hh = arrays["weights"]
        weights = [np.ascontiguousarray(w_ih.T), np.ascontiguousarray(w_hh.T), b_ih, b_hh]
        run = layer(cell, unroll)
        arguments = [arrays["x"], list(arrays["states"]), weights]
        if mode == "training":
            arguments.append(arrays["cotangent"])

            def train(x: Any, states: Any, weights: Any, cotangent: Any) -> Any:
                _, pullback = jax.vjp(lambda *inputs: run(*inputs)[0], x, states, weights)
                return pullback(cotangent)

            function = train
        else:
            function = run
        self.arguments = jax.device_put(arguments)
        self.compiled = jax.jit(function).lower(*self.arguments).compile()

    def call(self) -> Any:
        return jax.block_until_ready(self.compiled(*self.arguments))

    def result(self) -> dict[str, np.ndarray]:
        if self.mode == "forward":
            y, last = self.call()
            tensors = {"y": y, **{name: value[None] for name, value in zip(("h_n", "c_n"), last, strict=False)}}
        else:
            d_x, d_states, (d_w_ih, d_w_hh, d_b_ih, d_b_hh) = self.call()
            tensors = {"d_x": d_x, "d_w_ih": d_w_ih.T, "d_w_hh": d_w_hh.T, "d_b_ih": d_b_ih, "d_b_hh": d_b_hh}
            tensors |= {name: value[None] for name, value in zip(("d_h0", "d_c0"), d_states, strict=False)}
        return {name: np.asarray(value) for name, value in tensors.items()}


class Cases:
    def __init__(self) -> None:
        self.cases: dict[int, Case] = {}
        self.next = 0

    def prepare(self, cell: str, mode: str, arrays: dict[str, Any], unroll: int) -> int:
        self.next += 1
        self.cases[self.next] = Case(cell, mode, arrays, unroll)
        return self.next

    def result(self, key: int) -> dict[str, np.ndarray]:
        return self.cases[key].result()

    def time(self, key: int, seconds: float) -> list[float]:
        return timed_calls(self.cases[key].call, seconds)

    def peak(self, key: int) -> int | None:
        case = self.cases[key]
        peak = peak_bytes(case.call)
        return None if peak is None else max(0, peak - case.base)

    def drop(self, key: int) -> None:
        del self.cases[key]
        jax.clear_caches()


if __name__ == "__main__":
    serve(Cases(), WHY_NOT)
