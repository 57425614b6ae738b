"""A program of the CPU that never names the device weft: it prints the same with `import weft` and without.

Idioms are those of PyTorch's tutorials, which choose a device by themselves: an accelerator if there is one.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

if "weft" in sys.argv[1:]:
    import weft  # noqa: F401


def say(name: str, *values: object) -> None:
    print(f"{name}:", *values)


def tried(name: str, call: object) -> None:
    """The result, or the first line of the error."""
    try:
        say(name, call())  # type: ignore[operator]
    except Exception as error:
        say(name, type(error).__name__, str(error).splitlines()[0])


def digest(tensor: torch.Tensor) -> list[float]:
    return [round(value, 4) for value in (tensor.double().sum().item(), tensor.double().abs().mean().item())]


# ---- which device


def choose_devices() -> None:
    accelerator = torch.accelerator
    say("quickstart", accelerator.current_accelerator().type if accelerator.is_available() else "cpu")
    say("current", accelerator.current_accelerator(), accelerator.current_accelerator(check_available=True))
    say("count", accelerator.device_count(), torch.cuda.device_count())
    say("default", torch.get_default_device(), torch.empty(1).device)
    tried("empty_cache", accelerator.empty_cache)
    tried("memory_allocated", accelerator.memory_allocated)
    tried("memory_stats", accelerator.memory_stats)
    tried("get_memory_info", accelerator.get_memory_info)
    tried("reset_peak_memory_stats", accelerator.reset_peak_memory_stats)
    tried("synchronize", accelerator.synchronize)
    tried("current_stream", accelerator.current_stream)
    tried("current_device_index", accelerator.current_device_index)
    tried("set_device_index", lambda: accelerator.set_device_index(0))
    tried("stream", torch.Stream)
    tried("pinned", lambda: torch.ones(2).is_pinned())
    tried("pin_memory", lambda: torch.ones(2).pin_memory())
    try:
        say("pinned factory", torch.empty(2, pin_memory=True).is_pinned())
    except RuntimeError:  # the error's words differ
        say("pinned factory", "none")
    tried("module", lambda: torch.get_device_module().__name__)


# ---- training, in the words of the quickstart


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.flatten(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.out = nn.Embedding(11, 8), nn.GRU(8, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.gru(self.embedding(x))[0][:, -1])


class Squares(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.linspace(0, i, 16).view(4, 4).square(), i % 4


def device_of_program() -> str:
    return torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


def train(loader: DataLoader, model: nn.Module, epochs: int) -> list[float]:
    device = device_of_program()
    model = model.to(device)
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
    return losses


def train_models() -> None:
    torch.manual_seed(0)
    model = Net()
    say("losses", train(DataLoader(Squares(), batch_size=8), model, 3))
    model.eval()
    with torch.no_grad():
        out = model(torch.ones(2, 4, 4).to(device_of_program()))
    say("numpy", out.numpy().shape, digest(out))
    say("devices", sorted({str(p.device) for p in model.parameters()}))
    data = TensorDataset(torch.randint(0, 11, (24, 6)), torch.randint(0, 4, (24,)))
    say("recurrent", train(DataLoader(data, batch_size=6), Recurrent(), 2))


def load_data() -> None:
    for options in ({}, {"num_workers": 1}, {"pin_memory": True}, {"num_workers": 1, "persistent_workers": True}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(DataLoader(Squares(), batch_size=9, **options))
        pinned = [batch[0].is_pinned() for batch in batches]
        said = sorted({str(each.message).splitlines()[0][:60] for each in caught if "pin" in str(each.message)})
        say("loader", options, [digest(x) for x, _ in batches], pinned, said)


# ---- models in parallel


def parallel() -> None:
    torch.manual_seed(1)
    model, x = Net().eval(), torch.randn(6, 4, 4)
    expected = model(x)
    for name, options in (("plain", {}), ("ids", {"device_ids": [0]})):
        replicated = nn.DataParallel(model, **options)
        say("data parallel", name, replicated.device_ids, torch.equal(replicated(x), expected))
        say("state", list(replicated.state_dict())[:2], {str(p.device) for p in replicated.parameters()})
        replicated(x).sum().backward()
        say("gradient", digest(model.layers[0].weight.grad))
    train_loss = train(DataLoader(Squares(), batch_size=8), nn.DataParallel(Net()), 2)
    say("trained in parallel", train_loss)
    tried("functional", lambda: nn.parallel.data_parallel(model, x))


# ---- checkpoints


def checkpoints(folder: str) -> None:
    torch.manual_seed(2)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4, 4)).sum().backward()
    optimizer.step()
    path = os.path.join(folder, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    loaded = torch.load(path)
    say("checkpoint", loaded["epoch"], {str(each.device) for each in loaded["model"].values()})
    other = Net()
    say("keys", other.load_state_dict(loaded["model"]))
    say("same", all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)))
    for location in ("cpu", torch.device("cpu"), lambda storage, place: storage, {"cuda:0": "cpu"}):
        say("location", {str(each.device) for each in torch.load(path, map_location=location)["model"].values()})
    say("mapped", torch.load(path, mmap=True)["model"]["layers.0.weight"].shape)
    whole = io.BytesIO()
    torch.save(model, whole)
    whole.seek(0)
    say("whole", digest(torch.load(whole, weights_only=False).layers[0].weight))
    old = io.BytesIO()
    torch.save(model.state_dict(), old, _use_new_zipfile_serialization=False)
    old.seek(0)
    say("old", digest(torch.load(old)["layers.0.weight"]))
    say("pickle", digest(pickle.loads(pickle.dumps(model)).layers[0].weight))
    say("copy", digest(copy.deepcopy(model).layers[0].weight))


# ---- what else asks for a device


def mixed_precision() -> None:
    torch.manual_seed(3)
    model, x = Net().eval(), torch.randn(4, 4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        say("autocast", model(x).dtype)
    with torch.amp.autocast("cpu", enabled=False):
        say("autocast off", model(x).dtype)
    tried("scaler", lambda: torch.amp.GradScaler("cpu").is_enabled())


def random_numbers() -> None:
    torch.manual_seed(4)
    say("random", digest(torch.randn(5)))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        say("forked", digest(torch.randn(5)))
    say("after", digest(torch.randn(5)))
    say("seed", torch.initial_seed(), torch.get_rng_state().shape)
    generator = torch.Generator().manual_seed(6)
    say("generator", digest(torch.rand(3, generator=generator)), generator.device)


def checkpointed() -> None:
    torch.manual_seed(7)
    layer, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    for reentrant in (False, True):
        y = torch.utils.checkpoint.checkpoint(lambda x: torch.dropout(layer(x), 0.5, True), x, use_reentrant=reentrant)
        y.sum().backward()
        say("checkpointed", digest(y), digest(x.grad))


def compiled() -> None:
    torch.manual_seed(8)
    model, x = Net().eval(), torch.ones(2, 4, 4)
    step = torch.compile(lambda x: model(x) if not torch.accelerator.is_available() else x, backend="eager")
    say("compiled", digest(step(x)))


def profiled() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(3).add(1)
    say("profiled", sorted({event.key for event in profile.key_averages()} & {"aten::add", "aten::ones"}))
    say("activities", sorted(str(each) for each in torch.profiler.supported_activities() if "CPU" in str(each)))


def printed() -> None:
    torch.set_printoptions(precision=3)
    print(torch.linspace(0, 1, 4), torch.ones(2, 2, requires_grad=True), f"{torch.tensor(1.5):.3f}")
    torch.set_printoptions(profile="default")
    print(torch.arange(2000.0), nn.Linear(2, 2))


def main() -> None:
    torch.set_num_threads(1)
    choose_devices()
    train_models()
    load_data()
    parallel()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints(folder)
    mixed_precision()
    random_numbers()
    checkpointed()
    compiled()
    profiled()
    printed()
    choose_devices()


if __name__ == "__main__":
    main()
