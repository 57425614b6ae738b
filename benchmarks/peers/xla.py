"""XLA:CPU through jax.lax.scan, its input projection outside the loop.

XLA reads its flags once in a process, so each setting of them has a process of its own (xla_worker.py), which sleeps
while others are timed."""

from __future__ import annotations

from cases import Case, Data
from peers import Prepared, Result, fastest, float32_only, one_layer_only
from peers.process import Worker

ONE_KERNEL = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"


def worker(script: str, flags: str) -> Worker:
    """A process that runs jax with some XLA_FLAGS. With N cores allowed XLA makes itself N threads."""
    return Worker(script, XLA_FLAGS=flags, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")


class Remote(Prepared):
    """A case prepared in a worker, which does the timing itself."""

    def __init__(self, worker: Worker, case: Case, data: Data, unroll: int) -> None:
        self.worker = worker
        arrays = {
            "x": data.x.numpy(),
            "states": [state.numpy()[0] for state in data.states],
            "weights": [weight.numpy() for weight in data.weights],
            "cotangent": data.cotangent.numpy(),
        }
        self.key = worker.ask("prepare", case.cell, case.mode, arrays, unroll)
        super().__init__(lambda: self.time(0), self._result)

    def _result(self) -> Result:
        return self.worker.ask("result", self.key)

    def time(self, seconds: float) -> list[float]:
        return self.worker.ask("time", self.key, seconds)

    def peak(self, base: int) -> int | None:
        return self.worker.ask("peak", self.key)

    def close(self) -> None:
        self.worker.ask("drop", self.key)


class Xla:
    name = "xla"

    def __init__(self, thorough: bool) -> None:
        """`thorough`: tries unrolling by 1, 4 and 8, with and without the loop as one kernel; else only by 1."""
        self.unrolls = (1, 4, 8) if thorough else (1,)
        self.workers: dict[str, Worker] = {}

    def prepare(self, case: Case, data: Data) -> Prepared:
        float32_only(case)
        one_layer_only(case)
        variants = {}
        for label, flags in (("", ""), (" one kernel", ONE_KERNEL)):
            if label not in self.workers:
                self.workers[label] = worker("xla_worker.py", flags)
            for unroll in self.unrolls:
                variants[f"unroll {unroll}{label}"] = lambda worker=self.workers[label], unroll=unroll: Remote(
                    worker, case, data, unroll
                )
        return fastest(variants)
