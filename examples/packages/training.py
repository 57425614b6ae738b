"""Shared by the examples' trainings: how long they go on, and one step of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from torch import Tensor, nn
from torch.optim import Adam


class Training:
    """Adam for so many seconds, or `most` steps if that is sooner. The rate falls as half a cosine, to a fiftieth."""

    def __init__(self, model: nn.Module, rate: float, seconds: float, most: int | None) -> None:
        self.losses: list[float] = []
        self._model, self._rate, self._seconds, self._most = model, rate, seconds, most
        self._optimiser = Adam(model.parameters(), lr=rate)
        self._begin = time.perf_counter()

    def part(self) -> float:
        """The fraction of the training that is done: at 1 it ends."""
        spent = (time.perf_counter() - self._begin) / self._seconds
        return spent if self._most is None else max(spent, len(self.losses) / self._most)

    def parts(self) -> Iterator[float]:
        """Before each step the part that is over, 0 before the first."""
        part = 0.0
        while part < 1:
            yield part
            part = self.part()

    def step(self, loss: Tensor, part: float, told: Tensor | None = None, clip: float = 1.0) -> None:
        """Follows the gradient of the loss, whose norm is `clip` at most. `told`: the loss that is kept, if another."""
        self._optimiser.param_groups[0]["lr"] = self._rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * part)))
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), clip)
        self._optimiser.step()
        self.losses.append((loss if told is None else told).item())
