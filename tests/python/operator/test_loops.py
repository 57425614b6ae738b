"""Scans whose steps hold more than products and elementwise work: scans, batched products, gathers, branches."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import weft

NESTED = """
program @nested(%x: f64[T,B,3], %u: f64[S,3], %h0: f64[B,3], %w: f64[3,3]) {
  %h, %ys, %inner = scan length T carry(%c = %h0) xs(%xt = %x) {
    %k, %ks = scan length S carry(%z = %c) xs(%us = %u) {
      %ub = broadcast %us {dims = [1]} : f64[B,3]
      %a = matmul %z, %w : f64[B,3]
      %b = add %a, %ub : f64[B,3]
      %t = tanh %b : f64[B,3]
      yield carry(%t) ys(%t)
    } : f64[B,3], f64[S,B,3]
    %s = add %k, %xt : f64[B,3]
    %n = tanh %s : f64[B,3]
    yield carry(%n) ys(%n, %ks)
  } : f64[B,3], f64[T,B,3], f64[T,S,B,3]
  return %h, %ys, %inner
}
"""


def nested(x, u, h, w):
    ys, inner = [], []
    for xt in x:
        z, steps = h, []
        for us in u:
            z = torch.tanh(z @ w + us)
            steps.append(z)
        h = torch.tanh(z + xt)
        ys.append(h)
        inner.append(torch.stack(steps))
    return h, torch.stack(ys), torch.stack(inner)


ATTENTION = """
program @attention(%enc: f64[B,S,4], %x: f64[T,B,2], %h0: f64[B,4], %w: f64[6,4], %v: f64[4,4]) {
  %h, %ys, %as = scan length T carry(%c = %h0) xs(%xt = %x) {
    %q = matmul %c, %v : f64[B,4]
    %q3 = reshape %q : f64[B,1,4]
    %e = batch_matmul %q3, %enc {transpose_b = true} : f64[B,1,S]
    %p = exp %e : f64[B,1,S]
    %t = reduce_sum %p {dims = [2]} : f64[B,1]
    %tb = broadcast %t {dims = [0, 1]} : f64[B,1,S]
    %a = div %p, %tb : f64[B,1,S]
    %r3 = batch_matmul %a, %enc : f64[B,1,4]
    %r = reshape %r3 : f64[B,4]
    %j = concat %xt, %r {dim = 1} : f64[B,6]
    %g = matmul %j, %w : f64[B,4]
    %n = tanh %g : f64[B,4]
    yield carry(%n) ys(%n, %a)
  } : f64[B,4], f64[T,B,4], f64[T,B,1,S]
  return %h, %ys, %as
}
"""


def attention(enc, x, h, w, v):
    ys, weights = [], []
    for xt in x:
        a = torch.softmax((h @ v).unsqueeze(1) @ enc.transpose(1, 2), -1)
        h = torch.tanh(torch.cat([xt, (a @ enc).squeeze(1)], 1) @ w)
        ys.append(h)
        weights.append(a)
    return h, torch.stack(ys), torch.stack(weights)


CASES = {
    "nested": (NESTED, nested, ["T B 3", "S 3", "B 3", "3 3"]),
    "attention": (ATTENTION, attention, ["B S 4", "T B 2", "B 4", "6 4", "4 4"]),
}


def inputs_of(shapes, **sizes):
    def size(name):
        return int(name) if name.isdigit() else sizes[name]

    return [
        torch.randn([size(name) for name in shape.split()], dtype=torch.float64, requires_grad=True) for shape in shapes
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [{"T": 3, "B": 2, "S": 3}, {"T": 1, "B": 1, "S": 1}, {"T": 4, "B": 9, "S": 2}])
def test_equals_a_python_loop(name, sizes):
    text, loop, shapes = CASES[name]
    inputs = inputs_of(shapes, **sizes)
    weft.reset_stats()
    found = weft.call(text, inputs)
    expected = loop(*inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    cotangents = [torch.randn_like(a) for a in expected]
    for a, b in zip(
        torch.autograd.grad(found, inputs, cotangents), torch.autograd.grad(expected, inputs, cotangents), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert weft.stats()["fallbacks"] == {}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    text, _, shapes = CASES[name]
    inputs = inputs_of(shapes, T=2, B=2, S=2)
    assert gradcheck(lambda *xs: tuple(weft.call(text, list(xs))), inputs)
    assert gradgradcheck(lambda *xs: tuple(weft.call(text, list(xs))), inputs)


WALK = """
program @walk(%next: i64[5], %table: f32[5,3], %i0: i64[B], %t: f32[T]) {
  %i, %ys = scan length T carry(%i = %i0) xs() {
    %j = gather %next, %i : i64[B]
    %y = gather %table, %i : f32[B,3]
    yield carry(%j) ys(%y)
  } : i64[B], f32[T,B,3]
  return %i, %ys
}
"""


def test_an_index_carried_from_step_to_step():
    following = torch.tensor([1, 2, 3, 4, 0])
    table, start, steps = torch.randn(5, 3), torch.tensor([0, 2]), torch.empty(7)
    last, ys = weft.call(WALK, [following, table, start, steps])
    expected = (start + torch.arange(7)[:, None]) % 5
    assert torch.equal(last, (start + 7) % 5) and torch.equal(ys, table[expected])


def test_an_index_out_of_range_in_a_step_is_an_error():
    following = torch.tensor([1, 2, 3, 17, 0])
    with pytest.raises(RuntimeError, match="index 17 is out of bounds for dimension 0 with size 5"):
        weft.call(WALK, [following, torch.randn(5, 3), torch.tensor([0, 2]), torch.empty(7)])
