"""weft.stream and weft.package of layers that PyTorch computes by kernels of its own in inference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_streaming import compare
from torch import Tensor, nn

import weft


class OverBands(nn.Module):
    """Attention among the bands of each frame."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:  # [B, T, bands, 8]
        frames = x.flatten(0, 1)
        if isinstance(self.layer, nn.MultiheadAttention):
            return self.layer(frames, frames, frames, need_weights=False)[0].view(x.shape)
        return self.layer(frames).view(x.shape)


@pytest.mark.parametrize("bands", [1, 5])
@pytest.mark.parametrize("norm_first", [False, True])
def test_attention_within_a_step(bands: int, norm_first: bool) -> None:
    torch.manual_seed(0)
    layers = [
        nn.MultiheadAttention(8, 2, batch_first=True),
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first), 2),
    ]
    for layer in layers:
        compare(OverBands(layer).eval(), torch.randn(1, 20, bands, 8), 1)
    assert torch.backends.mha.get_fastpath_enabled()


def test_attention_over_a_window_in_a_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def step(window: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat([window[:, 1:], x.unsqueeze(1)], 1)
        return window, layer(window)[:, -1]

    window = torch.zeros(1, 5, 8)
    package = weft.load(weft.package(step, (window, torch.zeros(1, 8)), tmp_path / "model") / "libmodel.so")
    with torch.no_grad():
        for x in torch.randn(12, 1, 8):
            window, expected = step(window, x)
            torch.testing.assert_close(package.step(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_response_of_many_samples(channels: int) -> None:
    """Its sum of so many products took a time with the third power of its length to compile."""
    weight = torch.randn(channels, 1, 400) * 0.05
    model = lambda x: F.conv1d(F.pad(x, (399, 0)), weight, groups=channels)  # noqa: E731
    assert compare(model, torch.randn(1, channels, 500), 2).target is not None


@pytest.mark.filterwarnings("ignore")
def test_layers_that_are_not_ready_are_refused(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 20)
    for take in (lambda m: weft.stream(m, x, time=2), lambda m: weft.package(m, x, tmp_path / "model", time=2)):
        with pytest.raises(ValueError, match=r"0\.weight of the model has no size yet: call the \(lazy\) module once"):
            take(nn.Sequential(nn.LazyConv1d(4, 1)))
        with pytest.raises(RuntimeError, match=r"weight_norm .* take theirs of torch\.nn\.utils\.parametrizations"):
            take(torch.nn.utils.weight_norm(nn.Conv1d(3, 3, 1)))
    with pytest.raises(ValueError, match="the example has no steps"):
        weft.stream(nn.ReLU(), x[:, :, :0], time=2)
    with pytest.raises(ValueError, match=r"'new' is a keyword of C\+\+"):
        weft.package(nn.ReLU(), x, tmp_path / "new", time=2)
    sparse = torch.eye(4).to_sparse()
    with pytest.raises(RuntimeError, match=r"layout Sparse; to_dense\(\)"):
        weft.package(
            lambda h, x: (torch.sparse.mm(sparse, h), x), (torch.zeros(4, 1), torch.zeros(1)), tmp_path / "model"
        )
    model = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 3, 1))
    compare(model, x, 2)
