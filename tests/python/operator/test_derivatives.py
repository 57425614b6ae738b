"""First and second derivatives of weft::call, by way of the modules and of programs written by hand."""

from __future__ import annotations

import contextlib

import pytest
import torch
from rnn_cases import KINDS, make
from torch.autograd import gradcheck, gradgradcheck

import weft

LEAKY = """
program @leaky(%x: f64[T,B,3], %h0: f64[B,4], %w: f64[4,3], %r: f64[4,4]) {
  %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
    %from_x = matmul %xt, %w {transpose_b = true} : f64[B,4]
    %from_h = matmul %h, %r {transpose_b = true} : f64[B,4]
    %sum = add %from_x, %from_h : f64[B,4]
    %new = tanh %sum : f64[B,4]
    %mixed = mul %new, %h : f64[B,4]
    %next = add %mixed, %new : f64[B,4]
    yield carry(%next) ys(%mixed)
  } : f64[B,4], f64[T,B,4]
  return %ys, %hT
}
"""


def leaky_inputs(steps=3, batch=2):
    shapes = [(steps, batch, 3), (batch, 4), (4, 3), (4, 4)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def leaky(x, h, w, r):
    ys = []
    for xt in x:
        new = torch.tanh(xt @ w.T + h @ r.T)
        ys.append(new * h)
        h = new * h + new
    return torch.stack(ys), h


def call_leaky(*inputs):
    return tuple(weft.call(LEAKY, list(inputs)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers, bias", [(1, True), (2, False)])
def test_gradcheck(kind, layers, bias):
    case = make(kind, input_size=2, hidden=3, layers=layers, bias=bias, steps=3, batch=2, dtype=torch.float64)
    assert gradcheck(lambda *_: tuple(case.run()), case.leaves())


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN_TANH"])
def test_gradgradcheck(kind):
    case = make(kind, input_size=2, hidden=2, steps=2, batch=1, dtype=torch.float64)
    assert gradgradcheck(lambda *_: tuple(case.run()), case.leaves())


def test_program_by_hand():
    inputs = leaky_inputs()
    for ours, theirs in zip(call_leaky(*inputs), leaky(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert gradcheck(call_leaky, inputs)
    assert gradgradcheck(call_leaky, inputs)


def test_second_derivatives_equal_eagers():
    """A gradient penalty: wrong without an error if residuals counted as constants."""
    ours, theirs = make("GRU", dtype=torch.float64), None
    results = []
    for run in (ours.run, ours.run_eager):
        (slope,) = torch.autograd.grad(run()[0].pow(2).sum(), ours.x, create_graph=True)
        results.append(torch.autograd.grad(slope.pow(2).sum(), ours.leaves()))
    ours, theirs = results
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_undefined_gradients_are_zeros():
    inputs = leaky_inputs()
    for pick in (0, 1):
        ours = torch.autograd.grad(call_leaky(*inputs)[pick].sum(), inputs)
        theirs = torch.autograd.grad(leaky(*inputs)[pick].sum(), inputs)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


def test_expanded_and_transposed_cotangents():
    inputs = leaky_inputs()
    y = call_leaky(*inputs)[0]
    for cotangent in (
        torch.ones((), dtype=y.dtype).expand(y.shape),
        torch.randn(4, 2, 3, dtype=y.dtype).permute(2, 1, 0),
    ):
        ours = torch.autograd.grad(y, inputs, cotangent, retain_graph=True)
        theirs = torch.autograd.grad(leaky(*inputs)[0], inputs, cotangent)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


def test_no_steps():
    inputs = leaky_inputs(steps=0)
    ys, last = call_leaky(*inputs)
    assert ys.shape == (0, 2, 4) and torch.equal(last, inputs[1])
    grads = torch.autograd.grad(last.sum(), inputs)
    assert torch.equal(grads[1], torch.ones(2, 4, dtype=torch.float64))
    assert all(not grad.any() for grad in (grads[0], grads[2], grads[3]))


def test_saved_tensors_are_watched():
    inputs = leaky_inputs()
    ys, _ = call_leaky(*inputs)
    with torch.no_grad():
        inputs[3].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ys.sum().backward()


def test_backward_twice():
    inputs = leaky_inputs()
    ys, _ = call_leaky(*inputs)
    ys.sum().backward(retain_graph=True)
    ys.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        ys.sum().backward()


def test_checkpoint():
    inputs = leaky_inputs()
    y, _ = torch.utils.checkpoint.checkpoint(call_leaky, *inputs, use_reentrant=False)
    for a, b in zip(
        torch.autograd.grad(y.sum(), inputs), torch.autograd.grad(leaky(*inputs)[0].sum(), inputs), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_func_grad_and_its_grad():
    x, *rest = (tensor.detach() for tensor in leaky_inputs())

    def loss(f):
        return lambda x: f(x, *rest)[0].pow(3).sum()

    torch.testing.assert_close(torch.func.grad(loss(call_leaky))(x), torch.func.grad(loss(leaky))(x))

    def penalty(f):
        return torch.func.grad(lambda x: torch.func.grad(loss(f))(x).pow(2).sum())

    torch.testing.assert_close(penalty(call_leaky)(x), penalty(leaky)(x))


def test_func_vjp_and_jacrev():
    inputs = [tensor.detach() for tensor in leaky_inputs()]
    ours, pull_ours = torch.func.vjp(call_leaky, *inputs)
    theirs, pull_theirs = torch.func.vjp(leaky, *inputs)
    for a, b in zip(pull_ours(ours), pull_theirs(theirs), strict=True):
        torch.testing.assert_close(a, b)
    ours = torch.func.jacrev(lambda h: call_leaky(inputs[0], h, *inputs[2:])[1])(inputs[1])
    theirs = torch.func.jacrev(lambda h: leaky(inputs[0], h, *inputs[2:])[1])(inputs[1])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dims", [(0, None, None, None), (None, 1, None, 0), (2, 0, 1, 2), (None, None, None, 0)])
def test_vmap(dims):
    inputs = [tensor.detach() for tensor in leaky_inputs()]
    stacked = [
        tensor if dim is None else torch.stack([tensor, 2 * tensor, -tensor], dim=dim)
        for tensor, dim in zip(inputs, dims, strict=True)
    ]
    for ours, theirs in zip(
        torch.vmap(call_leaky, in_dims=dims)(*stacked), torch.vmap(leaky, in_dims=dims)(*stacked), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_vmap_of_grad():
    """A gradient for each sequence of a batch."""
    x, *rest = (tensor.detach() for tensor in leaky_inputs())
    xs = torch.stack([x, x + 1, -x])

    def per_sample(f):
        return torch.vmap(torch.func.grad(lambda w, x: f(x, rest[0], w, rest[2])[0].sum()), in_dims=(None, 0))

    torch.testing.assert_close(per_sample(call_leaky)(rest[1], xs), per_sample(leaky)(rest[1], xs))


@pytest.mark.parametrize("options", [None, {"layer_norm": True, "peepholes": True}])
def test_module_under_functional_call_and_vmap(options):
    module = torch.nn.GRU(3, 4) if options is None else weft.nn.LSTM(3, 4, **options)
    x = torch.randn(5, 2, 3)
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def loss(parameters, x):
        return torch.func.functional_call(module, parameters, (x.unsqueeze(1),))[0].pow(2).sum()

    ours = torch.vmap(torch.func.grad(loss), in_dims=(None, 1))(parameters, x)
    for sample in range(2):  # eager's composite fails in vmap: one sequence at a time
        with weft.disabled() if options is None else contextlib.nullcontext():
            theirs = torch.func.grad(loss)(parameters, x[:, sample])
        for name in parameters:
            torch.testing.assert_close(ours[name][sample], theirs[name])


def test_forward_mode():
    inputs = tuple(leaky_inputs())
    tangents = tuple(torch.randn_like(tensor) for tensor in inputs)
    for varied in ([0], [1, 2], list(range(len(inputs)))):

        def along(f, varied=varied):
            def of_varied(*some):
                full = list(inputs)
                for i, tensor in zip(varied, some, strict=True):
                    full[i] = tensor
                return tuple(f(*full))

            return torch.func.jvp(of_varied, tuple(inputs[i] for i in varied), tuple(tangents[i] for i in varied))

        torch.testing.assert_close(along(call_leaky), along(leaky))


def test_forward_mode_is_differentiable_and_by_forward_mode_again():
    inputs = leaky_inputs()

    def energy(run):
        return lambda x: sum(y.square().sum() for y in run(x, *inputs[1:]))

    for transform in (torch.func.hessian, lambda f: torch.func.jacfwd(torch.func.jacfwd(f))):
        torch.testing.assert_close(transform(energy(call_leaky))(inputs[0]), transform(energy(leaky))(inputs[0]))
    assert torch.autograd.gradcheck(lambda *x: tuple(call_leaky(*x)), tuple(inputs), check_forward_ad=True)


def test_batched_backward():
    inputs = leaky_inputs()
    y = call_leaky(*inputs)[1]
    cotangents = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    ours = torch.autograd.grad(y, inputs, cotangents, is_grads_batched=True)
    theirs = torch.autograd.grad(leaky(*inputs)[1], inputs, cotangents, is_grads_batched=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_stop_gradient_is_detach():
    region = weft._C.Region()
    x = region.input(weft._C.Type("f64", [(1, ["B"]), (3, [])]))
    stopped = region.aten("weft.stop_gradient", [x], region.type(x))
    text = region.finish([region.aten("aten.mul.Tensor", [x, stopped], region.type(x)), stopped]).text
    value = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y, s = weft.call(text, [value])
    assert torch.equal(s, value) and torch.equal(y, value * value)
    (grad,) = torch.autograd.grad(y.sum() + s.sum(), value, create_graph=True)
    assert torch.equal(grad, value)
    (second,) = torch.autograd.grad(grad.sum(), value)
    assert torch.equal(second, torch.zeros_like(value)) and not s.requires_grad


WHILE = """
program @collatz(%x: f64[B], %w: f64[B], %n: i64[]) {
  %h, %k = while carry(%h = %x, %k = %n) {
    %zero = constant {value = 0} : i64[]
    %more = gt %k, %zero : bool[]
    yield %more
  } do(%h, %k) {
    %s = mul %h, %w : f64[B]
    %one = constant {value = 1} : i64[]
    %less = sub %k, %one : i64[]
    yield %s, %less
  } : f64[B], i64[]
  return %h, %k
}
"""


def test_a_while_runs_where_gradients_are_recorded_and_says_why_it_has_none():
    x, w = torch.randn(3, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    h, k = weft.call(WHILE, [x, w, torch.tensor(4)])
    torch.testing.assert_close(h, x * w**4)
    assert k.item() == 0 and h.requires_grad and not k.requires_grad
    with pytest.raises(RuntimeError, match=r"while: a loop of unknown length has no gradients .*max_steps"):
        h.sum().backward()
    h, _ = weft.call(WHILE, [x.detach(), w, torch.tensor(0)])
    assert torch.equal(h, x) and not h.requires_grad


COND = """
program @cond(%p: bool[], %x: f64[B,3], %w: f64[3,3], %v: f64[B,3]) {
  %y, %z = cond %p then {
    %m = matmul %x, %w : f64[B,3]
    %t = tanh %m : f64[B,3]
    yield %t, %x
  } else {
    %s = mul %x, %v : f64[B,3]
    yield %s, %s
  } : f64[B,3], f64[B,3]
  return %y, %z
}
"""


@pytest.mark.parametrize("taken", [True, False])
def test_gradients_of_the_branch_that_a_cond_takes(taken):
    shapes = [(2, 3), (3, 3), (2, 3)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def run(*inputs):
        return tuple(weft.call(COND, [torch.tensor(taken), *inputs]))

    x, w, v = inputs
    expected = (torch.tanh(x @ w), x) if taken else (x * v, x * v)
    torch.testing.assert_close(run(*inputs), expected)
    assert gradcheck(run, inputs) and gradgradcheck(run, inputs)


ROWS = """
program @rows(%x: f64[4,B], %u: f64[2,B], %p: i64[]) {
  %one = constant {value = 1} : i64[]
  %q = sub %p, %one : i64[]
  %a = dynamic_slice %x, %p {dim = 0, size = 2} : f64[2,B]
  %s = mul %a, %u : f64[2,B]
  %y = dynamic_update %x, %s, %q {dim = 0} : f64[4,B]
  %z = mul %y, %y : f64[4,B]
  return %z, %a
}
"""


@pytest.mark.parametrize("place", [1, 2])
def test_gradients_of_rows_at_a_place(place):
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (2, 3))]

    def run(x, u):
        return tuple(weft.call(ROWS, [x, u, torch.tensor(place)]))

    x, u = inputs
    rows = x[place : place + 2]
    torch.testing.assert_close(run(x, u), (torch.slice_scatter(x, rows * u, 0, place - 1, place + 1) ** 2, rows))
    assert gradcheck(run, inputs) and gradgradcheck(run, inputs)
