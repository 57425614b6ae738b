"""A magnetic bearing that falls to one side without control, and a policy with a memory that holds it."""

from __future__ import annotations

import torch
from packages.training import Training
from torch import Tensor, nn

import weft

#: The bearing's changes in a step of 0.1 ms: how its position, the coil's current and the load change its speed; and
#: the noise.
PULL, COIL, LOAD, NOISE = 0.01, 0.02, 0.004, 0.02

Carry = dict[str, Tensor]
Held = tuple[Tensor, Tensor, Tensor, Carry]  #: position, speed, current, and the policy's memory


class Policy(nn.Module):
    """Maps measurements (position, the last current) to a current in -1..1, and to the expected cost of the rest."""

    mean: Tensor
    scale: Tensor

    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("scale", torch.ones(2))
        self.front = nn.Linear(2, 24)
        self.memory = nn.LSTMCell(24, hidden)
        self.current, self.value = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def start(self, *rows: int) -> Carry:
        zeros = torch.zeros(*rows, self.memory.hidden_size)
        return {"h": zeros, "c": zeros.clone()}

    def step(self, carry: Carry, seen: Tensor) -> tuple[Carry, dict[str, Tensor]]:
        """[.., 2] -> the current [..] and the value [..]."""
        x = torch.tanh(self.front((seen - self.mean) * self.scale))
        h, c = self.memory(x, (carry["h"], carry["c"]))
        current = torch.tanh(self.current(h)).squeeze(-1)
        return {"h": h, "c": c}, {"current": current, "value": self.value(h).squeeze(-1)}

    def normalise_as(self, seen: Tensor) -> None:
        """Sets the network's normalisation so that measurements `seen`, [.., 2], have mean 0 and deviation 1."""
        self.mean.copy_(seen.flatten(0, -2).mean(0))
        self.scale.copy_(1 / seen.flatten(0, -2).std(0).clamp(min=1e-3))


def episode(policy: Policy, noise: Tensor, load: Tensor, position: Tensor) -> dict[str, Tensor]:
    """Runs bearings with these loads from these positions, [rows] each, with this measurement noise, [T, rows]. Returns
    the measurements, [T, rows, 2], and positions, currents and values, [T, rows]."""

    def step(carry: Held, noise: Tensor) -> tuple[Held, dict[str, Tensor]]:
        position, speed, current, memory = carry
        seen = torch.stack([position + NOISE * noise, current], -1)
        memory, said = policy.step(memory, seen)
        speed = speed + PULL * position + COIL * said["current"] + LOAD * load
        position = position + speed
        return (position, speed, said["current"], memory), {"seen": seen, "position": position, **said}

    zeros = torch.zeros_like(position)
    found: dict[str, Tensor] = weft.scan(step, (position, zeros, zeros, policy.start(len(load))), noise)[1]
    return found


def episodes(rows: int, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Noise, loads and positions to begin with."""
    load, position = 2 * torch.rand(2, rows, generator=generator) - 1
    return torch.randn(steps, rows, generator=generator), load, 0.3 * position


def cost_of(found: dict[str, Tensor]) -> Tensor:
    """The cost, [T, rows]: the position's square, but growing more slowly far away, so that a bearing that fell still
    teaches."""
    square = found["position"].square()
    return torch.log1p(10 * square) + 0.002 * found["current"].square()


def train(policy: Policy, seconds: float, most: int | None = None) -> list[float]:
    """Trains through the bearing's equations, for so many seconds or `most` times; the mean costs. Episodes grow from
    40 steps to 200. The value learns the sum of costs to come, of which each step counts 0.97 of the one before."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        policy.normalise_as(episode(policy, *episodes(64, 20, generator))["seen"])
    training = Training(policy, 3e-3, seconds, most)
    for part in training.parts():
        found = episode(policy, *episodes(64, 40 if part < 0.3 else 100 if part < 0.6 else 200, generator))
        cost = cost_of(found)
        to_come = torch.zeros_like(cost[0])
        wanted = []
        for each in reversed(cost.detach().unbind(0)):
            to_come = each + 0.97 * to_come
            wanted.append(to_come)
        loss = cost.mean() + 0.01 * (found["value"] - torch.stack(wanted[::-1])).square().mean()
        training.step(loss, part, told=cost.mean(), clip=0.3)
    return training.losses
