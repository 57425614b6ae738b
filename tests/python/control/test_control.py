"""Programs of loops and choices, put together from those of their parts."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import weft
from weft import _C

F64 = torch.float64

BELOW = "program @c(%h: f64[B], %k: i64[], %limit: f64[]) {{ {} return %m }}".format(
    "%s = reduce_sum %h {dims = [0]} : f64[] %m = lt %s, %limit : bool[]"
)
GROW = """program @b(%h: f64[N], %k: i64[], %w: f64[N]) {
  %g = mul %h, %w : f64[N]
  %one = constant {value = 1} : i64[]
  %n = add %k, %one : i64[]
  return %g, %n
}"""


def grow(h, w, limit, most=1000):
    k = 0
    while h.sum() < limit and k < most:
        h, k = h * w, k + 1
    return h, k


def start():
    return torch.tensor([0.5, 1.0, 0.25], dtype=F64), torch.tensor([1.5, 1.25, 2.0], dtype=F64)


@pytest.mark.parametrize("limit", [0.0, 3.0, 40.0])
def test_a_while_loop(limit):
    h, w = start()
    text = _C.while_program(_C.Program(BELOW), _C.Program(GROW), 2, 1, 1).text
    got, k = weft.call(text, [h, torch.tensor(0), torch.tensor(limit, dtype=F64), w])
    expected, count = grow(h, w, limit)
    torch.testing.assert_close(got, expected)
    assert k.item() == count


@pytest.mark.parametrize("limit, most", [(0.0, 4), (3.0, 0), (3.0, 2), (40.0, 3), (40.0, 50)])
def test_a_bounded_while_loop_and_its_gradients(limit, most):
    h, w = (t.requires_grad_() for t in start())
    text = _C.bounded_while_program(_C.Program(BELOW), _C.Program(GROW), 2, 1, 1).text

    def run(h, w):
        return weft.call(text, [h, torch.tensor(0), torch.empty(most, 0), torch.tensor(limit, dtype=F64), w])[0]

    torch.testing.assert_close(run(h, w), grow(h, w, limit, most)[0])
    assert gradcheck(run, (h, w)) and gradgradcheck(run, (h, w))


def test_a_condition_of_two_programs():
    one = "program @y(%x: f64[B,3], %w: f64[3,3]) { %y = matmul %x, %w : f64[B,3] return %y, %x }"
    other = "program @n(%x: f64[M,3], %v: f64[B]) { %s = sin %x : f64[M,3] return %s, %s }"  # its B is another one
    text = _C.cond_program(_C.Program(one), _C.Program(other), 1, 1, 1).text
    x, w, v = torch.randn(2, 3, dtype=F64), torch.randn(3, 3, dtype=F64), torch.randn(5, dtype=F64)
    got = weft.call(text, [torch.tensor(True), x, w, v])
    torch.testing.assert_close(got, [x @ w, x])
    got = weft.call(text, [torch.tensor(False), x, w, v])
    torch.testing.assert_close(got, [torch.sin(x)] * 2)
    assert all(a.data_ptr() != b.data_ptr() for a, b in [(got[0], got[1]), (got[0], x)])


def test_a_size_that_is_a_number_to_one_of_them():
    one = "program @y(%x: f64[B,3]) { %y = neg %x : f64[B,3] return %y }"
    other = "program @n(%x: f64[2,K]) { %y = sin %x : f64[2,K] return %y }"
    with pytest.raises(RuntimeError, match=r"cond_program: value 0 is f64\[B,3\] in one program and f64\[K\] in"):
        _C.cond_program(_C.Program(one), _C.Program(other.replace("2,K", "K")), 1, 0, 0)
    text = _C.cond_program(_C.Program(one), _C.Program(other), 1, 0, 0).text
    x = torch.randn(2, 3, dtype=F64)
    torch.testing.assert_close(weft.call(text, [torch.tensor(False), x]), [torch.sin(x)])


def test_parts_that_do_not_fit():
    with pytest.raises(RuntimeError, match="while_program: a program takes 3 inputs, not 2 and 0"):
        _C.while_program(_C.Program(BELOW), _C.Program(GROW), 2, 0, 1)
    short = "program @b(%h: f64[N], %k: i64[]) { return %k, %h }"
    with pytest.raises(RuntimeError, match=r"while: carry 0 comes in as f64\[B\] but goes out as i64\[\]"):
        _C.while_program(_C.Program(BELOW), _C.Program(short), 2, 1, 0)
    with pytest.raises(RuntimeError, match="cond: one region yields 2 values, the other 1"):
        _C.cond_program(_C.Program(short), _C.Program("program @n(%h: f64[N], %k: i64[]) { return %k }"), 2, 0, 0)
