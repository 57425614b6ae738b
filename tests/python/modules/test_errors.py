"""What the modules refuse, they refuse in PyTorch's words; what PyTorch allows, they allow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import weft

X, H = torch.randn(3, 2, 4), torch.randn(1, 2, 6)


def outcome(f):
    """Shapes of the results, or the error's class and words."""
    try:
        with torch.no_grad():
            results = f()
    except Exception as error:
        return type(error), str(error)
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tuple(tensor.shape), results)


def both(f):
    ours = outcome(f)
    with weft.disabled():
        theirs = outcome(f)
    return ours, theirs


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize(
    "x, state",
    [
        (X[..., :3], H),
        (X, H[:, :1]),
        (X, H[..., :5]),
        (X, torch.randn(2, 2, 6)),
        (X, torch.randn(2, 6)),
        (X[0], H),
        (X.double(), H),
        (X, H.double()),
        (X.long(), H),
        (X[None], H),
        (X[:0], H),
        (X[:, :0], H[:, :0]),
        (X[:0, :0], H[:, :0]),
        (X.to("meta"), H),
        (X, H.to("meta")),
    ],
)
def test_bad_inputs_of_modules(kind, x, state):
    module = kind(4, 6)
    ours, theirs = both(lambda: module(x, (state, state) if kind is nn.LSTM else state))
    assert ours == theirs
    assert weft.stats()["fallbacks"] == {} or "dtype" in str(weft.stats()["fallbacks"])


@pytest.mark.parametrize(
    "change",
    [
        lambda params: params[:3],
        lambda params: [*params, *params],
        lambda params: [params[0].T, *params[1:]],
        lambda params: [params[0], params[1][:, :5], *params[2:]],
        lambda params: [*params[:2], params[2][:5], params[3]],
        lambda params: [params[0].double(), *params[1:]],
        lambda params: [],
    ],
)
def test_bad_weights_at_the_aten_level(change):
    params = [torch.randn(18, 4), torch.randn(18, 6), torch.randn(18), torch.randn(18)]
    ours, theirs = both(lambda: torch.gru(X, H, change(params), True, 1, 0.0, False, False, False))
    assert ours == theirs


def test_lstm_with_one_state():
    params = [torch.randn(24, 4), torch.randn(24, 6), torch.randn(24), torch.randn(24)]
    ours, theirs = both(lambda: torch.lstm(X, [H], params, True, 1, 0.0, False, False, False))
    assert ours == theirs and ours[0] is RuntimeError


def test_gradients_of_wrong_dtype_are_refused():
    module = nn.GRU(4, 6)
    y = module(X)[0]
    with pytest.raises(RuntimeError):
        y.backward(torch.ones(1, 2, 3))


def test_bad_inputs_while_tracing():
    module = nn.GRU(4, 6)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match=r"input.size\(-1\) must be equal to input_size"):
        compiled(X[..., :3])
    with pytest.raises(Exception, match="Expected hidden size"):
        compiled(X, H[:, :1])
