"""Names of weft.compat.torch_xla beside the core: experimental, utils, debug, and names whose error says what to do
instead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import weft
import weft.compat.torch_xla as torch_xla
from weft.compat.torch_xla import stablehlo, xm, xmp, xr
from weft.compat.torch_xla.debug import metrics, profiler
from weft.compat.torch_xla.experimental import (
    callback,
    custom_kernel,
    eager_mode,
    eager_mode_context,
    is_eager_mode,
)
from weft.compat.torch_xla.experimental.assume_pure import PureModule, assume_pure, assume_pure_torch
from weft.compat.torch_xla.experimental.fori_loop import fori_loop
from weft.compat.torch_xla.experimental.gru import GRU
from weft.compat.torch_xla.utils import serialization, utils


def test_names_at_the_top():
    assert torch.__version__.startswith(torch_xla.__version__) and torch_xla.__version__.count(".") == 2
    assert xm is torch_xla.core.xla_model and xr is torch_xla.runtime
    assert xmp is torch_xla.distributed.xla_multiprocessing
    assert xm.get_xla_supported_devices(1) == xm.get_xla_supported_devices(max_devices=1) == ["weft:0"]
    assert xm.xla_device_kind() == "cpu"


# ---- experimental


@pytest.mark.parametrize("device", ["cpu", "weft"])
@pytest.mark.parametrize(("lower", "upper"), [(0, 5), (2, 3), (3, 3), (4, 1)])
@pytest.mark.parametrize("bounds", [int, torch.tensor])
def test_fori_loop(device, lower, upper, bounds):
    x = torch.tensor([1.0, 2.0], device=device)
    given = [bounds(lower), bounds(upper)]
    given = [each.to(device) if isinstance(each, torch.Tensor) else each for each in given]
    _, found = fori_loop(*given, lambda x: x * 2 + 1, x)
    expected = torch.tensor([1.0, 2.0])
    for _ in range(lower, upper):
        expected = expected * 2 + 1
    torch.testing.assert_close(found.cpu(), expected)


def test_fori_loop_of_several_values():
    left, a, b = fori_loop(0, 7, lambda a, b: (b, a + b), *torch.tensor([0, 1], device="weft"))
    assert (int(left), a.item(), b.item()) == (0, 13, 21)
    with pytest.raises(ValueError, match="needs a value"):
        fori_loop(0, 7, lambda: ())


def test_callbacks():
    x, seen = torch.ones(2, device="weft") + 1, []
    callback.on_ready_callback(x, lambda tensor: seen.append((tensor is x, weft.device.memory_stats()["pending"])))
    assert seen == [(True, 0)]
    assert callback.on_ready_event(x + 1).is_set()


def test_the_device_always_records():
    assert is_eager_mode() is False
    eager_mode(False)
    with eager_mode_context(False) as before:
        assert before is False
    for turn_on in (lambda: eager_mode(True), lambda: eager_mode_context(True).__enter__()):
        with pytest.raises(NotImplementedError, match="drop the call"):
            turn_on()


def test_pure_functions():
    x = torch.ones(4, device="weft")
    draw = assume_pure(lambda x, scale=1: torch.rand_like(x) * scale, add_rng_seed_argument=True)
    torch.manual_seed(1)
    first, second, other = draw(x, rng_seed=3), draw(x, scale=2, rng_seed=3), draw(x, rng_seed=4)
    torch.testing.assert_close(second.cpu(), first.cpu() * 2)
    assert not torch.equal(first, other)
    after = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(2))
    with pytest.raises(AssertionError, match="Missing keyword argument rng_seed"):
        draw(x)
    model = nn.Linear(4, 2).to("weft")
    torch.testing.assert_close(PureModule(model)(x).cpu(), model(x).cpu())
    with torch.no_grad():
        assert assume_pure_torch(torch.sin, use_cache=True) is torch.sin
    with pytest.raises(AssertionError, match="no_grad"):
        assume_pure_torch(torch.sin)


def test_the_layer_gru():
    torch.manual_seed(0)
    layer, x = GRU(3, 4, num_layers=2), torch.randn(5, 2, 3)
    expected = layer(x)
    found = layer.to("weft")(x.to("weft"))
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


# ---- random numbers, steps, replicas


@pytest.mark.parametrize("enabled", [True, False])
def test_fork_rng(enabled):
    torch_xla.manual_seed(5)
    with xm.fork_rng(enabled=enabled):
        torch.rand(3, device="weft")
    found = torch.rand(3, device="weft")
    torch_xla.manual_seed(5)
    if not enabled:
        torch.rand(3, device="weft")
    assert torch.equal(found, torch.rand(3, device="weft"))


def test_a_traced_step_ends():
    x = torch.ones(2, device="weft")
    with profiler.StepTrace("train", step_num=1):
        y = x + 1
        assert weft.device.memory_stats()["pending"] > 0
    assert weft.device.memory_stats()["pending"] == 0 and y.tolist() == [2, 2]

    @profiler.trace_me("named")
    def double(x):
        """Twice."""
        return x * 2

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert double(y).tolist() == [4, 4]
    assert double.__doc__ == "Twice." and "named" in {event.key for event in profile.key_averages()}


def test_what_one_replica_does():
    x = torch.ones(2, device="weft")
    assert xm.do_on_ordinals(lambda a, b: (a.device.type, b), (x, 3)) == ("cpu", 3)
    assert xm.do_on_ordinals(lambda a: a, (x,), ordinals=(1,)) is None
    assert xm.xla_rendezvous(b"here") == [b"here"]
    with pytest.raises(TypeError, match="must be bytes"):
        xm.rendezvous("tag", "text")
    data = {"x": torch.ones(2), "y": [x]}
    seen = xm.mesh_reduce("tag", data, lambda all: all[0])
    seen["x"] += 1
    assert data["x"].tolist() == [1, 1] and seen["y"][0].is_cpu


# ---- utils


def test_data_in_several_files(tmp_path):
    model = nn.Linear(2, 3).to("weft")
    data = {"model": model.state_dict(), "parameter": model.weight, "here": torch.ones(2), "epoch": 3}
    for _ in range(2):
        serialization.save(data, str(tmp_path / "data"))
    assert len(list((tmp_path / "data.tensors").iterdir())) == 3
    loaded = serialization.load(str(tmp_path / "data"))
    assert loaded["epoch"] == 3 and loaded["here"].tolist() == [1, 1]
    assert isinstance(loaded["parameter"], nn.Parameter)
    for name, tensor in model.state_dict().items():
        assert type(loaded["model"][name]) is torch.Tensor
        torch.testing.assert_close(loaded["model"][name], tensor.cpu())
    torch.testing.assert_close(loaded["parameter"].detach(), model.weight.detach().cpu())


class Wrapped(utils.DataWrapper):
    def __init__(self, tensors):
        self.tensors = tensors

    def get_tensors(self):
        return self.tensors

    def from_tensors(self, tensors):
        return Wrapped(tensors)


def test_helpers(monkeypatch):
    (sent,) = xm.send_cpu_data_to_device([Wrapped([torch.ones(2)])], "weft")
    assert isinstance(sent, Wrapped) and sent.tensors[0].is_weft
    samples = utils.SampleGenerator(7, 3)
    assert len(samples) == 3 and list(samples) == list(samples) == [7, 7, 7]
    pairs = utils.FnDataGenerator(lambda x: x * 2, 4, torch.ones, dims=[3], count=2)
    assert len(pairs) == 2 and [(x.shape, y.sum().item()) for x, y in pairs] == [((4, 3), 24)] * 2
    assert utils.flatten_nested_tuple((1, [2, (3,)], 4)) == (1, 2, 3, 4)
    assert utils.as_list(1) == [1] and utils.as_list((1,)) == (1,) and utils.list_copy_append([1], 2) == [1, 2]
    monkeypatch.setenv("WEFT_TEST_FLAG", "1")
    assert utils.getenv_as("WEFT_TEST_FLAG", bool) is True and utils.getenv_as("WEFT_TEST_NONE", int, 4) == 4
    assert utils.check_env_flag("WEFT_TEST_FLAG") and not utils.check_env_flag("WEFT_TEST_NONE")
    assert utils.parallel_work(2, lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    said = []
    assert utils.timed(lambda: 5, "it took ", said.append) == 5 and said[0].startswith("it took ")


# ---- torch.compile, and what isn't there


def test_the_backend_openxla():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to("weft")
    x = torch.randn(2, 3, device="weft", requires_grad=True)
    expected = model(x)
    wanted = torch.autograd.grad(expected.sum(), [x, *model.parameters()])
    found = torch.compile(model, backend="openxla")(x)
    torch.testing.assert_close(found.cpu(), expected.cpu())
    for got, each in zip(torch.autograd.grad(found.sum(), [x, *model.parameters()]), wanted, strict=True):
        torch.testing.assert_close(got.cpu(), each.cpu())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: stablehlo.exported_program_to_stablehlo(None), "weft.stablehlo"),
        (lambda: torch_xla.save_torch_model_as_stablehlo(None, (), ""), "weft.stablehlo"),
        (lambda: torch_xla.compile(print, custom_compile_options={"xla_flag": 1}), "leave them out"),
        (lambda: torch_xla.set_custom_compile_options({"xla_flag": True}), "leave them out"),
    ],
)
def test_what_is_missing_says_what_to_do_instead(call, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        call()
    torch_xla.set_custom_compile_options({})


class Holder:
    def __init__(self, *parts: object) -> None:
        self.parts = parts
        self.me = self


def test_values_of_any_kind_are_visited_and_exchanged() -> None:
    twice = [3]
    data = {"a": (1, [2.5, "b"]), 7: Holder(twice, twice, {4})}
    visited: list[object] = []
    utils.for_each_instance(data, lambda value: isinstance(value, (int, float)), visited.append)
    assert visited == [1, 2.5, 7, 3, 4]
    other = utils.for_each_instance_rewrite(data, lambda value: isinstance(value, int), lambda value: value * 10)
    assert other["a"] == (10, [2.5, "b"]) and set(other) == {"a", 70}
    held = other[70]
    assert held.parts == ([30], [30], {40}) and held.parts[0] is held.parts[1] and held.me is held
    assert data[7].parts == ([3], [3], {4})  # type: ignore[attr-defined]
    assert utils.for_each_instance_rewrite(twice, lambda value: isinstance(value, str), str.upper) is twice


@pytest.mark.parametrize("length", [3, 9, 14])
def test_repeats_of_a_known_length_end_nothing(length: int) -> None:
    input, repeats = torch.randn(6), torch.tensor([0, 3, 0, 2, 4, 0])
    wanted = torch.cat([torch.repeat_interleave(input, repeats), input[-1:].expand(5)])[:length]
    metrics.clear_all()
    found = custom_kernel.repeat_with_fixed_output_size(input.to("weft"), repeats.to("weft"), length)
    assert not [name for name in metrics.counter_names() if name.startswith("aten::")]
    torch.testing.assert_close(found.cpu(), wanted)
    with pytest.raises(ValueError, match=r"should be \[N\], got: \[6\] and \[5\]"):
        custom_kernel.repeat_with_fixed_output_size(input, repeats[1:], length)
