"""`weft.quantize` against PyTorch with the weights that the 8 bits stand for."""

from __future__ import annotations

import copy
import io
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn as rnn_utils

import weft

Configuration = dict[str, Any]


def dequantized(module: nn.Module, quantized: nn.Module) -> nn.Module:
    """The module with the weights that the quantized module's bytes stand for."""
    plain = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if name.rpartition(".")[2].startswith("weight"):
                rows, scale = quantized.get_buffer(name), quantized.get_buffer(name + "_scale")
                assert rows.dtype == torch.int8
                assert (rows.float() * scale[:, None] - parameter).abs().max() <= parameter.abs().max() / 127
                parameter.copy_(rows.float() * scale[:, None])
    return plain


def expected(module: nn.Module, *args: Any) -> Any:
    with weft.disabled(), torch.no_grad():
        return module(*args)


CONFIGURATIONS: list[tuple[type[nn.RNNBase], Configuration]] = [
    (nn.GRU, {}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    (nn.GRU, {"bias": False}),
    (nn.LSTM, {"num_layers": 2}),
    (nn.LSTM, {"proj_size": 5, "bidirectional": True}),
    (nn.LSTM, {"bias": False, "proj_size": 3, "num_layers": 2}),
    (nn.RNN, {"bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu", "batch_first": True}),
]


@pytest.mark.parametrize(("kind", "options"), CONFIGURATIONS)
def test_layers_are_pytorchs_with_the_weights_dequantized(kind: type[nn.RNNBase], options: Configuration) -> None:
    torch.manual_seed(0)
    module = kind(13, 17, **options)
    quantized = weft.quantize(module)
    plain = dequantized(module, quantized)
    weft.reset_stats()
    for steps, batch in [(1, 1), (5, 3), (7, 1), (2, 5)]:
        x = torch.randn(steps, batch, 13)
        if module.batch_first:
            x = x.transpose(0, 1)
        with torch.no_grad():
            torch.testing.assert_close(quantized(x), expected(plain, x), rtol=1e-5, atol=2e-6)
    unbatched = torch.randn(4, 13)
    with torch.no_grad():
        torch.testing.assert_close(quantized(unbatched), expected(plain, unbatched), rtol=1e-5, atol=2e-6)
        hx = quantized(x)[1]
        torch.testing.assert_close(quantized(x, hx), expected(plain, x, hx), rtol=1e-5, atol=2e-6)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_packed_sequences(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(1)
    module = kind(6, 33, bidirectional=True)
    quantized = weft.quantize(module)
    packed = rnn_utils.pack_sequence([torch.randn(n, 6) for n in (3, 7, 1)], enforce_sorted=False)
    with torch.no_grad():
        mine, theirs = quantized(packed), expected(dequantized(module, quantized), packed)
    torch.testing.assert_close(mine[0].data, theirs[0].data, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(mine[1], theirs[1], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(cell: type[nn.RNNCellBase], bias: bool) -> None:
    torch.manual_seed(2)
    module = cell(9, 1100, bias=bias)  # more than a block of the left operand
    quantized = weft.quantize(module)
    plain = dequantized(module, quantized)
    for x in (torch.randn(1, 9), torch.randn(5, 9), torch.randn(9)):
        state = None
        for _ in range(2):
            with torch.no_grad():
                mine, theirs = quantized(x, state), expected(plain, x, state)
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
            state = theirs


@pytest.mark.parametrize("carry", [torch.bfloat16, torch.float16])
def test_a_half_carry(carry: torch.dtype) -> None:
    torch.manual_seed(3)
    module = nn.LSTM(12, 20, num_layers=2)
    quantized = weft.quantize(module, carry=carry)
    plain = dequantized(module, quantized)
    x = torch.randn(6, 2, 12)
    with torch.no_grad():
        y, (h, c) = quantized(x)
    assert y.dtype == h.dtype == c.dtype == carry
    torch.testing.assert_close(y.float(), expected(plain, x)[0], rtol=0.02, atol=0.02)
    narrow = weft.quantize(module).to(carry)
    assert all(b.dtype in (torch.int8, torch.float32) for b in narrow.buffers())
    with torch.no_grad():
        torch.testing.assert_close(narrow(x)[0], y, rtol=0, atol=0)


def test_a_models_modules_are_replaced_and_take_a_quarter() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(64, 128)
            self.again = self.rnn
            self.out = nn.Linear(128, 3)

    model = Model()
    quantized = weft.quantize(model)
    assert type(model.rnn) is nn.LSTM and quantized is not model
    assert quantized.rnn is quantized.again
    assert "int8" in repr(quantized.rnn) and "64, 128" in repr(quantized.rnn)
    assert quantized.out.weight.data_ptr() != model.out.weight.data_ptr()

    def size(module: nn.Module) -> int:
        return sum(t.nbytes for t in (*module.parameters(), *module.buffers()))

    assert size(quantized.rnn) < 0.3 * size(model.rnn)
    assert weft.quantize(model, inplace=True) is model
    assert model.rnn is model.again and "int8" in repr(model.rnn)


def test_state_dict_round_trip_and_new_weights_are_seen() -> None:
    torch.manual_seed(4)
    one, other = weft.quantize(nn.GRU(8, 16)), weft.quantize(nn.GRU(8, 16))
    x = torch.randn(3, 2, 8)
    with torch.no_grad():
        before = other(x)[0]
        other.load_state_dict(one.state_dict())
        torch.testing.assert_close(other(x)[0], one(x)[0], rtol=0, atol=0)
        assert not torch.equal(other(x)[0], before)
        other.weight_hh_l0.neg_()
        assert not torch.equal(other(x)[0], one(x)[0])
    buffer = io.BytesIO()
    torch.save(one, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x)[0], one(x)[0], rtol=0, atol=0)
        torch.testing.assert_close(copy.deepcopy(one)(x)[0], one(x)[0], rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"weight_ih_l0 is torch\.float32, but this module has weights of 8 bits"):
        one.load_state_dict(nn.GRU(8, 16).state_dict(), strict=False)


def test_what_cannot_be_done_is_said() -> None:
    quantized = weft.quantize(nn.GRU(4, 4))
    x = torch.randn(2, 1, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="weights of 8 bits are for inference and have no gradients"):
        quantized(x)
    with torch.no_grad():
        quantized(x)
    with pytest.raises(ValueError, match=r"dtype should be torch.int8, got: torch.qint8"):
        weft.quantize(nn.GRU(4, 4), dtype=torch.qint8)
    with pytest.raises(ValueError, match=r"weights of torch\.float64, but .* or take module\.float\(\)"):
        weft.quantize(nn.GRU(4, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="nothing to quantize"):
        weft.quantize(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, got: int"):
        weft.quantize(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="can't be changed in place"):
        weft.quantize(nn.GRU(4, 4), inplace=True)
    broken = nn.GRU(4, 4)
    with torch.no_grad():
        broken.weight_hh_l0[2, 1] = float("nan")
    with pytest.raises(ValueError, match="weight_hh_l0 has elements that are not finite"):
        weft.quantize(broken)
    model = nn.Sequential(weft.nn.GRU(4, 4, layer_norm=True), nn.RNNCell(4, 4))
    with pytest.warns(UserWarning, match="'0' is left as it is: it has options that nn.GRU lacks"):
        assert type(weft.quantize(model)[0]) is weft.nn.GRU
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expected 4, got 5"):
        quantized(torch.randn(2, 1, 5))


def zeros(kind: type[nn.RNNBase], *sizes: int) -> Any:
    return (torch.zeros(sizes), torch.zeros(sizes)) if kind is nn.LSTM else torch.zeros(sizes)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_sizes_that_do_not_fit_are_said_in_pytorchs_words(kind: type[nn.RNNBase], batch_first: bool) -> None:
    module = kind(4, 6, 2, bidirectional=True, batch_first=batch_first)
    quantized = weft.quantize(module)
    x, batch = torch.randn(3, 2, 4), 3 if batch_first else 2
    calls: list[tuple[Any, ...]] = [
        (torch.randn(4),),
        (torch.randn(1, 1, 1, 4),),
        (torch.randn(3, 2, 5),),
        (torch.randn(2, 0, 4) if batch_first else torch.randn(0, 2, 4),),
        (x, zeros(kind, 4, 7, 6)),
        (x, zeros(kind, 3, batch, 6)),
        (x, zeros(kind, 4, batch, 7)),
        (x, zeros(kind, 4, 6)),
        (x[0], zeros(kind, 4, 1, 6)),
    ]
    if kind is nn.LSTM:
        calls.append((x, (torch.zeros(4, batch, 6), torch.zeros(4, batch, 5))))
        calls.append((x, (torch.zeros(4, batch, 6), torch.zeros(4, 6))))
        with pytest.raises(RuntimeError, match=r"lstm takes two states, \(h, c\), but got 1 of them"):
            quantized(x, (torch.zeros(4, batch, 6),))
    for call in calls:
        with pytest.raises(Exception, match=r".") as theirs:
            expected(module, *call)
        with pytest.raises(type(theirs.value)) as mine:
            quantized(*call)
        assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_under_vmap(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(8)
    quantized, cell = weft.quantize(kind(4, 6)), weft.quantize(nn.GRUCell(4, 6))
    x, h = torch.randn(3, 5, 2, 4), torch.randn(3, 1, 2, 6)
    hx = (h, 2 * h) if kind is nn.LSTM else h
    with torch.no_grad():
        alone = torch.stack([quantized(each)[0] for each in x])
        torch.testing.assert_close(torch.vmap(lambda each: quantized(each)[0])(x), alone)
        given = torch.vmap(lambda each, state: quantized(each, state)[0])(x, hx)
        one = torch.vmap(lambda state: quantized(x[1], state)[0])(hx)
        for i in range(3):
            state = (h[i], 2 * h[i]) if kind is nn.LSTM else h[i]
            torch.testing.assert_close(given[i], quantized(x[i], state)[0])
            torch.testing.assert_close(one[i], quantized(x[1], state)[0])
        torch.testing.assert_close(torch.vmap(cell)(x[:, 0], h[:, 0])[1], cell(x[1, 0], h[1, 0]))


def test_a_tensors_own_class_sees_the_call() -> None:
    class Seeing(torch.Tensor):
        names: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.names.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    quantized = weft.quantize(nn.GRU(4, 6))
    x, h = torch.randn(3, 2, 4), torch.randn(1, 2, 6)
    with torch.no_grad():
        for call in [(x.as_subclass(Seeing),), (x, h.as_subclass(Seeing))]:
            Seeing.names.clear()
            assert type(quantized(*call)[0]) is Seeing
            assert any("_rnn_quantized" in name for name in Seeing.names)
            torch.testing.assert_close(torch.Tensor(quantized(*call)[0]), quantized(*map(torch.Tensor, call))[0])


def test_under_torch_compile() -> None:
    torch.manual_seed(5)
    quantized = weft.quantize(nn.LSTM(6, 10))
    x = torch.randn(4, 2, 6)
    with torch.no_grad():
        compiled = torch.compile(quantized, backend="aot_eager")(x)
        torch.testing.assert_close(compiled, quantized(x))


def test_a_step_of_ones_own_reads_weights_of_8_bits() -> None:
    torch.manual_seed(6)
    rows = torch.randint(-127, 128, (20, 20), dtype=torch.int8)
    scale = torch.rand(20) / 300

    def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = torch.tanh(nn.functional.linear(h, rows.float()) * scale + x)
        return n, n

    h, xs = torch.zeros(3, 20), torch.randn(5, 3, 20)
    weft.reset_stats()
    with torch.no_grad():
        _, ys = weft.scan(step, h, xs)
        for t in range(5):
            h, _ = step(h, xs[t])
            torch.testing.assert_close(ys[t], h, rtol=1e-5, atol=1e-5)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN, nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_weights_of_float64_need_a_carry(kind):
    module = kind(3, 4).double()
    with pytest.raises(ValueError, match=r"the module has weights of torch\.float64.*say which as carry="):
        weft.quantize(module)
    with pytest.raises(ValueError, match=r"'0' has weights of torch\.float64"):
        weft.quantize(nn.Sequential(module))
    x = torch.randn(2, 3)
    with torch.no_grad():
        found, wanted = weft.quantize(module, carry=torch.float32)(x), weft.quantize(module.float())(x)
    torch.testing.assert_close(found, wanted)
