"""Trains a policy with a memory on episodes that end at any time: a GRU cell, step by step, reset where one ends.

At an episode's first step the agent sees a cue; at each later step it is asked, now and then, to answer with the action
that the cue named. Episodes of the batch run side by side and end independently: `done` then restarts the state of that
one. The gradient is that of the expected reward, over all actions instead of sampled ones. Plain PyTorch;
`weft run examples/policy.py` runs it on Weft.
"""

import argparse
import sys
import time

import torch
from torch import nn

CUES = 4


class Environment:
    """A batch of episodes; a step gives what is seen, the right action (-1: none is asked for) and who starts anew."""

    def __init__(self, size: int) -> None:
        self.cues = torch.randint(CUES, (size,))
        self.done = torch.ones(size, dtype=torch.bool)

    def step(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        started = self.done
        self.cues = torch.where(started, torch.randint(CUES, self.cues.shape), self.cues)
        asked = (torch.rand(self.cues.shape) < 0.4) & ~started
        seen = nn.functional.one_hot(self.cues, CUES) * started[:, None]
        self.done = torch.rand(self.cues.shape) < 0.15
        return torch.cat([seen, asked[:, None]], dim=1).float(), torch.where(asked, self.cues, -1), started


class Policy(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.memory = nn.GRUCell(CUES + 1, width)
        self.action = nn.Linear(width, CUES)
        self.value = nn.Linear(width, 1)

    def forward(self, seen: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        state = self.memory(seen, state)
        return self.action(state).softmax(1), self.value(state)[:, 0], state


@torch.no_grad()
def accuracy(model: Policy) -> float:
    """The fraction of questions that are answered correctly, in episodes that weren't trained on."""
    environment, state = Environment(100), torch.zeros(100, model.width)
    answers = []
    for _ in range(40):
        seen, right, started = environment.step()
        chances, _, state = model(seen, state * ~started[:, None])
        answers.append((chances.argmax(1) == right)[right >= 0])
    return torch.cat(answers).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(0)
    model, environment = Policy(options.width), Environment(32)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = torch.zeros(32, options.width)
    begin = time.perf_counter()
    for step in range(options.steps):
        state, losses = state.detach(), []
        for _ in range(8):
            seen, right, started = environment.step()
            state = state * ~started[:, None]
            chances, value, state = model(seen, state)
            reward = nn.functional.one_hot(right.clamp(min=0), CUES) * (right >= 0)[:, None]
            expected = (chances * reward).sum(1)
            losses.append((0.5 * (value - expected.detach()) ** 2 - expected).mean())
        loss = torch.stack(losses).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step} loss {loss.item():.8f}")
        if step == 0:
            begin = time.perf_counter()  # what is done once is not counted
    seconds, how = time.perf_counter() - begin, "with" if "weft" in sys.modules else "without"
    print(f"accuracy {accuracy(model):.3f} on new episodes, {(options.steps - 1) / seconds:.1f} steps/s {how} Weft")


if __name__ == "__main__":
    main()
