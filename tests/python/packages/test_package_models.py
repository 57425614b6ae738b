"""Packages of models over whole sequences: what their library computes call by call is what the model gives."""

from __future__ import annotations

import json
import random
from typing import Any

import package_checks
import packaged
import pytest
import torch
from stream_models import B, C, layer
from torch import Tensor, nn

import weft


class Denoiser(nn.Module):
    """Causal convolutions, a recurrent layer, and a mask on the input."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.front = nn.Conv1d(8, width, 3)
        self.deep = nn.Conv1d(width, width, 3, dilation=2, groups=width)
        self.gru = nn.GRU(width, 16, batch_first=True)
        self.mask = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.front(nn.functional.pad(x, (2, 0))))
        y = torch.relu(self.deep(nn.functional.pad(y, (4, 0))))
        y = self.gru(y.transpose(1, 2))[0]
        return x * torch.sigmoid(self.mask(y)).transpose(1, 2)


def run(model: Any, stream: Any, xs: Tensor) -> list[Tensor]:
    """The outputs of a loaded package for a sequence, put together as a stream's."""
    port = stream.model.inputs[0]
    chunks = xs.shape[port.time] // port.per_chunk
    stacked = xs.unflatten(port.time, (chunks, port.per_chunk)).movedim(port.time, 0).contiguous()
    found = package_checks.check_chunks(model, stacked)
    return [
        ys[-1] if out.time is None else ys.movedim(0, out.time).flatten(out.time, out.time + 1)
        for ys, out in zip(found, stream.outputs, strict=True)
    ]


def check_package(model: nn.Module, xs: Tensor, time: int, factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The package gives what the stream gives; returns what its model.json says."""
    folder = weft.package(model, xs, factory.mktemp("packages") / "model", time=time)
    stream = weft.stream(model, xs, time=time, check=False)
    facts = json.loads((folder / "model.json").read_text())
    assert facts["chunk"] == stream.chunk and facts["lags"] == [port.lag for port in stream.outputs]
    xs = xs.narrow(time, 0, xs.shape[time] // stream.chunk * stream.chunk)
    expected = [leaf for leaf in torch.utils._pytree.tree_leaves(stream.run(xs)) if isinstance(leaf, Tensor)]
    for found, wanted in zip(run(packaged.loaded(folder, factory), stream, xs), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    return facts


def test_a_denoiser(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    model, xs = Denoiser().eval(), torch.randn(1, 8, 40)
    facts = check_package(model, xs, 2, tmp_path_factory)
    assert facts["chunk"] == 1 and facts["inputs"] == [{"name": "x", "dtype": "f32", "shape": [1, 8, 1]}]


@pytest.mark.parametrize("target", ["aarch64", "cortex-m4"])
def test_a_denoiser_under_emulators(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    model, xs = Denoiser().eval(), torch.randn(1, 8, 20)
    folder = weft.package(model, xs, tmp_path_factory.mktemp("packages") / "model", targets=target, time=2)
    steps = xs.movedim(2, 0).unsqueeze(-1).contiguous()
    (found,) = packaged.run(folder, target, [steps], 20, {"y": (torch.float32, (1, 8, 1))})
    with torch.no_grad():
        torch.testing.assert_close(found.squeeze(-1).movedim(0, 2), model(xs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_random_models(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(100 + seed)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer(rng) for _ in range(rng.randint(1, 4)))).eval()
    check_package(model, torch.randn(B, 24, C), 1, tmp_path_factory)


def test_a_strided_model_takes_a_chunk_a_call(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 6, 4, stride=4), nn.ReLU()).eval()
    assert check_package(model, torch.randn(1, 2, 64), 2, tmp_path_factory)["chunk"] == 4


def test_what_needs_the_future_is_refused_with_its_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4, batch_first=True, bidirectional=True))
    with pytest.raises(RuntimeError, match=r"weft\.package: "):
        weft.package(model, torch.randn(1, 10, 4), tmp_path_factory.mktemp("packages") / "model")


def test_a_model_that_is_taken_for_a_step_is_told_of_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A function, or a module with two arguments, may be a model or a step."""

    class Shifted(nn.Module):
        def forward(self, x: Tensor, by: Tensor) -> Tensor:
            return x + by[:, None]

    path = tmp_path_factory.mktemp("packages") / "model"
    example = (torch.randn(1, 10, 3), torch.randn(1, 3))
    hint = r"\(a model over whole sequences is packaged with time=, the dim that its steps are in\)"
    with pytest.raises(TypeError, match=rf"must return \(carry, y\), but returned a Tensor {hint}"):
        weft.package(Shifted(), example, path)
    with pytest.raises(TypeError, match=rf"the example of a step is a tuple \(carry, x\).* {hint}"):
        weft.package(lambda x: x * 2, example[0], path)
    with pytest.raises(ValueError, match=rf"must keep the carry's shapes and dtypes.* {hint}"):
        weft.package(lambda x, by: (x[:, :1], x), example, path)
    for model, time in ((Shifted(), [1, None]), (lambda x, by: x + by[:, None], [1, None])):
        loaded = packaged.loaded(weft.package(model, example, path, time=time), tmp_path_factory)
        x = example[0].movedim(1, 0).unsqueeze(2).contiguous()
        found = loaded.run(x, example[1].expand(10, 1, 3))
        torch.testing.assert_close(found.squeeze(2).movedim(0, 1), example[0] + example[1][:, None])
