"""The model, and a step of its training."""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .text import Streams, Text

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
State = Any  # a tensor, or LSTM's pair


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings in which a checkpoint and the run that resumes it must agree."""

    cell: str = "gru"
    layers: int = 1
    width: int = 256
    batch: int = 16
    length: int = 128
    seed: int = 1
    rate: float = 2e-3
    clip: float = 1.0


class CharModel(nn.Module):
    """Embedding, recurrence, linear: indices [T, B] and a state to logits [T, B, characters] and the next state."""

    def __init__(self, characters: int, cell: str, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.rnn = CELLS[cell](width, width, layers)
        self.linear = nn.Linear(width, characters)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.rnn(self.embedding(x), state)
        return self.linear(y), state

    def zero_state(self, batch: int) -> State:
        h = torch.zeros(self.rnn.num_layers, batch, self.rnn.hidden_size)
        return (h, h.clone()) if isinstance(self.rnn, nn.LSTM) else h


def loss_of(model: CharModel, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, State]:
    """The mean cross entropy in nats a character, and the next state without its gradient."""
    logits, state = model(x, state)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    return loss, tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


@dataclasses.dataclass
class Training:
    """Everything that changes during training. `state` is carried to step `step`."""

    config: Config
    model: CharModel
    optimizer: torch.optim.Optimizer
    state: State
    step: int = 0
    losses: list[float] = dataclasses.field(default_factory=list)  #: one a step, from step 0
    speeds: list[float] = dataclasses.field(default_factory=list)  #: characters a second, one a step
    validations: list[tuple[int, float]] = dataclasses.field(default_factory=list)  #: (step, loss)


def new_training(config: Config, characters: int) -> Training:
    torch.manual_seed(config.seed)
    model = CharModel(characters, config.cell, config.layers, config.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.rate, fused=True)
    return Training(config, model, optimizer, model.zero_state(config.batch))


def copy_of(training: Training) -> Training:
    """An independent copy, for the same steps once more."""
    fresh = new_training_like(training)
    fresh.model.load_state_dict(training.model.state_dict())
    fresh.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    return fresh


def new_training_like(training: Training) -> Training:
    rng = torch.get_rng_state()
    fresh = new_training(training.config, training.model.embedding.num_embeddings)
    torch.set_rng_state(rng)
    return dataclasses.replace(
        fresh,
        state=copy.deepcopy(training.state),
        step=training.step,
        losses=list(training.losses),
        speeds=list(training.speeds),
    )


def train_step(training: Training, loss_fn: Callable[..., tuple[Tensor, State]], data: Streams) -> float:
    """One optimiser step; returns its loss and appends loss and speed."""
    start = time.perf_counter()
    x, y, restart = data.window(training.step)
    state = training.model.zero_state(training.config.batch) if restart else training.state
    training.optimizer.zero_grad(set_to_none=True)
    loss, training.state = loss_fn(training.model, x, y, state)
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), training.config.clip)
    training.optimizer.step()
    training.step += 1
    training.losses.append(loss.item())
    training.speeds.append(x.numel() / (time.perf_counter() - start))
    return training.losses[-1]


def held_out_streams(text: Text, config: Config) -> Streams:
    """The validation text, in fewer or shorter streams if it is too short for those of training."""
    length = min(config.length, len(text.validation) - 1)
    return Streams(text.validation, min(config.batch, (len(text.validation) - 1) // length), length)


@torch.no_grad()
def validate(training: Training, data: Streams) -> float:
    """The loss over the whole validation text. It doesn't use the compiled graph, which so stays the only one."""
    state, total = training.model.zero_state(data.inputs.shape[1]), 0.0
    for window in range(data.windows):
        x, y, _ = data.window(window)
        loss, state = loss_of(training.model, x, y, state)
        total += loss.item()
    training.validations.append((training.step, total / data.windows))
    return total / data.windows


@torch.no_grad()
def sample(model: CharModel, characters: str, count: int, temperature: float = 0.7) -> str:
    """Text that the model writes, with a random generator of its own, so that training's random numbers stay the
    same."""
    generator = torch.Generator().manual_seed(0)
    state, x, text = model.zero_state(1), torch.tensor([[characters.index("\n")]]), []
    for _ in range(count):
        logits, state = model(x, state)
        x = torch.multinomial((logits[0] / temperature).softmax(-1), 1, generator=generator)
        text.append(characters[int(x)])
    return "".join(text)


def recent(values: list[float], count: int = 50) -> float:
    return statistics.fmean(values[-count:]) if values else math.nan


def steady_speed(training: Training, first: int) -> float:
    """The median speed in characters a second from step `first` on, without the first ones, which compile."""
    speeds = training.speeds[first:]
    return statistics.median(speeds[3:] or speeds) if speeds else math.nan
