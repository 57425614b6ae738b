"""Modules that torch.ao's dynamic quantization made, on the engine: PyTorch's own kernels are the reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn as rnn_utils

import weft

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.ao import quantization

pytestmark = pytest.mark.filterwarnings("ignore")

ENGINES = [engine for engine in torch.backends.quantized.supported_engines if engine != "none"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


def quantized(module: nn.Module, qconfig: Any = None) -> Any:
    kind = type(module)
    return quantization.quantize_dynamic(nn.Sequential(module), {kind: qconfig} if qconfig else {kind})[0]


#: The share of a result's numbers with no other error than float32's.
MOST = 0.98


def check_on_engine(module: nn.Module, *args: Any, tolerance: float = 1e-6) -> None:
    """Runs on the engine, with PyTorch's results up to rounding of float32. That may now and then round a number to the
    next one of 8 bits, in itself and in what comes after."""
    assert part_alike(module, *args, tolerance=tolerance) > MOST


def part_alike(module: nn.Module, *args: Any, tolerance: float = 1e-6) -> float:
    """The share of a result's numbers with no other error than float32's, in the tensor where it is least. Other errors
    are of 8-bit rounding at most."""
    calls = weft.stats()["calls"]
    with torch.no_grad():
        with weft.disabled():
            theirs = module(*args)
        assert weft.stats()["calls"] == calls
        mine = module(*args)
    assert weft.stats()["calls"] == calls + 1
    parts = []
    for x, y in zip(flat(mine), flat(theirs), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        error = (x - y).abs()
        assert error.max() < 0.02
        parts.append((error < tolerance).double().mean().item())
    return min(parts)


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [tensor for part in value for tensor in flat(part)]


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bidirectional": True}]
)
def test_layers(engine: str, kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    parts = []
    weft.reset_stats()
    for seed in range(4):
        torch.manual_seed(seed)
        module = quantized(kind(13, 19, **options))
        for steps, batch in [(1, 1), (7, 3), (2, 5)]:
            x = torch.randn(batch, steps, 13) if module.batch_first else torch.randn(steps, batch, 13)
            parts.append(part_alike(module, x))
        states = [0.5 * torch.randn(len(module._all_weight_values), batch, 19) for _ in range(2)]
        parts.append(part_alike(module, x, states[0] if kind is nn.GRU else tuple(states)))
    assert not weft.stats()["fallbacks"]
    # If a number of the first layer is rounded to the next one of 8 bits, all of the second layer's change. (For such
    # an LSTM that is so with 4 of 300 random inputs.)
    chances = 2 if options.get("num_layers", 1) > 1 else 0
    assert sum(part <= MOST for part in parts) <= chances


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1e-3, 30.0])
@pytest.mark.parametrize("low", [-1.0, 0.0, 0.7])
def test_ranges_of_the_input(engine: str, scale: float, low: float) -> None:
    torch.manual_seed(1)
    module = quantized(nn.GRU(11, 5))
    for sign in (1, -1):
        check_on_engine(
            module, sign * scale * torch.empty(3, 2, 11).uniform_(low, 1.0), tolerance=1e-6 * max(1.0, 4 * scale)
        )


@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(engine: str, cell: type[nn.RNNCellBase], bias: bool) -> None:
    torch.manual_seed(2)
    if bias:
        module = quantized(cell(9, 21))
    else:  # quantize_dynamic refuses these
        module = getattr(torch.ao.nn.quantized.dynamic, cell.__name__)(9, 21, bias=False)
    for batch in (1, 4):
        state = 0.5 * torch.randn(batch, 21)
        check_on_engine(module, torch.randn(batch, 9), (state, state.neg()) if cell is nn.LSTMCell else state)
        check_on_engine(module, torch.randn(batch, 9))


def test_a_relu_cell() -> None:
    torch.manual_seed(3)
    check_on_engine(quantized(nn.RNNCell(9, 21, nonlinearity="relu")), torch.randn(3, 9), torch.randn(3, 21))


def test_a_scale_a_channel(engine: str) -> None:
    if engine == "qnnpack":
        pytest.skip("QNNPACK's linear layers have one scale")
    torch.manual_seed(4)
    module = nn.LSTMCell(8, 16)
    with torch.no_grad():
        module.weight_hh.mul_(torch.logspace(-2, 0, 64)[:, None])
    check_on_engine(quantized(module, quantization.per_channel_dynamic_qconfig), torch.randn(2, 8))


def test_a_model_that_was_loaded() -> None:
    torch.manual_seed(5)
    one, other = quantized(nn.GRU(6, 7)), quantized(nn.GRU(6, 7))
    x = torch.randn(3, 1, 6)
    with torch.no_grad():
        other(x)
        other.load_state_dict(one.state_dict())
        torch.testing.assert_close(other(x), one(x), rtol=0, atol=0)
    check_on_engine(other, x)


def test_what_the_engine_leaves_to_pytorch() -> None:
    torch.manual_seed(6)
    module = quantized(nn.LSTM(6, 7))
    packed = rnn_utils.pack_sequence([torch.randn(n, 6) for n in (5, 3)])
    halves = quantization.quantize_dynamic(nn.Sequential(nn.GRU(6, 7)), {nn.GRU}, dtype=torch.float16)[0]
    x = torch.randn(2, 1, 6)
    weft.reset_stats()
    with torch.no_grad():
        mine, half = module(packed)[0].data, halves(x)[0]
        with weft.disabled():
            assert torch.equal(mine, module(packed)[0].data)
            assert torch.equal(half, halves(x)[0])
    assert weft.stats()["calls"] == 0
    assert list(weft.stats()["fallbacks"]) == ["quantized_gru: weights that are not int8"]
    with pytest.raises(RuntimeError, match="Expected 6, got 5"):
        module(torch.randn(2, 1, 5))
