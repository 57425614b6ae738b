"""Streams of models whose beginning depends on the sequence's first elements: reflecting and replicating pads, initial
states that follow from the first steps, and `x[:, k]` used at all later ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from stream_models import MODELS, B, C, head, layer
from test_streaming import compare
from torch import Tensor, nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def has_the_bits_of_its_package(
    model: Callable[..., Any], x: Tensor, folder: Path, *, time: int = 1, delay: int = 0, chunk: int | None = None
) -> None:
    """Chunks by step and by run of a package for the stream's target, and the stream."""
    stream = weft.stream(model, x, time=time, delay=delay, chunk=chunk)
    assert stream.target is not None, stream
    options = {} if chunk is None else {"chunk": chunk}
    written = weft.package(model, x, folder / "model", time=time, delay=delay, targets=stream.target, **options)
    steps = x.shape[time] // stream.chunk
    xs = x.narrow(time, 0, steps * stream.chunk).unflatten(time, (steps, stream.chunk)).movedim(time, 0).contiguous()
    expected = torch.stack([stream.step(each) for each in xs])
    loaded = weft.load(written / "libmodel.so")
    assert torch.equal(torch.stack([loaded.step(each) for each in xs]), expected)
    loaded.reset()
    assert torch.equal(loaded.run(xs), expected)
    stream.reset()
    assert torch.equal(
        stream.run(x.narrow(time, 0, steps * stream.chunk)), expected.movedim(0, time).flatten(time, time + 1)
    )


# ---- pads by the sequence's own elements


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(
    ("kernel", "dilation", "stride"), [(3, 1, 1), (5, 2, 1), (7, 1, 2), (4, 1, 1), (9, 1, 4), (1, 1, 1)]
)
def test_convolutions_padded_by_the_sequence(mode: Any, kernel: int, dilation: int, stride: int) -> None:
    torch.manual_seed(0)
    reach = (kernel - 1) * dilation
    conv = nn.Conv1d(C, 4, kernel, stride, reach // 2, dilation, padding_mode=mode).eval()
    x = torch.randn(B, C, 48)
    stream = compare(conv, x, 2, delay=40)
    least = max(stream.outputs[0].lag * stream.chunk // stream.outputs[0].per_chunk, 0)
    assert stream.outputs[0].lag * stream.chunk <= (reach // 2 + stride) * stream.outputs[0].per_chunk
    assert weft.stream(conv, x, time=2, delay=least).outputs == stream.outputs
    compare(conv, x, 2, delay=40, chunk=3 * stream.chunk)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pads_alone(mode: str) -> None:
    x = torch.randn(B, C, 40)
    for pads in [(3, 3), (5, 0), (0, 4), (1, 1), (0, 0)]:
        compare(lambda x, p=pads: F.pad(x, p, mode=mode), x, 2, delay=20)
        compare(lambda x, p=pads: F.pad(x, p, mode=mode).mul(2).tanh()[:, :, 2:], x, 2, delay=20, chunk=4)
    # of rows and columns, of which one is time
    x = torch.randn(1, 2, 40, 7)
    compare(lambda x: F.pad(x, (2, 3, 4, 1), mode=mode), x, 2, delay=20)
    compare(lambda x: F.pad(x.transpose(2, 3), (4, 1, 2, 3), mode=mode).mul(2), x, 2, delay=20)
    compare(nn.ReflectionPad1d((6, 2)), torch.randn(C, 40), 1, delay=20)


def test_several_convolutions_padded_by_the_sequence() -> None:
    torch.manual_seed(0)
    convs = [nn.Conv1d(C, C, 3, padding=d, dilation=d, padding_mode="reflect") for d in (1, 2, 4)]
    model = nn.Sequential(
        convs[0], nn.ReLU(), convs[1], nn.Tanh(), convs[2], nn.Conv1d(C, 2, 5, 2, 2, padding_mode="replicate")
    )
    stream = compare(model.eval(), torch.randn(B, C, 64), 2, delay=20)
    assert stream.outputs[0].lag == 9 // 2  # in the chunk of step 1 + 2 + 4 + 2
    compare(model.eval(), torch.randn(B, C, 64), 2, delay=20, chunk=8)


@pytest.mark.parametrize(
    ("size", "hop"), [(16, 8), (16, 4), (32, 8), (512, 128), (512, 256), (15, 5), (20, 6), (9, 4), (12, 12), (8, 1)]
)
def test_stft_as_it_is_by_default(size: int, hop: int) -> None:
    torch.manual_seed(0)
    window = torch.hann_window(size)

    def model(x: Tensor) -> Tensor:
        return torch.stft(x, size, hop, window=window, return_complex=True)

    x = torch.randn(1, (size + 16 * hop) // hop * hop)
    stream = compare(model, x, 1, delay=2 * size + hop)
    # The first frame needs one element more than with zeros, which may be in another chunk.
    assert stream.chunk == hop and stream.outputs[0].lag == size // 2 // hop
    is_least(model, x, 1, (stream.outputs[0].lag + (size % 2 == 0)) * hop)


def is_least(model: Callable[..., Any], x: Tensor, time: int, delay: int) -> None:
    """Whether the model is refused with less delay, and the message names this one."""
    if delay > 0:
        with pytest.raises(RuntimeError, match=f"(?s)steps that are still to come.*delay={delay}"):
            weft.stream(model, x, time=time, delay=delay - 1)
    weft.stream(model, x, time=time, delay=delay)


def test_a_vocoder_with_reflected_ends(tmp_path: Path) -> None:
    """From samples to samples, by masks of spectra, with torch.stft's defaults."""
    torch.manual_seed(0)
    gru, window = nn.GRU(17, 17, batch_first=True), torch.hann_window(32).sqrt()

    def model(x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 32, 8, window=window, return_complex=True)
        mask = torch.sigmoid(gru(spectrum.abs().transpose(1, 2))[0]).transpose(1, 2)
        return torch.istft(spectrum * mask, 32, 8, window=window)

    compare(model, torch.randn(1, 400), 1, delay=64)
    has_the_bits_of_its_package(model, torch.randn(1, 400), tmp_path, delay=64)


# ---- elements at fixed places


def scaled(x: Tensor) -> Tensor:
    level = x[:, :4].abs().mean((1, 2), keepdim=True)
    return (x / (level + 1)).cumsum(1)


MLP = nn.Sequential(nn.Linear(C, 8), nn.Tanh(), nn.Linear(8, C))
GRU = nn.GRU(C, C, batch_first=True)
CELL = nn.GRUCell(C, C)
CONV = nn.Conv1d(C, C, 3, padding=1)
ROWS = torch.randn(9, C)


def decayed(x: Tensor, first: Tensor, factor: Tensor) -> Tensor:
    return weft.scan(lambda h, xt: ((n := h * 0.5 + xt * factor), n), first, x, dim=1)[1]


def looped(x: Tensor) -> Tensor:
    h = x[:, 0]
    ys = [h]
    for t in range(1, x.shape[1]):
        h = CELL(x[:, t], h)
        ys.append(h)
    return torch.stack(ys, 1)


def looped_from_the_second(x: Tensor) -> Tensor:
    h = MLP(x[:, 0])
    ys = []
    for t in range(1, x.shape[1]):
        h = CELL(x[:, t], h)
        ys.append(h * x[:, 2])
    return torch.stack(ys, 1)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x - x[:, :1],
        lambda x: x - x[:, 0].unsqueeze(1),
        lambda x: x - x[:, 7:8],
        lambda x: x * x[:, 2:5].sum(1, keepdim=True),
        lambda x: x + MLP(x[:, 0]).unsqueeze(1),
        scaled,
        lambda x: GRU(x, MLP(x[:, 0]).unsqueeze(0))[0],
        lambda x: GRU(x, x[:, 3].unsqueeze(0))[0],
        lambda x: GRU(x[:, 1:], x[:, 0].unsqueeze(0)),
        lambda x: GRU(x[:, 1:], x[:, 0].unsqueeze(0).contiguous())[0] - x[:, 4:5],
        lambda x: torch.cat([x[:, 1:4].flip(1), x], 1),
        lambda x: torch.cat([x[:, :1].expand(-1, 5, -1), x[:, 2:]], 1),
        lambda x: torch.cat([x[:, 3:5], x[:, :1] * 2, x], 1).cumsum(1),
        lambda x: torch.cat([torch.ones(B, 2, C), x[:, 5:]], 1),
        lambda x: torch.cat([ROWS[:3].expand(B, 3, C), x[:, 2:] * x[:, :1]], 1),
        lambda x: F.pad(x, (0, 0, 3, 0)) * x[:, :1],
        lambda x: (F.pad(x, (0, 0, 3, 0)) * x[:, 2:3])[:, 2:],
        lambda x: GRU(F.pad(x, (0, 0, 3, 0)), x[:, 1].unsqueeze(0))[0],
        lambda x: F.pad(x.add(1), (0, 0, 2, 0)) - F.pad(x.add(1), (0, 0, 2, 0))[:, 1:3].mean(1, keepdim=True),
        lambda x: (F.pad(x, (0, 0, 2, 0)) + 1)[:, :2].sum(1, keepdim=True) * x,
        lambda x: x + GRU(x[:, :4])[1].squeeze(0).unsqueeze(1),
        lambda x: x + CONV(x[:, :4].transpose(1, 2)).amax(2).unsqueeze(1),
        lambda x: x[:, 0].unsqueeze(1).expand(-1, x.shape[1], -1) * 2,
        lambda x: GRU(x[:, 2].unsqueeze(1).expand(-1, x.shape[1], -1))[0],
        lambda x: (x, x[:, 0], MLP(x[:, 3])),
        lambda x: decayed(x, x[:, 1], x[:, 2]),
        lambda x: ROWS[(x[:, 0, 0].abs() * 3).long().clamp(0, 8)].unsqueeze(1) * x,
        lambda x: ROWS[(x[:, 1, :1] * 0 + x[:, 5, :1].abs() * 3).long().clamp(0, 8)] + x,
        lambda x: F.pad((x - x[:, 1:2]).transpose(1, 2), (3, 2), mode="reflect"),
        lambda x: CONV(F.pad((x - x[:, 1:2]).transpose(1, 2), (3, 2), mode="replicate")),
        lambda x: x + x[:, 0:6:2].sum(1, keepdim=True),
        lambda x: x[:, ::2] - x[:, 1:2],
        lambda x: (x[:, ::2] * x[:, ::2][:, 3:4]).repeat_interleave(2, 1),
        looped,
        looped_from_the_second,
    ],
)
@pytest.mark.parametrize("chunk", [None, 4])
def test_first_elements(model: Callable[[Tensor], Any], chunk: int | None) -> None:
    torch.manual_seed(0)
    compare(model, torch.randn(B, 36, C), 1, delay=24, chunk=chunk)


@pytest.mark.parametrize("seed", range(MODELS))
def test_random_models(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    layers = [*(head(rng) for _ in range(rng.randint(1, 3))), *(layer(rng) for _ in range(rng.randint(0, 3)))]
    rng.shuffle(layers)
    model = nn.Sequential(*layers).eval()
    x = torch.randn(B, 96, C)
    stream = compare(model, x, 1, delay=90, seed=seed)
    if rng.random() < 0.3:
        compare(model, x, 1, delay=90, chunk=stream.chunk * rng.randint(2, 6), seed=seed)


@pytest.mark.parametrize("seed", range(max(MODELS // 8, 2)))
def test_random_models_have_the_bits_of_their_packages(seed: int, tmp_path: Path) -> None:
    rng = random.Random(2000 + seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(rng.choice([head, layer])(rng) for _ in range(3)), head(rng)).eval()
    has_the_bits_of_its_package(model, torch.randn(B, 72, C), tmp_path, delay=60)


def test_several_inputs_and_an_initial_state_that_is_an_argument() -> None:
    """The initial state is read in the first chunk; another sequence may have another one."""
    torch.manual_seed(0)

    def model(x: Tensor, tokens: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        y, last = GRU(x - ROWS[tokens[:, :1]], h)
        return F.pad(y, (0, 0, 2, 0))[:, :-2] * h.squeeze(0).unsqueeze(1), last

    x, tokens, h = torch.randn(B, 30, C), torch.randint(9, (B, 30)), torch.randn(1, B, C)
    stream = weft.stream(model, x, tokens, h, time=[1, 1, None])
    for state in (h, -h):
        stream.reset()
        first, (rest, last) = stream.run(x[:, :7], tokens[:, :7], state)[0], stream.run(x[:, 7:], tokens[:, 7:], state)
        whole = model(x, tokens, state)
        torch.testing.assert_close(torch.cat([first, rest], 1), whole[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(last, whole[1], rtol=1e-5, atol=1e-5)


# ---- the state within the head


def early(x: Tensor) -> Tensor:
    y = F.pad((x - x[:, 2:3]).transpose(1, 2), (5, 5), mode="reflect")
    return CONV(y).transpose(1, 2) * x[:, :1].mean()


@pytest.mark.parametrize("at", [0, 1, 3, 6, 8, 11, 20])
def test_the_state_may_be_kept_within_the_head(at: int) -> None:
    x = torch.randn(1, 40, C)
    stream = weft.stream(lambda x: early(x)[:, :-10], x, delay=30)
    whole = stream.run(x)
    stream.reset()
    if at > 0:
        assert torch.equal(stream.run(x[:, :at]), whole[:, :at])
    kept, other = stream.state, copy.copy(stream)
    stream.run(torch.randn(1, 17, C))
    stream.state = kept
    assert torch.equal(stream.run(x[:, at:]), whole[:, at:])
    assert torch.equal(other.run(x[:, at:]), whole[:, at:])
    stream.run(torch.randn(1, 17, C))
    stream.reset()
    assert torch.equal(stream.run(x), whole)


def test_sequences_shorter_than_the_head() -> None:
    """Nothing is given yet, and nothing is wrong later."""
    x = torch.randn(1, 60, C)
    model = nn.Conv1d(C, 3, 9, padding=4, padding_mode="reflect")
    stream = weft.stream(model, x.transpose(1, 2), time=2, delay=4)
    for steps in (1, 2, 4):
        stream.reset()
        assert stream.run(x[:, :steps].transpose(1, 2)).abs().max() == 0
    stream.reset()
    whole = model(x.transpose(1, 2))
    torch.testing.assert_close(stream.run(x.transpose(1, 2))[:, :, 4:], whole[:, :, :-4], rtol=1e-5, atol=1e-5)
    # an example that is shorter than the head says too little
    with pytest.raises(RuntimeError, match=r"[Pp]adding"):
        weft.stream(model, x[:, :3].transpose(1, 2), time=2, delay=4)


def test_a_result_that_is_the_first_element() -> None:
    x = torch.randn(B, 12, C)
    stream = weft.stream(lambda x: (x * 2, x[:, 3] + x[:, 0]), x)
    assert stream.outputs[1].time is None
    assert torch.equal(stream.run(x[:, :5])[1], x[:, 3] + x[:, 0])
    assert torch.equal(stream.run(x[:, 5:])[1], x[:, 3] + x[:, 0])


# ---- what a step costs


def test_a_head_of_many_steps_is_one_state() -> None:
    """The first elements are in the history of the sequence, and no loop goes over them."""
    stream = weft.stream(
        nn.Conv1d(1, 1, 1025, padding=512, padding_mode="reflect"), torch.randn(1, 1, 2000), time=2, delay=512
    )
    sizes = sorted(state.numel() for state in stream.state.values())
    assert sizes[-1] <= 1024 and sum(sizes) <= 1024 + 512 + 1
    stream = weft.stream(lambda x: x - x[:, :200].mean(1, keepdim=True), torch.randn(1, 300, C), delay=200)
    assert sum(state.numel() for state in stream.state.values()) <= 2 * 199 * C + C + 1
    assert "scan" not in stream.model.step.text


# ---- what is refused


@pytest.mark.parametrize(
    ("model", "delay", "message"),
    [
        (lambda x: x - x[:, 4:5], 3, r"steps that are still to come: result 0 is complete 4 steps late.*delay=4"),
        (lambda x: F.pad(x.transpose(1, 2), (3, 3), mode="reflect"), 2, r"delay=\d+"),
        (lambda x: F.pad(x.transpose(1, 2), (3, 3), mode="circular"), 50, "end"),
        (lambda x: x - x[:, -1:], 50, "counted from the end of the sequence"),
        (lambda x: GRU(x, x[:, -1].unsqueeze(0))[0], 50, "initial carry that depends on all steps"),
        (lambda x: x * GRU(x)[1].squeeze(0).unsqueeze(1), 50, "last carry"),
        (lambda x: torch.cat([x[:, -2:], x], 1), 50, "counted from the end of the sequence"),
        (lambda x: x + x[:, [0, 2]].sum(1, keepdim=True), 50, "take `x.*or a slice, counted from the beginning"),
        (lambda x: x + torch.linalg.svd(x[:, :4])[1].sum(), 50, "svd.* has no streaming form"),
        (lambda x: x[:, -3:], 50, "counted from the end of the sequence"),
    ],
)
def test_refused(model: Callable[[Tensor], Any], delay: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=f"(?s)weft.stream: .*{message}"):
        weft.stream(model, torch.randn(B, 30, C), delay=delay)
