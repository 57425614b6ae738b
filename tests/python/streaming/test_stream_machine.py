"""What runs the steps of a stream: machine code in this process where packages have a form of them, else the engine.
Nobody sees a difference but in time and the last bits."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stream_models import C
from torch import Tensor, nn

import weft
from weft._streaming.stream import Stream


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


class Filter(nn.Module):
    """A convolution with a history, and a recurrent layer."""

    def __init__(self, reach: int = 3) -> None:
        super().__init__()
        self.conv, self.gru = nn.Conv1d(C, 5, 2, dilation=reach), nn.GRU(5, 4, batch_first=True)
        self.reach = reach

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(nn.functional.pad(x.transpose(1, 2), (self.reach, 0)))
        return self.gru(y.transpose(1, 2))


def two_ways(model: Callable[..., Any], *example: Tensor, time: Any = 1) -> tuple[Stream, Stream]:
    """Streams of the same step: machine code, and the engine's."""
    stream = weft.stream(model, *example, time=time)
    assert stream.target is not None, stream
    return stream, Stream(stream.model)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("reach", [3, 300])
def test_states_of_both_ways_fit_each_other(batch: int, reach: int) -> None:
    torch.manual_seed(0)
    machine, engine = two_ways(Filter(reach), torch.randn(batch, 400, C))
    assert engine.target is None and "by the engine, since" in repr(engine)
    x = torch.randn(batch, 900, C)
    machine.run(x[:, :701])
    engine.run(x[:, :701])
    assert list(machine.state) == list(engine.state)
    for mine, theirs in zip(machine.state.values(), engine.state.values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    rest = machine.run(x[:, 701:])[0]
    machine.state = engine.state
    torch.testing.assert_close(machine.run(x[:, 701:])[0], rest, rtol=1e-5, atol=1e-5)
    machine.reset()
    machine.run(x[:, :701])
    engine.state = machine.state
    torch.testing.assert_close(engine.run(x[:, 701:])[0], rest, rtol=1e-5, atol=1e-5)


def test_copies_go_on_by_themselves() -> None:
    torch.manual_seed(0)
    stream, _ = two_ways(Filter(), torch.randn(1, 20, C))
    x = torch.randn(1, 60, C)
    stream.run(x[:, :30])
    others = copy.copy(stream), copy.deepcopy(stream)
    rest = stream.run(x[:, 30:])[0]
    for other in others:
        assert other.target == stream.target
        assert torch.equal(other.run(x[:, 30:])[0], rest)


@pytest.mark.parametrize("batch", [1, 2])
def test_tensors_of_all_kinds(batch: int) -> None:
    """What isn't dense, needs gradients, is a view or a subclass has the results of plain tensors."""
    torch.manual_seed(0)
    stream, _ = two_ways(Filter(), torch.randn(batch, 20, C))
    x = torch.randn(batch, 7, C)
    expected = stream.run(x)

    class Mine(Tensor):
        pass

    kinds = [
        x.transpose(1, 2).contiguous().transpose(1, 2),
        nn.Parameter(x),
        x.clone().requires_grad_(),
        torch.stack([x, x], -1)[..., 0],
        torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag,
        x.as_subclass(Mine),
        x.expand(2, *x.shape)[1],
    ]
    with torch.enable_grad():
        for kind in kinds:
            stream.reset()
            y, h = stream.run(kind)
            assert torch.equal(y, expected[0]) and torch.equal(h, expected[1])
            assert type(y) is Tensor and not y.requires_grad
            stream.reset()
            found = [stream.step(kind[:, t])[0] for t in range(7)]
            assert torch.equal(torch.stack(found, 1), expected[0])


def test_what_has_no_numbers_is_refused() -> None:
    stream, _ = two_ways(nn.Linear(C, 2), torch.randn(1, 4, C))
    with pytest.raises(RuntimeError, match="input 0 must be a tensor in memory on the CPU, but is on meta"):
        stream.step(torch.randn(1, 1, C, device="meta"))
    with pytest.raises(RuntimeError, match="input 0 must be a tensor in memory on the CPU"):
        torch.vmap(stream.step)(torch.randn(2, 1, 1, C))


def test_results_are_new_tensors() -> None:
    stream, _ = two_ways(nn.Linear(C, 2), torch.randn(1, 4, C))
    x = torch.randn(1, C)
    first = stream.step(x)
    kept = first.clone()
    stream.step(-x)
    assert torch.equal(first, kept) and first.shape == (1, 2) and first.is_contiguous()


class Several(nn.Module):
    """Tokens and features, a setting without time; a dict with a constant, and a last carry."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.rnn = nn.Embedding(10, C), nn.LSTM(C, C)

    def forward(self, tokens: Tensor, features: Tensor, setting: Tensor) -> dict[str, Any]:
        y, (h, c) = self.rnn(self.table(tokens) + features * setting)
        return {"y": y, "tokens": tokens + 1, "last": [h, (c,)], "name": "model"}


@pytest.mark.parametrize("chunks", [[1], [150], [64, 1, 85], [3, 65, 82]])
def test_several_inputs_and_results(chunks: list[int]) -> None:
    torch.manual_seed(0)
    tokens, features, setting = torch.randint(10, (150, 2)), torch.randn(150, 2, C), torch.randn(C)
    machine, engine = two_ways(Several(), tokens, features, setting, time=[0, 0, None])
    first = 0
    for count in chunks:
        part = slice(first, first + count)
        first += count
        given = tokens[part], features[part], setting
        found = machine.step(*given) if count == 1 else machine.run(*given)
        expected = engine.run(*given)
        assert list(found) == list(expected) and found["name"] == "model"
        assert torch.equal(found["tokens"], expected["tokens"])
        torch.testing.assert_close(found["y"], expected["y"], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found["last"], expected["last"], rtol=1e-5, atol=1e-6)


TABLE = torch.randn(64, C)


def test_a_chunk_that_fails_leaves_the_state_before_it() -> None:
    """The engine says why, in its own words."""
    x = torch.randn(1, 70, C)
    for stream in two_ways(lambda x: x + TABLE[: x.shape[1]], torch.randn(1, 12, C)):
        stream.run(x[:, :60])
        with pytest.raises(RuntimeError, match="index 64 is out of bounds"):
            stream.run(x[:, 60:])
        (count,) = stream.state.values()
        assert int(count) == 64, "the steps before the one that failed are done"
        with pytest.raises(RuntimeError, match="index 64 is out of bounds"):
            stream.step(x[:, 0])
    for stream in two_ways(nn.Embedding(10, 3), torch.randint(10, (1, 5))):
        with pytest.raises(RuntimeError, match="out of"):
            stream.run(torch.tensor([[1, 2, 11]]))


def test_two_threads_are_told() -> None:
    model = nn.LSTM(256, 256, batch_first=True)  # large, so that other threads run meanwhile
    stream, _ = two_ways(model, torch.randn(1, 4, 256))
    x, errors = torch.randn(1, 300, 256), []

    def work() -> None:
        try:
            for _ in range(30):
                stream.run(x)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors and all("one thread at a time uses a stream" in error for error in errors)
    stream.run(x)


def test_streams_on_several_threads() -> None:
    torch.manual_seed(0)
    stream, _ = two_ways(Filter(), torch.randn(1, 9, C))
    x = torch.randn(1, 2000, C)
    expected, found = stream.run(x)[0], {}

    def work(i: int) -> None:
        mine = copy.copy(stream)
        mine.reset()
        found[i] = mine.run(x)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, expected) for each in found.values()) and len(found) == 4


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": lambda x: torch.sin(x * 1e9),  # beyond what the code for vectors reduces
    "cos of doubles": lambda x: torch.cos(x.double() * 1e30),
    "rem": lambda x: (x * 1e12) % 3,
    "pow": lambda x: x.double().abs() ** x.double(),
    "erf": lambda x: x.double().erf() - (3 * x.double()).erfc(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_all_arguments(name: str, tmp_path: Path) -> None:
    """As a package has them, to the bit."""
    torch.manual_seed(0)
    x = torch.randn(1, 40, C)

    def model(x: Tensor) -> Tensor:
        y = FUNCTIONS[name](x)
        return y + x.to(y.dtype).cumsum(1)

    stream = weft.stream(model, x, time=1)
    assert stream.target is not None, stream
    package = weft.load(weft.package(model, x, tmp_path / "m", time=1, targets=stream.target) / "libm.so")
    expected = stream.run(x)
    torch.testing.assert_close(expected, model(x), rtol=1e-5, atol=1e-5)
    stream.reset()
    for t in range(40):
        y = stream.step(x[:, t])
        assert torch.equal(y, expected[:, t])
        assert torch.equal(package.step(x[:, t : t + 1]), y.unsqueeze(1))


# ---- what the engine runs


class Gru(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(size, size, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


@pytest.mark.parametrize(
    ("model", "shape", "chunk", "reason"),
    [
        (lambda x: x.cumsum(1).to(torch.int8), (1, 9, C), None, "computes a value of type i8"),
        (Gru(8), (1, 64, 8), 32, "loops of 32 steps"),
        (Gru(192), (8, 4, 192), None, "multiply-adds, which the engine is sooner done with"),
        (nn.Embedding(700_000, 16), (1, 4), None, "MB of weights and tables"),
    ],
)
def test_the_engine_runs_the_others(model: Any, shape: tuple[int, ...], chunk: int | None, reason: str) -> None:
    torch.manual_seed(0)
    weft.reset_stats()
    x = torch.randint(100, shape) if isinstance(model, nn.Embedding) else torch.randn(shape)
    stream = weft.stream(model, x, chunk=chunk)
    assert stream.target is None and reason in repr(stream)
    ((name, count),) = weft.stats()["streams"].items()
    assert name.startswith("by the engine: ") and reason in name and count == 1
    assert name in str(weft.stats())
    torch.testing.assert_close(stream.run(x), model(x), rtol=1e-4, atol=1e-4)


def test_rows_of_their_own_are_machine_code() -> None:
    """A single row of a large layer reads each weight once."""
    weft.reset_stats()
    stream = weft.stream(Gru(192), torch.randn(1, 4, 192))
    assert weft.stats()["streams"] == {f"by machine code for {stream.target}": 1}
    assert repr(stream) == f"<weft stream of float32[1,4,192], 1 steps at once, by machine code for {stream.target}>"


CACHED = """
import torch, weft
torch.manual_seed(0)
layers = [m for i in range(3) for m in (torch.nn.ConstantPad1d((2, 0), 0.0), torch.nn.Conv1d(4, 4, 3), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers)
stream = weft.stream(model, torch.randn(1, 4, 60), time=2, check=False)
stream._code.machine.wait()
again = weft.stream(model, torch.randn(1, 4, 60), time=2, check=False)
with torch.no_grad():
    print(weft.stats()["object_cache_hits"], float(stream.run(torch.ones(1, 4, 50)).sum()))
"""


def test_objects_are_kept_on_the_disk(run_warm_python: Any, tmp_path: Any) -> None:
    first, second = (run_warm_python(CACHED, XDG_CACHE_HOME=str(tmp_path)).split() for _ in range(2))
    assert int(second[0]) > int(first[0])
    assert first[1] == second[1]
    assert run_warm_python(CACHED, WEFT_CACHE="0").split()[1] == first[1]
