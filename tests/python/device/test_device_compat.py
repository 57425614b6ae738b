"""weft.compat.torch_xla, and docs/from-torch-xla.md, whose programs run."""

from __future__ import annotations

import collections
import dataclasses
import re
import threading
import time
import types
from pathlib import Path

import pytest
import torch
from oracles import assert_close_on_cpu
from torch import nn

import weft
import weft.compat.torch_xla as torch_xla
import weft.compat.torch_xla.core.xla_model as xm
import weft.compat.torch_xla.debug.metrics as met
import weft.compat.torch_xla.distributed.parallel_loader as pl
import weft.compat.torch_xla.distributed.xla_multiprocessing as xmp
import weft.compat.torch_xla.runtime as xr
from weft.compat.torch_xla import amp
from weft.compat.torch_xla._data import tensors_in
from weft.compat.torch_xla.distributed import spmd
from weft.compat.torch_xla.experimental import custom_kernel, gradient_accumulation
from weft.compat.torch_xla.experimental.scan import scan
from weft.compat.torch_xla.experimental.scan_layers import scan_layers

PAGE = Path(__file__).parents[3] / "docs" / "from-torch-xla.md"


# ---- the page


def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def afters():
    return [block for block in blocks() if "weft.compat" in block]


def needs_autocast(block):
    return "autocast" in block and not torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm", "AutocastPrivateUse1")


@pytest.mark.parametrize("number", range(len(afters())))
def test_the_programs_of_the_page_run(number):
    block = afters()[number]
    if needs_autocast(block):
        pytest.skip("the device has no autocast")
    names = {}
    exec(compile(block, f"{PAGE.name}:{number}", "exec"), names)
    losses = names["losses"]
    assert losses[-1] < losses[0]


def test_each_program_of_the_page_has_its_before():
    befores = [block for block in blocks() if "import torch_xla" in block and "weft.compat" not in block]
    assert len(befores) == len(afters()) >= 5


# ---- the device and steps


def test_the_device():
    assert xm.xla_device() == torch_xla.device() == torch_xla.device(0) == torch.device("weft:0")
    assert torch_xla.devices() == [torch.device("weft:0")]
    assert xm.get_xla_supported_devices() == ["weft:0"]
    assert xm.get_xla_supported_devices("TPU") is None
    assert xm.xla_device_hw(xm.xla_device()) == xr.device_type() == "CPU"
    assert torch_xla.device_count() == xr.world_size() == xm.xrt_world_size() == 1
    assert xr.global_ordinal() == xm.get_ordinal() == 0
    assert xm.is_xla_tensor(torch.ones(2, device="weft")) and not xm.is_xla_tensor(torch.ones(2))
    with pytest.raises(IndexError, match="out of range"):
        torch_xla.device(1)


@pytest.mark.parametrize("end", [xm.mark_step, torch_xla.sync, lambda: xm.rendezvous("here")])
def test_the_end_of_a_step_runs_it_and_its_closures(end):
    x = torch.ones(2, device=xm.xla_device()) + 1
    seen = []
    xm.add_step_closure(lambda tensor, name: seen.append((name, tensor.tolist())), args=(x, "x"))
    assert weft.device.memory_stats()["pending"] > 0
    assert seen == []
    end()
    assert weft.device.memory_stats()["pending"] == 0
    assert seen == [("x", [2, 2])]
    end()
    assert len(seen) == 1


def test_closures_in_another_thread():
    begun, may_end, seen = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert may_end.wait(60)
        seen.append(threading.get_ident())
        raise ValueError("of a closure")

    xm.add_step_closure(slow, run_async=True)
    xm.mark_step()
    assert begun.wait(60) and seen == []
    may_end.set()
    with pytest.raises(ValueError, match="of a closure"):
        while True:
            xm.add_step_closure(lambda: time.sleep(0.01), run_async=True)
            xm.mark_step()
    assert seen != [threading.get_ident()]


def accumulated_by_hand(model, step, x, y, carried):
    """As in PyTorch/XLA's own test: plain PyTorch, each loss divided by the number of slices."""
    total = torch.zeros(())
    for i in range(len(x)):
        loss, carried = step(model, x[i], y[i], carried)
        loss = loss / len(x)
        loss.backward()
        total += loss.detach()
    return total, carried


@pytest.mark.parametrize("device", ["cpu", "weft"])
@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("has_gradients", [False, True])
def test_gradient_accumulation(device, slices, has_gradients):
    torch.manual_seed(0)
    x, y, carried = torch.randn(slices, 4, 5), torch.randn(slices, 4, 2), torch.tensor(10)
    models = nn.Linear(5, 2), nn.Linear(5, 2)
    models[1].load_state_dict(models[0].state_dict())
    models[1].to(device)
    if has_gradients:
        for model in models:
            for p in model.parameters():
                p.grad = torch.ones_like(p)

    def step(model, x, y, count):
        return nn.functional.mse_loss(model(x), y), count + x.shape[0]

    expected = accumulated_by_hand(models[0], step, x, y, carried)
    found = gradient_accumulation.gradient_accumulation(
        lambda *args: step(models[1], *args), (x.to(device), y.to(device)), models[1], carried.to(device)
    )
    for got, wanted in zip(found, expected, strict=True):
        assert_close_on_cpu(got, wanted)
        assert got.dtype == wanted.dtype and got.device.type == device
    for got, wanted in zip(models[1].parameters(), models[0].parameters(), strict=True):
        assert_close_on_cpu(got.grad, wanted.grad)


def test_gradient_accumulation_leaves_what_has_no_part_in_it():
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)]).to("weft")
    model[0].bias.requires_grad_(False)
    seen = []

    def step(x):
        seen.append(model[0].weight.grad)
        return model[0](x).sum()

    for _ in range(2):
        total = gradient_accumulation.gradient_accumulation(step, [torch.ones(3, 4, 2, device="weft")], model)
        assert total.shape == ()
    assert seen == [None] * 6
    assert model[0].weight.grad.tolist() == [[8, 8]]
    assert model[0].bias.grad is None and model[1].weight.grad is None


@pytest.mark.parametrize("device", ["cpu", "weft"])
@pytest.mark.parametrize("what", ["slice", "carried", "parameter"])
def test_gradient_accumulation_refuses_steps_that_change_their_arguments(device, what):
    model, x, count = nn.Linear(2, 1).to(device), torch.ones(3, 4, 2, device=device), torch.zeros((), device=device)

    def step(x, count):
        loss = model(x).sum()
        with torch.no_grad():
            {"slice": x, "carried": count, "parameter": model.bias}[what].add_(1)
        return loss, count

    message = {"slice": "argument 0", "carried": "argument 1", "parameter": "parameter 1 of the model"}[what]
    with pytest.raises(AssertionError, match=f"train_step changes {message} in place"):
        gradient_accumulation.gradient_accumulation(step, (x,), model, count)
    assert count.item() == 0 and x.sum().item() == 24 and model.weight.grad is None


def test_what_gradient_accumulation_refuses():
    model, x = nn.Linear(5, 2), torch.randn(3, 4, 5)
    for tensors, message in [
        ((x, x[:2]), "Element 1 of iterable_tensors has inconsistent first dimension"),
        ((), "cannot be empty"),
        ((x, 1), "Element 1 of iterable_tensors is not a tensor"),
        ((x[:0],), "Element 0 of iterable_tensors is empty"),
    ]:
        with pytest.raises(ValueError, match=message):
            gradient_accumulation.gradient_accumulation(lambda *args: model(x).sum(), tensors, model)
    with pytest.raises(ValueError, match="gives 0 carried tensors, and takes 1"):
        gradient_accumulation.gradient_accumulation(lambda x, c: model(x).sum(), (x,), model, x)


def test_optimizer_step_returns_what_the_optimizer_does():
    p = nn.Parameter(torch.ones(2, device="weft"))
    p.grad = torch.ones(2, device="weft")
    loss = xm.optimizer_step(torch.optim.SGD([p], lr=0.5), barrier=True, optimizer_args={"closure": lambda: 7})
    assert loss == 7
    assert p.tolist() == [0.5, 0.5]


def test_one_replica():
    x = torch.ones(2, device="weft")
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    assert total is not x and total.tolist() == [1, 1]
    gathered = xm.all_gather(x)
    assert gathered is not x and gathered.tolist() == [1, 1]
    gathered += 1
    assert x.tolist() == [1, 1]
    assert xm.mesh_reduce("loss", x, lambda values: sum(v.sum().item() for v in values)) == 2
    assert xm.rendezvous("tag", b"mine") == [b"mine"]
    got = []
    xmp.spawn(lambda index, name: got.append((index, name)), args=("a",))
    torch_xla.launch(lambda index: got.append(index))
    assert got == [(0, "a"), 0]


def test_save_is_for_the_cpu(tmp_path):
    model = nn.Linear(2, 3).to("weft")
    xm.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt")
    assert loaded["epoch"] == 3
    assert loaded["model"]["weight"].device.type == "cpu"
    assert_close_on_cpu(loaded["model"]["weight"], model.weight)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    names: list


@dataclasses.dataclass(frozen=True)
class Fixed:
    x: torch.Tensor


@dataclasses.dataclass(slots=True)
class Slots:
    x: torch.Tensor


class Encoding(collections.UserDict):
    """As transformers' BatchEncoding, whose tensors are in an attribute."""


class Labelled(dict):
    """An object with a tensor besides its items."""


Pair = collections.namedtuple("Pair", ["x", "n"])


def of_many_kinds():
    x = torch.arange(6.0).view(2, 3)
    labelled = Labelled(x=x)
    labelled.label = x
    return {
        "tuple": (x, 1),
        "list": [x, [x, None]],
        "named tuple": Pair(x, 2),
        "dict": {"x": x, 3: "three"},
        "ordered": collections.OrderedDict(x=x),
        "default": collections.defaultdict(list, x=x),
        "encoding": Encoding(x=x),
        "labelled": labelled,
        "dataclass": Batch(x, ["a"]),
        "frozen": Fixed(x),
        "slots": Slots(x),
        "object": types.SimpleNamespace(x=x, within=Batch(x, [])),
        "packed": nn.utils.rnn.pack_sequence([x, x[:1]]),
        "packed, sorted": nn.utils.rnn.pack_sequence([x[:1], x], enforce_sorted=False),
        "set": {x},
        "nothing": (None, 1, "a", print, nn.Linear, re),
    }


def kinds_of(data):
    return [tensor.device.type for tensor in tensors_in(data)]


@pytest.mark.parametrize("name", of_many_kinds())
def test_data_of_many_kinds_is_sent_to_the_device_and_saved(name, tmp_path):
    data = of_many_kinds()[name]
    with_lengths = isinstance(data, nn.utils.rnn.PackedSequence)
    for sent in (
        xm.send_cpu_data_to_device(data, xm.xla_device()),
        *pl.MpDeviceLoader([data], xm.xla_device()),
    ):
        assert type(sent) is type(data)
        places = kinds_of(sent)
        assert len(places) == len(kinds_of(data)) and places.count("cpu") == with_lengths
        assert set(kinds_of(data)) <= {"cpu"}, "the loader's own data moved"
        for got, wanted in zip(tensors_in(sent), tensors_in(data), strict=True):
            assert_close_on_cpu(got, wanted)
        if name != "nothing":
            xm.save(sent, tmp_path / "data.pt")
            loaded = torch.load(tmp_path / "data.pt", weights_only=False)
            assert type(loaded) is type(data) and set(kinds_of(loaded)) == {"cpu"}
            for got, wanted in zip(tensors_in(loaded), tensors_in(data), strict=True):
                assert_close_on_cpu(got, wanted)


def test_sent_data_keeps_what_is_shared_and_what_holds_itself():
    x = torch.ones(2)
    loop = [x, x]
    loop.append(loop)
    sent = xm.send_cpu_data_to_device(loop, "weft")
    assert sent is not loop and sent[2] is sent and sent[0] is sent[1] and sent[0].is_weft and loop[0] is x
    packed = xm.send_cpu_data_to_device(of_many_kinds()["packed, sorted"], "weft")
    gru = nn.GRU(3, 2)
    expected = gru(of_many_kinds()["packed, sorted"])[1]
    assert_close_on_cpu(gru.to("weft")(packed)[1], expected)
    (only,) = xm.send_cpu_data_to_device(x, "weft")
    assert only.is_weft


def test_saved_modules_are_the_cpus(tmp_path):
    model = nn.Sequential(nn.GRU(2, 3), nn.BatchNorm1d(3)).to("weft")
    xm.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert {each.device.type for each in (*loaded.parameters(), *loaded.buffers())} == {"cpu"}
    assert all(isinstance(each, nn.Parameter) and each.requires_grad for each in loaded.parameters())
    assert_close_on_cpu(loaded[0](torch.ones(1, 1, 2))[0], model[0](torch.ones(1, 1, 2, device="weft"))[0])
    assert all(each.is_weft for each in model.parameters())


def test_seeds():
    torch_xla.manual_seed(3)
    first = torch.rand(3, device="weft")
    xm.set_rng_state(3)
    assert torch.equal(first, torch.rand(3, device="weft"))


def test_memory():
    x = torch.ones(1 << 10, device="weft") + 1
    torch_xla.sync()
    info = xm.get_memory_info(xm.xla_device())
    assert 4 << 10 <= info["bytes_used"] <= info["peak_bytes_used"] <= info["bytes_limit"]
    del x
    assert xm.get_memory_info()["bytes_used"] <= info["bytes_used"] - (4 << 10)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: xmp.spawn(print, nprocs=2), "leave nprocs out"),
        (lambda: xr.use_spmd(), "without it"),
        (lambda: spmd.Mesh([0], (1,)), "without it"),
        (lambda: spmd.mark_sharding(None, None, None), "without it"),
        (lambda: custom_kernel.flash_attention(1, 2, 3), "scaled_dot_product_attention"),
        (lambda: xm.xla_device(devkind="TPU"), "leave devkind out"),
        (lambda: xr.set_device_type("TPU"), "the device is the CPU"),
        (lambda: xm.reduce_scatter(), "torch.distributed"),
        (lambda: xm.get_stablehlo(), "WEFT_DUMP"),
        (lambda: torch_xla.experimental.eager_mode(True), "drop the call"),
        (lambda: pl.ParallelLoader([], ["weft:0", "weft:0"]), "one device"),
        (lambda: scan(lambda c, x: (c, x), torch.ones(2), torch.ones(3, 2), partition_fn=print), "default_partition"),
    ],
)
def test_what_is_missing_says_what_to_do_instead(call, sentence):
    with pytest.raises(NotImplementedError, match=f"weft.compat.torch_xla: there is no .*{sentence}"):
        call()


# ---- loaders


def test_a_loader_moves_batches_and_ends_steps():
    batches = [{"x": torch.full((2, 3), float(i)), "n": i} for i in range(3)]
    loader = pl.MpDeviceLoader(batches, xm.xla_device())
    assert len(loader) == 3
    met.clear_all()
    seen = []
    for batch in loader:
        assert batch["x"].device.type == "weft"
        assert weft.device.memory_stats()["pending"] == 0
        seen.append((batch["n"], batch["x"] + 1))
    assert [(n, x[0, 0].item()) for n, x in seen] == [(0, 1), (1, 2), (2, 3)]
    assert met.counter_value("MarkStep") == 4
    per_device = pl.ParallelLoader(batches, [xm.xla_device()]).per_device_loader(xm.xla_device())
    assert sum(batch["n"] for batch in per_device) == 3


def test_a_loader_can_leave_out_a_last_smaller_batch():
    batches = [torch.ones(4, 2), torch.ones(4, 2), torch.ones(1, 2)]
    assert len(list(pl.MpDeviceLoader(batches, "weft", fixed_batch_size=True))) == 2


def test_batches_that_are_one_step():
    met.clear_all()
    list(pl.MpDeviceLoader([torch.ones(2)] * 4, "weft", batches_per_execution=2))
    assert met.counter_value("MarkStep") == 3


# ---- compile


def test_compile_is_a_function_a_decorator_and_a_context():
    def double(x):
        return x * 2

    @torch_xla.compile
    def add(x):
        """Adds."""
        return x + 1

    @torch_xla.compile(full_graph=True)
    def square(x):
        return x * x

    x = torch.full((3,), 3.0, device="weft")
    for fn, result in ((torch_xla.compile(double), 6), (add, 4), (square, 9), (torch_xla.compile(nn.ReLU()), 3)):
        y = fn(x)
        assert weft.device.memory_stats()["pending"] == 0
        assert y.tolist() == [result] * 3
    with torch_xla.compile():
        y = double(x)
        assert weft.device.memory_stats()["pending"] > 0
    assert weft.device.memory_stats()["pending"] == 0
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


def test_full_graph_refuses_what_asks_for_values():
    @torch_xla.compile(full_graph=True)
    def step(x):
        return x + 1 if (x * 2).sum().item() > 0 else x

    with pytest.raises(RuntimeError, match=r"asks? for values.*_local_scalar_dense at test_device_compat.py:\d+"):
        step(torch.ones(2, device="weft"))


def test_at_most_so_many_different_programs():
    step = torch_xla.compile(lambda x: x.cos() * 2 + 41, max_different_graphs=1)
    for _ in range(3):
        step(torch.ones(17, device="weft"))
    with pytest.raises(RuntimeError, match="max_different_graphs is 1"):
        step(torch.ones(17, 3, 5, device="weft"))


# ---- scan


def test_scan():
    xs = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device="weft", requires_grad=True)
    last, ys = scan(lambda carry, x: (carry + x, carry + x), torch.zeros(2, device="weft"), xs)
    assert last.tolist() == [9, 12]
    assert ys.tolist() == [[1, 2], [4, 6], [9, 12]]
    ys.sum().backward()
    assert xs.grad.tolist() == [[3, 3], [2, 2], [1, 1]]
    with pytest.raises(ValueError, match="empty PyTree"):
        scan(lambda c, x: (c, x), torch.zeros(2), [])


def test_scan_that_does_steps_again():
    from functorch.compile import default_partition, min_cut_rematerialization_partition

    xs = torch.randn(9, 4, device="weft")
    results = []
    for partition in (default_partition, min_cut_rematerialization_partition):
        x = xs.clone().requires_grad_()
        last, _ = scan(lambda h, x: (torch.tanh(h + x), None), torch.zeros(4, device="weft"), x, partition_fn=partition)
        last.sum().backward()
        results.append(x.grad)
    assert_close_on_cpu(*results)


class Block(nn.Module):
    def __init__(self, width, p=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(p)

    def forward(self, x):
        return x + self.dropout(self.second(torch.relu(self.first(self.norm(x)))))


@pytest.mark.parametrize("device", ["cpu", "weft"])
def test_layers_as_a_scan(device):
    layers = nn.ModuleList(Block(6) for _ in range(4)).to(device)
    x = torch.randn(3, 6, device=device, requires_grad=True)
    expected = nn.Sequential(*layers)(x)
    wanted = torch.autograd.grad(expected.square().sum(), [x, *layers.parameters()])
    before = weft.stats()["fallbacks"]
    result = scan_layers(layers, x)
    assert weft.stats()["fallbacks"] == before
    assert_close_on_cpu(result, expected)
    for ours, theirs in zip(torch.autograd.grad(result.square().sum(), [x, *layers.parameters()]), wanted, strict=True):
        assert_close_on_cpu(ours, theirs)
    assert scan_layers([], x) is x


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x, mask):
        return torch.tanh(self.linear(x) * mask), mask


@pytest.mark.parametrize("device", ["cpu", "weft"])
@pytest.mark.parametrize("kind", [Masked, lambda: Swap()])
def test_layers_of_several_arguments_as_a_scan(device, kind):
    layers = nn.ModuleList(kind() for _ in range(3)).to(device)
    x, mask = torch.randn(3, 6, device=device, requires_grad=True), torch.rand(6, device=device)
    expected = x, mask
    for layer in layers:
        expected = layer(*expected)
    result = scan_layers(layers, (x, mask))
    assert isinstance(result, tuple)
    for got, wanted in zip(result, expected, strict=True):
        assert_close_on_cpu(got, wanted)
    inputs = [x, *layers.parameters()]
    wanted = torch.autograd.grad(expected[0].square().sum(), inputs)
    for got, each in zip(torch.autograd.grad(result[0].square().sum(), inputs), wanted, strict=True):
        assert_close_on_cpu(got, each)


class Swap(nn.Module):
    """Without parameters."""

    def forward(self, x, mask):
        return x * mask, mask


def test_buffers_of_layers_change():
    layers = [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("weft") for _ in range(3)]
    others = [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(3)]
    for ours, theirs in zip(layers, others, strict=True):
        theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 3)
    assert_close_on_cpu(scan_layers(layers, x.to("weft")), nn.Sequential(*others)(x))
    for ours, theirs in zip(layers, others, strict=True):
        assert_close_on_cpu(ours[1].running_mean, theirs[1].running_mean)
        assert_close_on_cpu(ours[1].running_var, theirs[1].running_var)
        assert ours[1].num_batches_tracked.item() == 1


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Linear(3, 3), nn.Linear(3, 3, bias=False)], "mismatched keys: bias"),
        ([nn.Linear(3, 3), nn.Linear(3, 4)], "Shape mismatch for 'weight' in layer 1"),
        ([nn.Linear(3, 3), nn.Linear(3, 3).double()], "Shape mismatch for 'weight' in layer 1"),
        ([nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())], "Layer 1 differs from layer 0 at '0'"),
        ([Block(3), Block(3), Block(3, 0.5)], "Layer 2 differs from layer 0: p of 'dropout' is 0.5, not 0.0"),
    ],
)
def test_layers_that_are_not_alike_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        scan_layers(layers, torch.ones(2, 3))


# ---- metrics


def test_counters_and_metrics():
    x = torch.full((7,), 2.0, device="weft")
    met.clear_all()
    assert met.counter_names() == [] and met.metric_names() == []
    for _ in range(4):  # where x comes from is in the first step
        y = x * 3 + 11
        xm.mark_step()
    assert met.counter_value("MarkStep") == 4
    assert met.counter_value("UncachedCompile") == 1
    assert met.counter_value("CachedCompile") == 1
    assert met.counter_value("aten::nonzero") is None
    y.nonzero()
    y.sum().item()
    assert met.counter_value("aten::nonzero") == 1
    assert met.counter_value("aten::_local_scalar_dense") == 1
    count, total, samples = met.metric_data("ExecuteTime")
    assert count == len(samples) == 4
    assert total == pytest.approx(sum(value for _, value in samples))
    assert sorted(met.executed_fallback_ops()) == ["aten::_local_scalar_dense", "aten::nonzero"]
    assert met.metric_data("CompileTime")[0] >= 1
    assert met.metric_data("NoSuch") is None and met.counter_value("NoSuch") is None
    report = met.metrics_report()
    assert "Counter: MarkStep\n  Value: 4\n" in report
    assert re.search(r"Metric: ExecuteTime\n  TotalSamples: 4\n  Accumulator: .*us\n  Percentiles: 1%=", report)
    short = met.short_metrics_report(["aten::nonzero"], ["ExecuteTime"])
    assert "aten::nonzero" in short and "MarkStep" not in short and "CompileTime" not in short
    met.clear_counters()
    assert met.counter_value("MarkStep") is None
    assert met.metric_data("ExecuteTime")[0] == 4


# ---- amp


def test_amp():
    with pytest.raises(ValueError, match="for the device weft"):
        amp.autocast("cpu")
    assert amp.autocast(xm.xla_device()).fast_dtype == torch.bfloat16
    assert amp.autocast("weft", dtype=torch.float16).fast_dtype == torch.float16
    p = nn.Parameter(torch.ones(2, device="weft"))
    optimizer, scaler = amp.syncfree.SGD([p], lr=0.5), amp.GradScaler(init_scale=4.0)
    scaler.scale((p * 2).sum()).backward()
    assert p.grad.tolist() == [8, 8]
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0, 0]
