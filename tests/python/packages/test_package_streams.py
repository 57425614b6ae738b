"""weft.stream runs the machine code of packages: a stream's steps, its runs in any chunks, and a package of the model
give the same bits."""

from __future__ import annotations

import random
from typing import Any

import packaged
import pytest
import torch
from stream_models import B, C, layer
from torch import Tensor, nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def leaves(result: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def by_stream(stream: Any, xs: Tensor, counts: list[int], *, by_steps: bool = False) -> list[Tensor]:
    """The stream's results for stacked chunks [chunks, ...], as a package's: stacks of each output."""
    port, found, t = stream.model.inputs[0], [], 0
    for count in [*counts, len(xs) - sum(counts)]:
        piece = xs[t : t + count]
        t += count
        if by_steps:
            found += [leaves(stream.step(chunk)) for chunk in piece]
        elif count > 0:
            whole = stream.run(piece.movedim(0, port.time).flatten(port.time, port.time + 1))
            found.append(leaves(whole))
    parts = []
    for i, out in enumerate(stream.outputs):
        each = [results[i] for results in found]
        if out.time is None:
            parts.append(each[-1])
        else:
            whole = torch.cat(each, out.time)
            parts.append(whole.unflatten(out.time, (-1, out.per_chunk)).movedim(out.time, 0))
    return parts


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())


def check_bits(model: Any, xs: Tensor, time: int, factory: pytest.TempPathFactory, seed: int = 0) -> Any:
    """Checks that a stream gives the package's bits: by single steps and by random numbers of steps, before and after
    the whole object is compiled. Returns the stream."""
    rng = random.Random(seed)
    stream = weft.stream(model, xs, time=time, check=False)
    if stream.target is None:
        return stream
    folder = weft.package(model, xs, factory.mktemp("packages") / "model", time=time, targets=stream.target)
    package, chunk = packaged.loaded(folder, factory), stream.chunk
    xs = xs.narrow(time, 0, xs.shape[time] // chunk * chunk)
    stacked = xs.unflatten(time, (-1, chunk)).movedim(time, 0).contiguous()
    ys = package.run(stacked)
    expected = [
        y[-1] if out.time is None else y
        for y, out in zip(ys if isinstance(ys, tuple) else (ys,), stream.outputs, strict=True)
    ]
    for way in range(6):
        if way == 3:
            stream._code.machine.wait()
        stream.reset()
        counts: list[int] = []
        while way % 3 and sum(counts) < len(stacked) - 40:
            counts.append(rng.randint(1, 40))
        assert_same(by_stream(stream, stacked, counts, by_steps=way % 3 == 0), expected)
        for mine, theirs in zip(stream.state.values(), package.state.values(), strict=True):
            assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())
    return stream


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(100 + seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 4)))).eval()
    stream = check_bits(model, torch.randn(B, 144, C), 1, tmp_path_factory, seed)
    assert stream.target == weft._C.package_host(), stream


class Wave(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**i) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for each in self.layers:
            x = x + torch.tanh(each(nn.functional.pad(x, (2 * each.dilation[0], 0))))
        return x


@pytest.mark.parametrize(
    ("model", "shape", "time"),
    [
        (Wave(5, 3), (1, 5, 200), 2),
        (Wave(16, 2), (3, 16, 100), 2),
        (Wave(4, 3).double(), (1, 4, 100), 2),
        (Wave(8, 2).bfloat16(), (2, 8, 100), 2),
        (nn.GRU(3, 17, num_layers=2), (90, 3), 0),
        (nn.LSTM(4, 9, batch_first=True).half(), (2, 90, 4), 1),
        (nn.Sequential(nn.Conv1d(2, 6, 4, stride=4), nn.ReLU()), (1, 2, 400), 2),
        (lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1), (2, 60, 3), 1),
    ],
)
def test_models(model: Any, shape: tuple[int, ...], time: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    dtype = next(model.parameters()).dtype if isinstance(model, nn.Module) else torch.float32
    stream = check_bits(model, torch.randn(shape).to(dtype), time, tmp_path_factory)
    assert stream.target is not None, stream


@pytest.mark.parametrize("cls", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_modules_packaged_as_modules(cls: type[nn.RNNBase], tmp_path_factory: pytest.TempPathFactory) -> None:
    """weft.package takes such a module as a step by itself, without time=."""
    torch.manual_seed(0)
    module, x = cls(3, 21, num_layers=2), torch.randn(50, 1, 3)
    folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
    assert torch.equal(packaged.loaded(folder, tmp_path_factory).run(x), weft.stream(module, x, time=0).run(x)[0])


OTHER_ISA = """
import random, tempfile
import torch
from stream_models import B, C, layer
from torch import nn
import weft

same = 0
with torch.no_grad():
    for seed in range(5):
        rng = random.Random(200 + seed)
        torch.manual_seed(seed)
        model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 3))), nn.GRU(C, C, batch_first=True)).eval()
        x = torch.randn(B, 48, C)
        stream = weft.stream(model, x)
        assert stream.target == "TARGET", stream
        with tempfile.TemporaryDirectory() as folder:
            made = weft.package(model, x, folder + "/model", time=1, targets="TARGET")
            package = weft.load(made / "libmodel.so")
            x = x[:, : 48 // stream.chunk * stream.chunk]
            y = package.run(x.unflatten(1, (-1, stream.chunk)).movedim(1, 0).contiguous())[0]
            same += torch.equal(y.movedim(0, 1).flatten(1, 2), stream.run(x)[0])
print("same", same)
"""


@pytest.mark.parametrize(("isa", "target"), [("avx2", "x86-64-v3"), ("generic", "x86-64")])
def test_instruction_sets(isa: str, target: str, run_warm_python: Any) -> None:
    if target not in packaged.NATIVE:
        pytest.skip(f"this processor has no {target}")
    assert run_warm_python(OTHER_ISA.replace("TARGET", target), WEFT_ISA=isa) == "same 5\n"
