"""Training on the device: the losses of the CPU, and a number of programs that does not grow with the steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft

Data = Callable[[], tuple[Tensor, Tensor]]
STEPS = 24


class LanguageModel(nn.Module):
    def __init__(self, cell: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.recurrent = getattr(nn, cell)(16, 24)
        self.out = nn.Linear(24, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.recurrent(self.embedding(tokens))[0])


class LoopedCell(nn.Module):
    """A loop in Python over single steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], 16)
        for step in x:
            h = self.cell(step, h)
        return self.out(h)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.embedding = nn.Embedding(32, 16)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers(self.embedding(tokens)))


def mlp() -> tuple[nn.Module, Data]:
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4))
    return model, lambda: (torch.randn(8, 12), torch.randint(4, (8,)))


def convolutions() -> tuple[nn.Module, Data]:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )
    return model, lambda: (torch.randn(4, 3, 10, 10), torch.randint(4, (4,)))


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(32, (7, 3)), torch.randint(32, (7, 3))


MODELS: dict[str, Callable[[], tuple[nn.Module, Data]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "encoder": lambda: (Encoder(), tokens),
    "gru": lambda: (LanguageModel("GRU"), tokens),
    "lstm": lambda: (LanguageModel("LSTM"), tokens),
    "looped_cell": lambda: (LoopedCell(), lambda: (torch.randn(6, 3, 8), torch.randint(4, (3,)))),
}
OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
}


def programs() -> int:
    return weft.device.stats()["programs"]


def train(step: Callable[[int], Tensor], steps: int = STEPS) -> tuple[list[float], list[int]]:
    """The losses, and the number of programs compiled by the end of each step."""
    losses, counts = [], []
    for index in range(steps):
        torch.manual_seed(index)
        losses.append(step(index).detach())
        weft.sync()
        counts.append(programs())
    return [float(loss) for loss in losses], counts


def check_training(on_cpu: list[float], on_device: list[float], counts: list[int], most: int = 3) -> None:
    """The losses are the CPU's, and all programs were compiled in the first steps."""
    torch.testing.assert_close(torch.tensor(on_device), torch.tensor(on_cpu), rtol=2e-4, atol=2e-5)
    assert counts[-1] == counts[7], "a program was compiled after the first steps"
    assert 1 <= counts[-1] - counts[0] <= most


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_as_on_the_cpu(name: str, optimizer: str) -> None:
    if (name in ("mlp", "gru")) < (optimizer in ("adam", "adagrad")):
        pytest.skip("optimizers are seen by two models")
    torch.manual_seed(0)
    model, data = MODELS[name]()

    def stepper(model: nn.Module, device: str) -> Callable[[int], Tensor]:
        model = copy.deepcopy(model).to(device)
        optimiser = OPTIMIZERS[optimizer](model.parameters())

        def step(_: int) -> Tensor:
            x, y = (tensor.to(device) for tensor in data())
            loss = functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            return loss

        return step

    on_cpu, _ = train(stepper(model, "cpu"))
    check_training(on_cpu, *train(stepper(model, "weft")))


def test_two_hundred_steps_are_one_program() -> None:
    model, data = mlp()
    model = model.to("weft")
    optimizer = torch.optim.Adam(model.parameters())

    def step(_: int) -> Tensor:
        x, y = (tensor.to("weft") for tensor in data())
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    before = weft.device.stats()
    train(step, 200)
    after = weft.device.stats()
    assert after["programs"] - before["programs"] == 1
    assert after["plain_batches"] - before["plain_batches"] <= 2  # the first step, and the first with a state
    assert after["compiled_batches"] - before["compiled_batches"] >= 198


def test_clipping_accumulation_schedule_and_average() -> None:
    torch.manual_seed(0)
    model, data = mlp()

    def stepper(model: nn.Module, device: str) -> Callable[[int], Tensor]:
        model = copy.deepcopy(model).to(device)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

        def step(_: int) -> Tensor:
            losses = []
            for _ in range(2):
                x, y = (tensor.to(device) for tensor in data())
                losses.append(functional.cross_entropy(model(x), y) / 2)
                losses[-1].backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            average.update_parameters(model)
            with torch.no_grad():
                return functional.cross_entropy(average(x), y) + sum(losses)

        return step

    on_cpu, _ = train(stepper(model, "cpu"))
    check_training(on_cpu, *train(stepper(model, "weft")))


def test_a_gan() -> None:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6))
    judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def stepper(device: str) -> Callable[[int], Tensor]:
        generator, critic = copy.deepcopy(maker).to(device), copy.deepcopy(judge).to(device)
        optimizers = [torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.9)) for m in (generator, critic)]

        def step(_: int) -> Tensor:
            real, noise = torch.randn(8, 6).to(device), torch.randn(8, 4).to(device)
            fake = generator(noise)
            ones, zeros = torch.ones(8, 1, device=device), torch.zeros(8, 1, device=device)
            judged = functional.binary_cross_entropy_with_logits(critic(real), ones)
            judged = judged + functional.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
            optimizers[1].zero_grad()
            judged.backward()
            optimizers[1].step()
            made = functional.binary_cross_entropy_with_logits(critic(fake), ones)
            optimizers[0].zero_grad()
            made.backward()
            optimizers[0].step()
            return judged + made

        return step

    on_cpu, _ = train(stepper("cpu"))
    check_training(on_cpu, *train(stepper("weft")))


def test_reinforcement_learning_with_item_in_the_loop() -> None:
    """REINFORCE on a small chain; episodes are as long as the actions make them."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))

    def stepper(device: str) -> Callable[[int], Tensor]:
        model = copy.deepcopy(policy).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        def step(_: int) -> Tensor:
            place, terms, reward = 2, [], 0.0
            for _ in range(6):
                chances = torch.distributions.Categorical(logits=model(torch.eye(5, device=device)[place]))
                action = chances.sample()
                terms.append(chances.log_prob(action))
                place += 1 if action.item() else -1
                if place in (0, 4):
                    reward = 1.0 if place == 4 else -1.0
                    break
            loss = -reward * torch.stack(terms).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    on_cpu, _ = train(stepper("cpu"), 40)
    on_device, _ = train(stepper("weft"), 40)
    torch.testing.assert_close(torch.tensor(on_device), torch.tensor(on_cpu), rtol=1e-3, atol=1e-4)


def test_other_sizes_are_the_same_program() -> None:
    torch.manual_seed(0)
    model, _ = convolutions()
    sizes = [8, 12, 10, 6, 9, 3, 7, 12, 8, 5]
    data = [(torch.randn(n, 3, 10, 10), torch.randint(4, (n,))) for n in sizes]

    def stepper(device: str) -> Callable[[int], Tensor]:
        trained = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)

        def step(index: int) -> Tensor:
            x, y = (tensor.to(device) for tensor in data[index])
            loss = functional.cross_entropy(trained(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    on_cpu, _ = train(stepper("cpu"), len(sizes))
    before = programs()
    on_device, counts = train(stepper("weft"), len(sizes))
    torch.testing.assert_close(torch.tensor(on_device), torch.tensor(on_cpu), rtol=2e-4, atol=2e-5)
    assert counts[-1] - before == 1, counts


def test_a_loop_that_never_syncs_is_cut() -> None:
    before = weft.device.stats()["compiled_batches"] + weft.device.stats()["plain_batches"]
    weft._C.device_longest_record(500)
    try:
        x = torch.zeros(3, device="weft")
        for _ in range(2000):
            x = x * 0.5 + 1
        assert weft.device.stats()["compiled_batches"] + weft.device.stats()["plain_batches"] - before >= 3
    finally:
        weft._C.device_longest_record(1 << 13)
    torch.testing.assert_close(x.cpu(), torch.full((3,), 2.0))


def test_an_update_takes_the_memory_of_the_parameter() -> None:
    """A step that fails leaves the parameter unchanged, also as a program."""
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 2)).to("weft")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(tokens: list[int]) -> Tensor:
        loss = model(torch.tensor(tokens).to("weft")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        weft.sync()
        return loss

    for _ in range(6):
        step([1, 2, 3])
    before = [parameter.cpu() for parameter in model.parameters()]
    with pytest.raises(IndexError, match="index out of range"):
        step([1, 2, 9])
    optimizer.zero_grad()
    for parameter, value in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.cpu(), value, rtol=0, atol=0)
    step([1, 2, 3])
    assert not torch.equal(model[1].weight.cpu(), before[1])
