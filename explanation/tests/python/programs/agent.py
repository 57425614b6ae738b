"""A recurrent policy plays: it acts step by step without gradients, and learns from its episodes."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.see, self.cell = nn.Linear(6, 32), nn.LSTMCell(32, 32)
        self.actor, self.critic = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, seen: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        h, c = self.cell(torch.tanh(self.see(seen)), state)
        return self.actor(h), self.critic(h), (h, c)


policy = Policy()


def act(seen: Tensor, ended: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    if ended.any():
        state = (state[0] * (1 - ended), state[1] * (1 - ended))
    logits, _, state = policy(seen, state)
    best = logits.argmax(-1)
    if logits.max().item() > 1e6:
        raise ValueError("the policy has diverged")
    return best, state


def learn(seen: Tensor, rewards: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
    losses = []
    for step in range(seen.shape[0]):
        logits, value, state = policy(seen[step], state)
        advantage = rewards[step] - value.squeeze(-1)
        losses.append(advantage.square().mean() - (logits.log_softmax(-1).amax(-1) * advantage.detach()).mean())
    return torch.stack(losses).mean()


def main() -> None:
    torch.manual_seed(0)
    acting, learning = torch.compile(act, backend=sys.argv[1]), torch.compile(learn, backend=sys.argv[1])
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    state = (torch.zeros(4, 32), torch.zeros(4, 32))
    seen = torch.randn(6, 4, 6)
    with torch.no_grad():
        for step in range(6):
            _, state = acting(seen[step], (torch.rand(4, 1) < 0.2).float(), state)
    learning(seen, torch.randn(6, 4), (torch.zeros(4, 32), torch.zeros(4, 32))).backward()
    optimizer.step()


if __name__ == "__main__":
    main()
