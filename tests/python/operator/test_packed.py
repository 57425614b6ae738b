"""Ragged scans through weft::call, against PyTorch's own layers on PackedSequence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import weft

PROGRAMS = Path(__file__).resolve().parents[2] / "golden" / "programs"
INPUT, HIDDEN = 8, 16
LENGTHS = [[5, 3, 3, 1], [4, 4, 4], [7], [1, 1], [60, 31, 30, 12, 7, 5, 1, 1, 1]]


TEXTS = {kind: (PROGRAMS / f"packed_{kind}.weft").read_text() for kind in ("gru", "lstm")}


def packed_inputs(lengths: list[int], dtype: torch.dtype = torch.float32) -> PackedSequence:
    return pack_sequence([torch.randn(length, INPUT, dtype=dtype) for length in lengths])


def layer_of(kind: str) -> nn.RNNBase:
    return {"gru": nn.GRU, "lstm": nn.LSTM}[kind](INPUT, HIDDEN)


def states(kind: str, batch: int) -> list[Tensor]:
    return [torch.randn(batch, HIDDEN) for _ in range(2 if kind == "lstm" else 1)]


def by_pytorch(kind: str, layer: nn.RNNBase, x: Tensor, sizes: Tensor, h: list[Tensor]) -> list[Tensor]:
    """[packed outputs, last states...] of one layer, as PyTorch computes them."""
    first = tuple(each[None] for each in h)
    with weft.disabled():
        y, last = layer(PackedSequence(x, sizes), first if kind == "lstm" else first[0])
    return [y.data, *(each[0] for each in (last if kind == "lstm" else (last,)))]


def by_weft(kind: str, layer: nn.RNNBase, x: Tensor, sizes: Tensor, h: list[Tensor]) -> list[Tensor]:
    return list(weft.call(TEXTS[kind], [x, sizes, *h, *layer.all_weights[0]]))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_outputs_and_gradients(kind, lengths):
    torch.manual_seed(len(lengths))
    packed = packed_inputs(lengths)
    layer = layer_of(kind)
    h = states(kind, len(lengths))
    found, expected = [], []
    cotangents = None
    weft.reset_stats()
    for run, results in ((by_weft, found), (by_pytorch, expected)):
        x = packed.data.clone().requires_grad_()
        first = [each.clone().requires_grad_() for each in h]
        outputs = run(kind, layer, x, packed.batch_sizes, first)
        if cotangents is None:
            cotangents = [torch.randn_like(y) for y in outputs]
        leaves = [x, *first, *layer.all_weights[0]]
        results.extend(outputs)
        results.extend(torch.autograd.grad(outputs, leaves, cotangents))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    assert weft.stats()["fallbacks"] == {}


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_second_derivatives(kind):
    torch.manual_seed(0)
    packed = packed_inputs([5, 3, 1])
    layer = layer_of(kind)
    h = states(kind, 3)
    found, expected = [], []
    for run, results in ((by_weft, found), (by_pytorch, expected)):
        x = packed.data.clone().requires_grad_()
        first = [each.clone().requires_grad_() for each in h]
        leaves = [x, *first, *layer.all_weights[0]]
        outputs = run(kind, layer, x, packed.batch_sizes, first)
        gradients = torch.autograd.grad(sum(y.sin().sum() for y in outputs), leaves, create_graph=True)
        results.extend(torch.autograd.grad(sum((g * g).sum() for g in gradients), leaves))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_sizes_that_do_not_fit():
    layer = layer_of("gru")
    x, sizes = packed_inputs([3, 2])[:2]
    (h,) = states("gru", 2)
    for wrong, message in (
        (torch.tensor([2, 2, 2]), "batch_sizes sum to more than the 5 rows"),
        (torch.tensor([2, 1, 1]), "batch_sizes sum to 4, but the data have 5 rows"),
        (torch.tensor([1, 2, 2]), "batch_sizes begin with 1, but there are 2 sequences"),
        (torch.tensor([2, 3, 0]), "must not increase, but 3 follows 2"),
    ):
        with pytest.raises(RuntimeError, match=message):
            by_weft("gru", layer, x, wrong, [h])
    with pytest.raises(RuntimeError, match=r"input 1 'batch_sizes' of program @packed_gru must be i64\[T\]"):
        by_weft("gru", layer, x, sizes.int(), [h])


def test_meta_and_fake_tensors():
    layer = layer_of("lstm")
    x, sizes = packed_inputs([3, 2])[:2]
    h = states("lstm", 2)
    inputs = [x, sizes, *h, *layer.all_weights[0]]
    outputs = weft.call(TEXTS["lstm"], [each.to("meta") for each in inputs])
    assert [tuple(y.shape) for y in outputs] == [(5, HIDDEN), (2, HIDDEN), (2, HIDDEN)]


@pytest.mark.parametrize("backend", ["aot_eager", "weft"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(backend, dynamic):
    """Symbols of a ragged scan cannot become numbers, so under fixed sizes the call stands by itself."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = layer_of("gru")

    def step(x, sizes, h):
        y, last = by_weft("gru", layer, x * 2, sizes, [h])
        return y.tanh().sum() + last.sum()

    compiled = torch.compile(step, backend=backend, dynamic=dynamic, fullgraph=True)
    for lengths in ([5, 3, 2], [6, 2, 2]):
        x, sizes = packed_inputs(lengths)[:2]
        (h,) = states("gru", 3)
        gradients = []
        for function in (compiled, step):
            leaf = x.clone().requires_grad_()
            loss = function(leaf, sizes, h)
            gradients.append([loss.detach(), *torch.autograd.grad(loss, [leaf, *layer.parameters()])])
        torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("mapped", ["inputs", "cotangents"])
def test_vmap(mapped):
    layer = layer_of("gru")
    x, sizes = packed_inputs([4, 2, 1])[:2]
    (h,) = states("gru", 3)
    if mapped == "inputs":
        many = torch.randn(3, *x.shape)
        found = torch.vmap(lambda each: by_weft("gru", layer, each, sizes, [h])[0])(many)
        expected = torch.stack([by_weft("gru", layer, each, sizes, [h])[0] for each in many])
    else:
        x.requires_grad_()
        y = by_weft("gru", layer, x, sizes, [h])[0]
        cotangents = torch.randn(3, *y.shape)
        (found,) = torch.autograd.grad(y, x, cotangents, is_grads_batched=True, retain_graph=True)
        expected = torch.stack([torch.autograd.grad(y, x, each, retain_graph=True)[0] for each in cotangents])
    torch.testing.assert_close(found, expected)


def test_flops_count_packed_rows():
    """A padded program of the same layer would count T*B rows."""
    from torch.utils.flop_counter import FlopCounterMode

    layer = layer_of("gru")
    x, sizes = packed_inputs([9, 2, 1])[:2]
    (h,) = states("gru", 3)
    with FlopCounterMode(display=False) as counter:
        by_weft("gru", layer, x, sizes, [h])
    assert counter.get_total_flops() == 2 * 12 * 3 * HIDDEN * (INPUT + HIDDEN)
