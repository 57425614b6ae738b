"""weft.stream: a model over time in chunks gives what it gives for the whole sequence."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from stream_models import MODELS, B, C, Conv, Recurrent, layer
from torch import Tensor, nn

import weft
from weft._streaming import stream as module


def chunked(stream: weft._streaming.stream.Stream, xs: Tensor, time: int, rng: random.Random) -> list[Tensor]:
    """All results of the sequence, fed in random chunks."""
    stream.reset()
    parts: list[list[Tensor]] = []
    at = 0
    while at < xs.shape[time]:
        most = (xs.shape[time] - at) // stream.chunk
        steps = stream.chunk * rng.randint(1, min(most, 5))
        piece = xs.narrow(time, at, steps)
        result = stream.step(piece) if steps == stream.chunk and rng.random() < 0.5 else stream.run(piece)
        parts.append([leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)])
        at += steps
    return [
        pieces[-1] if port.time is None else torch.cat(pieces, port.time)
        for pieces, port in zip(zip(*parts, strict=True), stream.outputs, strict=True)
    ]


def compare(
    model: Callable[..., Any], xs: Tensor, time: int, *, delay: int = 0, chunk: int | None = None, seed: int = 0
) -> Any:
    """Chunks give what the model gives, and any chunks the same bits."""
    rng = random.Random(seed)
    stream = weft.stream(model, xs, time=time, delay=delay, chunk=chunk, check=False)
    with torch.no_grad():
        whole = [leaf for leaf in torch.utils._pytree.tree_leaves(model(xs)) if isinstance(leaf, Tensor)]
    xs = xs.narrow(time, 0, xs.shape[time] // stream.chunk * stream.chunk)
    ways = [chunked(stream, xs, time, rng) for _ in range(3)]
    for expected, found, port in zip(whole, ways[0], stream.outputs, strict=True):
        if port.time is not None:
            assert port.lag >= 0
            last = min(found.shape[port.time], expected.shape[port.time] + port.lag)
            assert last > port.lag, "nothing was compared"
            found = found.narrow(port.time, port.lag, last - port.lag)
            expected = expected.narrow(port.time, 0, last - port.lag)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for way in ways[1:]:
        for one, other in zip(ways[0], way, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
    return stream


# ---- random models


@pytest.mark.parametrize("seed", range(MODELS))
def test_random_models(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 6)))).eval()
    compare(model, torch.randn(B, 24, C), 1, seed=seed)


@pytest.mark.parametrize("seed", range(MODELS // 4))
def test_random_models_in_blocks(seed: int) -> None:
    rng = random.Random(1000 + seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 6)))).eval()
    least = weft.stream(model, torch.randn(B, 24, C), check=False).chunk
    compare(model, torch.randn(B, 96, C), 1, chunk=least * rng.randint(2, 5), seed=seed)


def test_a_chunk_that_no_stride_allows() -> None:
    model = nn.Conv1d(C, C, 2, stride=2)
    with pytest.raises(RuntimeError, match="3 steps at once are not possible: this model takes multiples of 2"):
        weft.stream(model, torch.randn(B, C, 12), time=2, chunk=3)
    with pytest.raises(ValueError, match="chunk is a number of steps, but is 0"):
        weft.stream(model, torch.randn(B, C, 12), time=2, chunk=0)
    assert weft.stream(model, torch.randn(B, C, 12), time=2, chunk=8).outputs[0].per_chunk == 4


# ---- what else is streamed


def test_arguments_and_results_of_several_kinds() -> None:
    """Tokens and features, a setting without time, results in a dict with a constant; the last carry."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.rnn = nn.Embedding(10, C), nn.LSTM(C, C, num_layers=2)

        def forward(self, tokens: Tensor, features: Tensor, setting: Tensor, *, scale: float = 2.0) -> dict[str, Any]:
            y, (h, c) = self.rnn(self.table(tokens) + features * setting)
            return {"y": y * scale, "last": (h, c), "name": "model"}

    torch.manual_seed(0)
    model = Model().eval()
    tokens, features, setting = torch.randint(10, (12, B)), torch.randn(12, B, C), torch.randn(C)
    stream = weft.stream(model, tokens, features, setting, time=[0, 0, None])
    with torch.no_grad():
        whole = model(tokens, features, setting)
    first = stream.run(tokens[:7], features[:7], setting)
    second = stream.run(tokens[7:], features[7:], setting)
    assert second["name"] == "model"
    torch.testing.assert_close(torch.cat([first["y"], second["y"]]), whole["y"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second["last"], whole["last"], rtol=1e-5, atol=1e-5)
    assert stream.outputs[1].time is None


def test_a_scan_of_the_users_own() -> None:
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(C, C) * 0.3)

    def model(x: Tensor) -> Tensor:
        _, ys = weft.scan(lambda h, xt: ((n := torch.sin(h @ w + xt)), n * h), torch.ones(B, C), x)
        return ys.cumsum(0)

    compare(model, torch.randn(20, B, C), 0)


def test_convolutions_in_a_loop() -> None:
    """A convolutional LSTM, whose step calls PyTorch: in the stream it doesn't."""
    torch.manual_seed(0)
    conv = nn.Conv2d(5, 8, 3, padding=1)

    def model(x: Tensor) -> Tensor:
        def step(carry: tuple[Tensor, Tensor], xt: Tensor) -> Any:
            h, c = carry
            i, f, o, g = conv(torch.cat([xt, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            return (h, c), h

        zeros = torch.zeros(B, 2, 4, 4)
        return weft.scan(step, (zeros, zeros), x)[1]

    stream = compare(model, torch.randn(9, B, 3, 4, 4), 0)
    assert "extern" not in stream.model.step.text


def test_a_loop_in_python() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(C, C)

        def forward(self, x: Tensor) -> Tensor:
            h, ys = x.new_zeros(x.shape[0], C), []
            for t in range(x.shape[1]):
                h = self.cell(x[:, t], h)
                ys.append(h)
            return torch.stack(ys, 1)

    torch.manual_seed(0)
    compare(Loop().eval(), torch.randn(B, 16, C), 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rng = random.Random(1)
    model = nn.Sequential(Conv(rng), nn.LayerNorm(C), Recurrent(rng)).eval().to(dtype)
    weft.stream(model, torch.randn(B, 16, C, dtype=dtype))  # checks itself
    if dtype == torch.float64:
        compare(model, torch.randn(B, 16, C, dtype=dtype), 1)


@pytest.mark.parametrize(
    ("model", "delay"),  # the least: with one step less it is refused
    [
        (nn.Conv1d(C, 4, 5, padding=2), 2),
        (nn.Conv1d(C, 4, 3, stride=2, padding=1), 0),
        (nn.Conv1d(C, 4, 4, stride=3, padding=2), 3),
        (nn.Conv1d(C, 4, 2, stride=4), 0),
        (nn.ConvTranspose1d(C, 4, 4, stride=2, padding=1), 1),
        (nn.ConvTranspose1d(C, 4, 5, stride=3, groups=2, output_padding=1), 1),
        (nn.Sequential(nn.Conv1d(C, C, 4, stride=2, padding=1), nn.ConvTranspose1d(C, C, 4, stride=2, padding=1)), 3),
        (nn.AvgPool1d(3, 2, padding=1), 0),
        (nn.MaxPool1d(3, 1, padding=1, dilation=1), 1),
        (nn.MaxPool1d(2), 0),
        (nn.BatchNorm1d(C), 0),
        (nn.Sequential(nn.Conv1d(C, C, 3), nn.Conv1d(C, C, 3, padding=1), nn.MaxPool1d(2), nn.Conv1d(C, C, 2)), 2),
    ],
)
def test_windows(model: nn.Module, delay: int) -> None:
    torch.manual_seed(0)
    compare(model.eval(), torch.randn(B, C, 36), 2, delay=delay)
    if delay > 0:
        with pytest.raises(RuntimeError, match=f"allow it with delay={delay}"):
            weft.stream(model, torch.randn(B, C, 36), time=2, delay=delay - 1)


@pytest.mark.parametrize("pool", ["Avg", "Max"])
@pytest.mark.parametrize(("bands", "size"), [(9, 1), (9, 2), (9, 9), (8, 4), (5, 7)])
def test_pooling_to_a_size_over_another_dim_than_time(pool: str, bands: int, size: int) -> None:
    """As nets on spectra have it between convolutions over bands and a layer over time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, (3, 1), padding=(1, 0)), getattr(nn, f"Adaptive{pool}Pool2d")((size, None)))
    compare(model.eval(), torch.randn(B, 2, bands, 20), 3)


@pytest.mark.parametrize("steps", [256, 384, 640, 1280])
def test_large_strides_of_short_examples(steps: int) -> None:
    """A stride is hard to tell from two windows: 60 steps in groups of 4 may be windows that are 30 apart, or 32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 6, 128, stride=128), nn.ReLU(), nn.Conv1d(6, 2, 1)).eval()
    stream = weft.stream(model, torch.randn(1, 1, steps), time=2)
    assert stream.chunk == 128
    x = torch.randn(1, 1, 128 * 37)
    with torch.no_grad():
        torch.testing.assert_close(stream.run(x), model(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(16))
def test_random_transposed_convolutions(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kernel, stride, groups = rng.randint(1, 40), rng.choice([1, 2, 3, 8, 16, 33]), rng.choice([1, 2, 4])
    padding = rng.randint(0, min(kernel - 1, stride))
    options = {"output_padding": rng.randint(0, stride - 1), "groups": groups, "bias": rng.random() < 0.5}
    over = nn.ConvTranspose1d(4, 4 * rng.choice([1, 2]), kernel, stride=stride, padding=padding, **options)
    compare(over.eval(), torch.randn(rng.choice([1, 2]), 4, 60), 2, delay=kernel + stride, seed=seed)


def test_frames_that_overlap_cost_their_own_products() -> None:
    """Of a kernel of 256 elements, 128 apart, a step computes 256 elements, and not 128 times 256."""
    over = nn.ConvTranspose1d(3, 1, 256, stride=128).eval()
    stream = weft.stream(lambda x: over(x)[:, :, :-128], torch.randn(1, 3, 40), time=2)
    assert [tuple(state.shape) for state in stream.state.values()] == [(1, 1, 1, 128)]


def test_a_sum_over_many_steps_is_as_exact_as_pytorchs() -> None:
    """PyTorch adds float32 up in float64; a phase that is off by a tenth after some seconds is another sound."""
    torch.manual_seed(0)
    x = torch.rand(1, 200000)
    stream = weft.stream(lambda x: x.cumsum(1), x[:, :50])
    assert (stream.run(x) - x.double().cumsum(1)).abs().max() < 0.01
    x[0, 70:72] = torch.tensor([torch.inf, -torch.inf])
    stream.reset()
    assert torch.equal(stream.run(x[:, :80])[0, 70:].nan_to_num(), x.cumsum(1)[0, 70:80].nan_to_num())


def test_padding_of_many_steps() -> None:
    x = torch.randn(1, 3, 40)
    model = nn.Sequential(nn.ConstantPad1d((1100, 0), 0.0), nn.Conv1d(3, 1, 1101))
    compare(model.eval(), x, 2)
    with pytest.raises(RuntimeError, match="pad in several layers of at most 16384"):
        weft.stream(nn.Sequential(nn.ConstantPad1d((16400, 0), 0.0), nn.Conv1d(3, 1, 16401)), x, time=2)


def test_a_stride_does_not_hide_what_needs_the_future() -> None:
    class Backwards(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.unflatten(1, (-1, 128)).flip(1)

    with pytest.raises(RuntimeError, match=r"reverse.*x.unflatten\(1, \(-1, 128\)\).flip\(1\)"):
        weft.stream(Backwards(), torch.randn(1, 1280))


def test_convolutions_of_images_over_time() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=(0, 1)), nn.ReLU(), nn.Conv2d(3, 2, (2, 3), stride=(1, 2)))
    compare(model, torch.randn(B, 1, 20, 9), 2)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x[:, ::3],
        lambda x: x[:, 1::2],
        lambda x: x[:, 2::3] + x[:, ::3][:, : (x.shape[1]) // 3],
        lambda x: F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1).flatten(2),
        lambda x: x.unfold(1, 4, 2),
        lambda x: F.interpolate(x.transpose(1, 2), scale_factor=2),
        lambda x: x + TABLE[: x.shape[1]],
        lambda x: F.pad(x, (0, 0, 2, 0)) * TABLE[3 : x.shape[1] + 5],
        lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1),
        lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1].tanh().cumsum(1),  # what comes before the first step too
        lambda x: torch.cat([TABLE[:2].expand(B, 2, C), x], 1)[:, : x.shape[1]],
    ],
)
def test_idioms(model: Callable[[Tensor], Tensor]) -> None:
    compare(model, torch.randn(B, 24, C), 1, delay=2)


TABLE = torch.randn(64, C)


def test_a_table_of_positions_ends() -> None:
    stream = weft.stream(lambda x: x + TABLE[: x.shape[1]], torch.randn(B, 12, C))
    stream.run(torch.randn(B, 64, C))
    with pytest.raises(RuntimeError, match="index 64 is out of bounds"):
        stream.step(torch.randn(B, C))


def test_steps_that_are_taken_together() -> None:
    torch.manual_seed(0)
    rnn = nn.GRU(4 * C, C, batch_first=True)
    stream = compare(lambda x: rnn(x.reshape(B, -1, 4 * C))[0], torch.randn(B, 24, C), 1)
    assert stream.chunk == 4
    with pytest.raises(ValueError, match="must be a positive multiple of 4, not 6"):
        stream.run(torch.randn(B, 6, C))


def test_the_state_may_be_kept_and_set() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Conv(random.Random(3)), Recurrent(random.Random(3))).eval()
    stream, x = weft.stream(model, torch.randn(B, 9, C)), torch.randn(B, 12, C)
    stream.run(x[:, :5])
    kept = stream.state
    rest = stream.run(x[:, 5:])
    stream.reset()
    stream.run(x[:, :3])
    stream.state = kept
    assert torch.equal(stream.run(x[:, 5:]), rest)
    stream.state = kept
    assert torch.equal(torch.stack([stream.step(x[:, t]) for t in range(5, 12)], 1), rest)
    name = next(iter(kept))
    with pytest.raises(ValueError, match=rf"{name} of this model's state is .*, not float64"):
        stream.state = {**kept, name: kept[name].double()}
    with pytest.raises(ValueError, match="the state of this model has"):
        stream.state = {"h": kept[name]}


def test_inputs_that_do_not_fit() -> None:
    stream = weft.stream(nn.GRU(C, 4, batch_first=True), torch.randn(B, 9, C))
    with pytest.raises(ValueError, match=r"takes float32\[2,9,6\] with any number of steps in dim 1, but got float32"):
        stream.run(torch.randn(3, 9, C))
    with pytest.raises(ValueError, match=r"takes float32.*, but got float64"):
        stream.run(torch.randn(B, 9, C, dtype=torch.float64))
    with pytest.raises(ValueError, match="a chunk has 1 steps, not 2"):
        stream.step(torch.randn(B, 2, C))
    with pytest.raises(ValueError, match="must be a positive multiple of 1, not 0"):
        stream.run(torch.randn(B, 0, C))
    with pytest.raises(ValueError, match="has 1 leaves, not 2"):
        stream.run(torch.randn(B, 1, C), 3)


def test_the_model_is_captured_as_it_is() -> None:
    linear = nn.Linear(C, C)
    stream = weft.stream(linear, torch.randn(B, 9, C))
    assert stream.state == {}
    stream = weft.stream(nn.Linear(C, C), torch.randn(B, 1, C))  # one step says as much
    assert stream.run(torch.randn(B, 5, C)).shape == (B, 5, C)


# ---- what is refused


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(C, C, batch_first=True), nn.GRU(C, C, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x, self.first(x)[1])[0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x.mean(1), "reduce_sum over time .* needs all steps of the sequence"),
        (lambda x: x - x.mean(1, keepdim=True), "reduce_sum over time"),
        (lambda x: x.softmax(1), "reduce_max over time"),
        (lambda x: x / x.norm(dim=1, keepdim=True), "reduce_sum over time"),
        (lambda x: x[:, -2], r"picks steps by number, as `x\[:, -2\]` does"),
        (lambda x: x[:, x.shape[1] // 2 :], "counted from the end of the sequence"),
        (lambda x: x.flip(1), "reverses the steps"),
        (lambda x: torch.cat([x, x], 1), "puts one sequence behind another"),
        (lambda x: x.roll(1, 1), "(counted from the end|behind another|in front of the sequence)"),
        (lambda x: x * x.shape[1], "the number of steps"),
        (lambda x: x.sort(1)[0], "aten.sort.* is a kernel of PyTorch's that has no streaming form"),
        (lambda x: x.matmul(x.transpose(1, 2)), "(in different dims|all steps at each step)"),
        (nn.GRU(C, C, batch_first=True, bidirectional=True), "from the sequence's end to its beginning"),
        (nn.GroupNorm(2, C), "reduce_sum over time"),
        (Attention(), "all steps at each step"),
        (Decoder(), "scan has an initial carry that depends on all steps"),
        (
            nn.Dropout(0.5),
            r"the model draws random numbers: give them as an argument \(dropout does nothing after eval",
        ),
        (nn.BatchNorm1d(C), r"the model is in training, and changes tensors of its own: call its eval\(\) before"),
        (lambda x: x + F.pad(x, (0, 0, 0, 2))[:, 2:], "complete 2 steps late.*delay=2"),
        (lambda x: x[:, : x.shape[1] // 2], "a part of the sequence that depends on its length"),
        (lambda x: x if x.shape[1] > 11 else -x, "result 0 of the stream is not that of the model"),
        (lambda x: x * x.shape[1] ** 0.5, "follows from the number of steps"),
        (lambda x: x if x.shape[1] == 12 else -x, "does something else for another number of steps"),
    ],
)
def test_refused(model: Callable[[Tensor], Tensor], message: str) -> None:
    time = 2 if isinstance(model, nn.GroupNorm) else 1
    example = torch.randn(B, C, 12) if time == 2 else torch.randn(B, 12, C)
    with pytest.raises(RuntimeError, match=f"(?s)weft.stream: .*{message}"):
        weft.stream(model, example, time=time)


def test_refusals_name_the_line() -> None:
    def model(x: Tensor) -> Tensor:
        y = torch.tanh(x)
        return y - y.mean(1, keepdim=True)  # the line

    with pytest.raises(RuntimeError, match=r"\(test_streaming.py:\d+: return y - y.mean\(1, keepdim=True\)"):
        weft.stream(model, torch.randn(B, 12, C))


def test_the_check_finds_a_model_that_changes() -> None:
    model = nn.Linear(C, C)

    def changing(x: Tensor) -> Tensor:
        return model(x)

    made = module.streaming_model(changing, (torch.randn(B, 12, C),))
    with torch.no_grad():
        model.bias += 1
    with pytest.raises(RuntimeError, match="result 0 of the stream is not that of the model; they differ by"):
        module.check_against_whole(changing, made, lambda: module.Stream(made).run)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (3, r"float32\[2,12,6\], which has no dim 3"),
        (None, "no tensor of the example has steps"),
        ([1, 1], "has 1 tensors, but time="),
    ],
)
def test_times_that_do_not_fit(time: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weft.stream(nn.Linear(C, C), torch.randn(B, 12, C), time=time)


def test_inputs_of_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"the example's tensors have \[5, 6\] steps"):
        weft.stream(lambda x, y: (x + 1, y + 1), torch.randn(B, 5, C), torch.randn(B, 6, C))
