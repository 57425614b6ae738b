"""Trains a policy with a memory on episodes that end at any time: a GRU cell, step by step, reset where one ends.

At an episode's first step the agent sees a cue; at each later step it is asked, now and then, to answer with the action
that the cue named. Episodes of the batch run side by side and end independently: `done` then restarts the state of that
one. The gradient is that of the expected reward, over all actions instead of sampled ones. Plain PyTorch;
`weft run examples/policy.py` runs it on Weft.
"""

import argparse

import torch
from ending import evaluation, report
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


def share_of_right_answers(model: Policy, steps: int) -> float:
    """Of the most likely actions, in new episodes."""
    environment, state = Environment(32), torch.zeros(32, model.width)
    right_ones, asked = 0, 0
    with evaluation(model):
        for _ in range(steps):
            seen, right, started = environment.step()
            chances, _, state = model(seen, state * ~started[:, None])
            right_ones += int((chances.argmax(1) == right).sum())
            asked += int((right >= 0).sum())
    return right_ones / asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(0)
    model, environment = Policy(options.width), Environment(32)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = torch.zeros(32, options.width)

    def train_step() -> float:
        nonlocal state
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
        return loss.item()

    for step in range(options.steps):
        print(f"step {step} loss {train_step():.8f}")
    report(share_of_right_answers(model, 100), "the answers asked for in 100 steps of 32 episodes", train_step)


if __name__ == "__main__":
    main()
