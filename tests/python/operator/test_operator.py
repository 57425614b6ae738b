"""weft::call with programs written by hand: inputs of every layout, errors, threads, forks."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest
import torch
import warm_python

import weft

AFFINE = """
program @affine(%x: f32[T,B,3], %w: f32[4,3], %b: f32[4]) {
  %product = matmul %x, %w {transpose_b = true} : f32[T,B,4]
  %bias = broadcast %b {dims = [2]} : f32[T,B,4]
  %y = add %product, %bias : f32[T,B,4]
  return %y
}
"""


def affine_inputs(steps=5, batch=2):
    return [torch.randn(steps, batch, 3), torch.randn(4, 3), torch.randn(4)]


def test_runs():
    x, w, b = affine_inputs()
    (y,) = weft.call(AFFINE, [x, w, b])
    torch.testing.assert_close(y, torch.nn.functional.linear(x, w, b))
    assert y.is_contiguous()


@pytest.mark.parametrize("steps, batch", [(0, 2), (2, 0), (0, 0), (1, 1), (13, 7)])
def test_any_sizes(steps, batch):
    inputs = affine_inputs(steps, batch)
    (y,) = weft.call(AFFINE, inputs)
    assert y.shape == (steps, batch, 4)
    torch.testing.assert_close(y, torch.nn.functional.linear(*inputs))


def test_any_layout():
    _, w, b = affine_inputs()
    layouts = [
        torch.randn(2, 5, 3).transpose(0, 1),
        torch.randn(5, 2, 6)[..., ::2],
        torch.randn(2, 3).expand(5, 2, 3),
        torch.randn(7, 2, 3)[2:],
        torch.randn(5, 2, 3, dtype=torch.cfloat).conj().imag,  # its negation is pending
    ]
    for layout in layouts:
        for weight in (w, torch.randn(3, 4).T):
            (y,) = weft.call(AFFINE, [layout, weight, b])
            torch.testing.assert_close(y, torch.nn.functional.linear(layout.clone(), weight, b))


def test_outputs_own_their_memory():
    text = "program @two(%x: f32[N]) {\n  %y = copy %x : f32[N]\n  return %x, %y, %y\n}\n"
    x = torch.randn(6)
    outputs = weft.call(text, [x])
    assert all(torch.equal(out, x) for out in outputs)
    assert len({tensor.untyped_storage().data_ptr() for tensor in (x, *outputs)}) == 4


def test_integer_outputs_have_no_gradient():
    text = """
program @mixed(%x: f64[N], %i: i64[N]) {
  %float = cast %i : f64[N]
  %y = mul %x, %float : f64[N]
  %positive = gt %x, %float : bool[N]
  return %positive, %i, %y
}
"""
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    i = torch.arange(5)
    positive, same, y = weft.call(text, [x, i])
    assert positive.dtype == torch.bool and torch.equal(same, i)
    assert not positive.requires_grad and not same.requires_grad and y.requires_grad
    y.sum().backward()
    assert torch.equal(x.grad, i.double())


def bools(count):
    """Bools of bytes that are neither 0 nor 1 too, as PyTorch takes them from a view."""
    return torch.tensor([0, 1, 2, 0x7F, 0x80, 0xFF] * count, dtype=torch.uint8).view(torch.bool)


@pytest.mark.parametrize(
    "op, reference",
    [
        ("copy %a : bool[N]", lambda a, b: a),
        ("not %a : bool[N]", lambda a, b: ~a),
        ("and %a, %b : bool[N]", lambda a, b: a & b),
        ("or %a, %b : bool[N]", lambda a, b: a | b),
        ("eq %a, %b : bool[N]", lambda a, b: a == b),
        ("ne %a, %b : bool[N]", lambda a, b: a != b),
        ("lt %a, %b : bool[N]", lambda a, b: a < b),
        ("ge %a, %b : bool[N]", lambda a, b: a >= b),
        ("cast %a : i64[N]", lambda a, b: a.long()),
        ("cast %a : f32[N]", lambda a, b: a.float()),
        ("select %a, %b, %a : bool[N]", lambda a, b: torch.where(a, b, a)),
        ("reverse %a {dim = 0} : bool[N]", lambda a, b: a.flip(0)),
    ],
)
def test_bools_of_any_bytes(op, reference):
    a, b = bools(13), bools(13).roll(1).flip(0)
    (y,) = weft.call(f"program @p(%a: bool[N], %b: bool[N]) {{ %y = {op} return %y }}", [a, b])
    assert torch.equal(y.long(), reference(a, b).long())


@pytest.mark.parametrize("index", range(6))
def test_predicates_of_any_byte(index):
    text = """
program @p(%p: bool[], %x: f32[N]) {
  %y = cond %p then { %n = neg %x : f32[N] yield %n } else { %c = copy %x : f32[N] yield %c } : f32[N]
  return %y
}
"""
    predicate, x = bools(1)[index], torch.randn(5)
    assert torch.equal(weft.call(text, [predicate, x])[0], -x if predicate else x)


def test_meta_tensors():
    (y,) = weft.call(AFFINE, [tensor.to("meta") for tensor in affine_inputs(7, 3)])
    assert y.is_meta and y.shape == (7, 3, 4) and y.is_contiguous()


def test_opcheck():
    inputs = [tensor.requires_grad_() for tensor in affine_inputs()]
    torch.library.opcheck(torch.ops.weft.call.default, (AFFINE, inputs))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, w, b: [x, w], r"program @affine takes 3 inputs, but got 2"),
        (lambda x, w, b: [x, w.double(), b], r"input 1 'w' of program @affine must be f32\[4,3\], but got f64\[4,3\]"),
        (lambda x, w, b: [x[0], w, b], r"input 0 'x' of program @affine must be f32\[T,B,3\], but got f32\[2,3\]"),
        (lambda x, w, b: [x, w, b[:3]], r"input 2 'b' of program @affine must be f32\[4\], but got f32\[3\]"),
        (
            lambda x, w, b: [x.cfloat(), w, b],
            r"input 0 'x' of program @affine must be f32\[T,B,3\], but got ComplexFloat",
        ),
        (lambda x, w, b: [x, w.to_sparse(), b], r"input 1 .*must be a dense tensor"),
    ],
)
def test_inputs_that_do_not_fit(change, message):
    for inputs in (affine_inputs(), [tensor.requires_grad_() for tensor in affine_inputs()]):
        with pytest.raises(RuntimeError, match=message):
            weft.call(AFFINE, change(*inputs))


def test_sizes_whose_product_overflows():
    """They fit no tensor, not even one of as many elements as the product's low 64 bits say."""
    given = "program @p(%a: f32[A,0], %b: f32[B,0], %c: f32[A*B,0]) { %y = neg %c : f32[A*B,0] return %y }"
    made = (
        "program @p(%a: f32[A,0], %b: f32[B,0]) { %w = broadcast %a {dims = [0, 2]} : f32[A,B,0]\n"
        "%y = reshape %w : f32[A*B,0] return %y }"
    )
    half, none = torch.empty(2**32, 0), torch.empty(0, 0)
    for device in ("cpu", "meta"):
        inputs = [tensor.to(device) for tensor in (half, half, none)]
        with pytest.raises(RuntimeError, match=r"input 2 'c' of program @p must be f32\[A\*B,0\] with A = 4294967296"):
            weft.call(given, inputs)
        with pytest.raises(RuntimeError, match=r"a size of 'y' overflows 64 bits; it is f32\[A\*B,0\]"):
            weft.call(made, inputs[:2])
        (y,) = weft.call(given, [none.to(device), inputs[0], inputs[2]])
        assert y.shape == (0, 0)


def test_symbols_that_disagree():
    text = "program @sum(%a: f32[N,2], %b: f32[N,2]) {\n  %c = add %a, %b : f32[N,2]\n  return %c\n}\n"
    message = r"input 1 'b' of program @sum must be f32\[N,2\] with N = 3 \(dim 0 of input 0 'a'\), but got f32\[4,2\]"
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match=message):
            weft.call(text, [torch.randn(3, 2, device=device), torch.randn(4, 2, device=device)])


def test_another_device():
    x, w, b = affine_inputs()
    with pytest.raises(RuntimeError, match=r"input 1 'w' of program @affine must be on the CPU, but is on meta"):
        torch.ops.weft.call.default.redispatch(
            torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), AFFINE, [x, w.to("meta"), b]
        )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"line 1, column 1"),
        ("program @p(%x: f32[N]) {\n  return %y\n}", r"line 2, column \d+"),
        (
            "program @p(%x: f32[N]) {\n  %y = frobnicate %x : f32[N]\n  return %y\n}",
            r"line 2, column \d+: .*frobnicate",
        ),
        ("program @p(%x: f32[N", r"line 1, column"),
    ],
)
def test_texts_that_do_not_parse(text, message):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=message):
            weft.call(text, [torch.randn(3)])


def test_no_memory_raises():
    text = "program @big(%x: f32[N]) {\n  %y = broadcast %x {dims = [2]} : f32[1000000,1000000,N]\n  return %y\n}\n"
    with pytest.raises(RuntimeError, match="allocate memory"):
        weft.call(text, [torch.randn(3)])


def failures_in_threads(work, count=8):
    """The errors of work(0), ..., work(count - 1), each run in a thread of its own."""
    failures = []

    def guarded(index):
        try:
            work(index)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_one_program_from_several_threads():
    inputs = [affine_inputs(steps) for steps in range(1, 9)]

    def work(index):
        for _ in range(50):
            (y,) = weft.call(AFFINE, inputs[index])
            torch.testing.assert_close(y, torch.nn.functional.linear(*inputs[index]))

    assert not failures_in_threads(work)


def test_new_programs_and_training_from_several_threads():
    """Eight configurations that no thread has seen: building, deriving, compiling and training at once."""

    def work(index):
        module = torch.nn.GRU(3, 11 + index // 2)
        for _ in range(3):
            x = torch.randn(4, 2, 3)
            y = module(x)[0]
            with weft.disabled():
                torch.testing.assert_close(y, module(x)[0])
            y.sum().backward()

    assert not failures_in_threads(work)


def test_in_a_forked_child():
    inputs = affine_inputs()
    module = torch.nn.GRU(3, 4)
    expected = weft.call(AFFINE, inputs)[0]
    module(inputs[0])[0].sum().backward()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            same = torch.equal(weft.call(AFFINE, inputs)[0], expected)
            fresh = torch.nn.GRU(3, 13)(inputs[0])[0]  # compiled in the child
            status = 0 if same and fresh.shape == (5, 2, 13) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_flops():
    from torch.utils.flop_counter import FlopCounterMode

    module, x = torch.nn.GRU(3, 4), torch.randn(5, 2, 3)
    with FlopCounterMode(display=False) as ours, torch.no_grad():
        module(x)
    with FlopCounterMode(display=False) as theirs, torch.no_grad(), weft.disabled():
        module(x)
    assert ours.get_total_flops() == theirs.get_total_flops() == 2 * 5 * 2 * 12 * (3 + 4)


def test_profiler_names_the_operator():
    with torch.profiler.profile() as profile:
        weft.call(AFFINE, affine_inputs())
    assert "weft::call" in {event.key for event in profile.key_averages()}


def test_programs_that_nobody_keeps_are_freed():
    code = """
import gc, threading, torch, weft
from weft import _C

def text(i):
    return (f"program @p{i}(%x: f32[N]) {{ %c = constant {{value = {i}}} : f32[] "
            "%b = broadcast %c {dims = []} : f32[N] %s = sin %x : f32[N] %y = mul %s, %b : f32[N] return %y }")

def round(first):
    x = torch.ones(3, requires_grad=True)
    held = []
    for i in range(first, first + 60):
        (y,) = weft.call(text(i), [x])
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.allclose(y, i * x.sin()) and torch.allclose(gradient, i * x.cos())
        if i % 10 == 0:
            held.append((i, weft.call(text(i), [x])[0]))
        if i % 7 == 0:  # what was dropped is made again
            assert torch.allclose(weft.call(text(first), [x])[0], first * x.sin())
    for i, y in held:  # their backwards keep their programs
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert torch.allclose(gradient, i * x.cos())

threads = [threading.Thread(target=round, args=(first,)) for first in (1, 1, 1001)]
for thread in threads: thread.start()
for thread in threads: thread.join()
round(2001)
programs, executables = _C.kept_programs()
assert executables <= 4 and programs < 60, (programs, executables)
round(1)
"""
    done = subprocess.run([warm_python.command(), "-c", code], env=os.environ | {"WEFT_EXECUTABLES": "4"}, timeout=300)
    assert done.returncode == 0
