"""Donated inputs: weft.call_ and weft.jit(donate=...), results in the memory of inputs."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import weft

STEP = """
program @step(%p: f32[N,4], %g: f32[N,4]) {
  %d = add %g, %g : f32[N,4]
  %p2 = sub %p, %d : f32[N,4]
  %s = reduce_sum %d {dims = [1]} : f32[N]
  return %s, %p2 in %p
}
"""
LOOK_UP = """
program @look_up(%p: f32[3], %i: i64[3]) {
  %g = gather %p, %i : f32[3]
  return %g in %p
}
"""


def pair(rows=5):
    return torch.randn(rows, 4), torch.randn(rows, 4)


# ---- the operator


def test_the_result_is_the_input():
    p, g = pair()
    expected, address = p - 2 * g, p.data_ptr()
    s, result = weft.call_(STEP, [p, g])
    assert result is p and p.data_ptr() == address
    torch.testing.assert_close(p, expected)
    torch.testing.assert_close(s, (2 * g).sum(1))
    (s,) = torch.ops.weft.call_(STEP, [p], [g])
    torch.testing.assert_close(p, expected - 2 * g)


def test_without_donations_it_is_call():
    x = torch.randn(3)
    (y,) = weft.call_("program @n(%x: f32[N]) {\n %y = neg %x : f32[N]\n return %y\n}", [x])
    torch.testing.assert_close(y, -x)
    assert weft.call_("program @c() {\n %y = constant {value = 2} : f32[2]\n return %y\n}", [])[0].tolist() == [2, 2]


def test_call_leaves_inputs_alone():
    p, g = pair()
    before, version = p.clone(), p._version
    s, p2 = weft.call(STEP, [p, g])
    assert torch.equal(p, before) and p._version == version and p2.data_ptr() != p.data_ptr()
    torch.testing.assert_close(p2, p - 2 * g)
    torch.testing.assert_close(s, (2 * g).sum(1))


def test_call_is_differentiated_as_ever():
    p, g = (t.double().requires_grad_() for t in pair())
    text = STEP.replace("f32", "f64")
    assert torch.autograd.gradcheck(lambda *inputs: weft.call(text, list(inputs)), (p, g))
    assert torch.autograd.gradgradcheck(lambda *inputs: weft.call(text, list(inputs)), (p, g))


def test_no_rows():
    p, g = pair(0)
    s, result = weft.call_(STEP, [p, g])
    assert result is p and s.shape == (0,)


def test_versions_count_the_change():
    p, g = pair()
    version, other = p._version, g._version
    weft.call_(STEP, [p, g])
    assert p._version > version and g._version == other
    w = torch.randn(5, 4, requires_grad=True)
    p, g = pair()
    loss = (w * p).sum()
    weft.call_(STEP, [p, g])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tensors_that_require_grad():
    p, g = pair()
    leaf = p.clone().requires_grad_()
    with pytest.raises(
        RuntimeError, match=r"^a leaf Variable that requires grad is being used in an in-place operation"
    ):
        weft.call_(STEP, [leaf, g])
    with pytest.raises(
        RuntimeError, match=r"^a view of a leaf Variable that requires grad is being used in an in-place"
    ):
        weft.call_(STEP, [leaf[:3], g[:3]])
    for inputs in ([leaf * 2, g], [p, g.clone().requires_grad_()]):
        with pytest.raises(RuntimeError, match=r"weft::call_: has no derivative.*no_grad"):
            weft.call_(STEP, inputs)
    assert torch.equal(leaf, p)
    with torch.no_grad():
        weft.call_(STEP, [leaf, g])
    torch.testing.assert_close(leaf.detach(), p - 2 * g)
    assert leaf.requires_grad and leaf.is_leaf
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="has no derivative"):
        weft.call_(STEP, [p, torch.autograd.forward_ad.make_dual(g, g)])


def test_inference_mode():
    p, g = pair()
    expected = p - 2 * g
    with torch.inference_mode():
        inside = p.clone()
        weft.call_(STEP, [inside, g])
        weft.call_(STEP, [p, g])
    torch.testing.assert_close(p, expected)
    torch.testing.assert_close(inside.clone(), expected)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        weft.call_(STEP, [inside, g])
    assert torch.equal(inside.clone(), expected)


def test_layouts_of_donated_inputs():
    g = torch.randn(5, 4)
    for p in (torch.randn(4, 5).T, torch.randn(5, 8)[:, ::2], torch.randn(4).expand(5, 4)):
        before = p.clone()
        with pytest.raises(
            RuntimeError, match=r"input 0 is donated, so it must be contiguous, but it has sizes \[5, 4\]"
        ):
            weft.call_(STEP, [p, g])
        assert torch.equal(p, before)
    whole = torch.randn(9, 4)
    rows, before = whole[2:7], whole.clone()
    weft.call_(STEP, [rows, g])
    before[2:7] -= 2 * g
    torch.testing.assert_close(whole, before)
    for other in (torch.randn(4, 5).T, torch.randn(4).expand(5, 4), torch.randn(1, 4).expand(5, 4)):
        p = torch.randn(5, 4)
        expected = p - 2 * other
        weft.call_(STEP, [p, other])
        torch.testing.assert_close(p, expected)


def test_shared_memory_is_refused():
    whole = torch.randn(10, 4)
    before = whole.clone()
    for p, g in (
        (whole[:5], whole[:5]),
        (whole[:5], whole[4:9]),
        (whole[2:6], whole.view(4, 10).T[:4, :]),
        (whole[2:3], whole[2, 3:].expand(1, 4)),
    ):
        with pytest.raises(RuntimeError, match="input 0 is donated, but input 1 shares memory with it"):
            weft.call_(STEP, [p, g])
    assert torch.equal(whole, before)
    weft.call_(STEP, [whole[:5], whole[5:]])
    twice = "program @two(%a: f32[N], %b: f32[N]) {\n return %b in %a, %a in %b\n}"
    x = torch.randn(6)
    with pytest.raises(RuntimeError, match="input 0 is donated, but input 1 shares memory with it"):
        weft.call_(twice, [x, x])
    a, b = x[:3].clone(), x[3:].clone()
    weft.call_(twice, [a, b])
    assert torch.equal(a, x[3:]) and torch.equal(b, x[:3])


def test_a_lazy_clone_gets_its_own_memory():
    p, g = pair()
    expected = p - 2 * g
    other = torch._lazy_clone(p)
    weft.call_(STEP, [other, g])
    torch.testing.assert_close(other, expected)
    assert not torch.equal(p, other)
    p2 = torch._lazy_clone(p)
    torch.testing.assert_close(weft.call_(STEP, [p2, p])[1], -p)


def test_wrong_inputs():
    p, g = pair()
    before = p.clone()
    with pytest.raises(RuntimeError, match=r"@step takes 1 donated inputs and 1 others, but got 1 and 0"):
        weft.call_(STEP, [p])
    with pytest.raises(RuntimeError, match=r"input 1 'g' of program @step must be f32\[N,4\] with N = 5"):
        weft.call_(STEP, [p, g[:3]])
    with pytest.raises(RuntimeError, match=r"input 0 'p' of program @step must be f32\[N,4\]"):
        weft.call_(STEP, [p.double(), g])
    with pytest.raises(RuntimeError, match="cannot take the memory of %p"):
        weft.call_("program @m(%p: f32[2], %q: f32[3]) {\n return %q in %p\n}", [p, g])
    assert torch.equal(p, before)


def test_after_an_error_of_the_run_the_program_runs_again():
    p = torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="index 7 is out of bounds"):
        weft.call_(LOOK_UP, [p, torch.tensor([0, 7, 1])])
    p = torch.tensor([1.0, 2.0, 3.0])
    weft.call_(LOOK_UP, [p, torch.tensor([2, 0, 0])])
    assert p.tolist() == [3, 1, 1]


def test_meta():
    p, g = (t.to("meta") for t in pair(7))
    s, result = weft.call_(STEP, [p, g])
    assert result is p and s.shape == (7,) and s.device.type == "meta"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_in_a_compiled_function(backend):
    def function(p, g):
        doubled = p * 2
        (s,) = torch.ops.weft.call_(STEP, [doubled], [g])
        torch.ops.weft.call_(STEP, [p], [g])
        return doubled + 1, s, p.sum()

    p, g = pair()
    q = p.clone()
    expected = function(q, g)
    found = torch.compile(function, backend=backend, fullgraph=True)(p, g)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(p, q)


def test_a_captured_function_may_not_use_it():
    p, g = pair()
    before = p.clone()
    step = weft.jit(lambda x: x + torch.ops.weft.call_(STEP, [p], [g])[0].sum())
    with pytest.raises(RuntimeError, match="changes a captured tensor in place"):
        step(torch.randn(2))
    assert torch.equal(p, before)


# ---- weft.jit(donate=...)


def adam(params, grads, firsts, seconds, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
    """One step as in torch.optim.Adam."""
    step = step + 1
    size = lr / (1 - betas[0] ** step)
    root = (1 - betas[1] ** step).sqrt()
    new_params, new_firsts, new_seconds = [], [], []
    for p, g, m, v in zip(params, grads, firsts, seconds, strict=True):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        new_params.append(p - size * m / (v.sqrt() / root + eps))
        new_firsts.append(m)
        new_seconds.append(v)
    return new_params, new_firsts, new_seconds, step


def test_adam_in_place():
    torch.manual_seed(0)
    count, shape = 200, (64, 64)
    params = [torch.randn(shape).requires_grad_() for _ in range(count)]
    reference = [p.detach().clone().requires_grad_() for p in params]
    optimizer = torch.optim.Adam(reference, lr=1e-3)
    firsts, seconds = ([torch.zeros(shape) for _ in range(count)] for _ in range(2))
    steps = torch.zeros((), dtype=torch.float64)
    tensors = [*params, *firsts, *seconds, steps]
    addresses = [t.data_ptr() for t in tensors]
    update = weft.jit(adam, donate=(0, 2, 3, 4))
    for round in range(4):
        grads = [torch.randn(shape) for _ in range(count)]
        for p, g in zip(reference, grads, strict=True):
            p.grad = g.clone()
        optimizer.step()
        compiled = weft.stats()["compiled"]
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            results = update(params, grads, firsts, seconds, steps)
        if round:
            assert weft.stats()["compiled"] == compiled
            bytes = sum(e.self_cpu_memory_usage for e in prof.events() if e.self_cpu_memory_usage > 0)
            assert bytes < 64 * 64 * 4, bytes
        assert all(a is b for a, b in zip([*results[0], *results[1], *results[2], results[3]], tensors, strict=True))
    assert [t.data_ptr() for t in tensors] == addresses
    for p, q in zip(params, reference, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
        assert p.is_leaf and p.requires_grad
        torch.testing.assert_close(firsts[0], optimizer.state[reference[0]]["exp_avg"], rtol=1e-6, atol=1e-6)
    assert steps.item() == 4


def sgd(params, grads):
    return [p - 0.1 * g for p, g in zip(params, grads, strict=True)]


@pytest.mark.parametrize("disabled", [False, True])
def test_one_donated_argument(disabled):
    params, grads = [torch.randn(3, 4), torch.randn(5)], [torch.randn(3, 4), torch.randn(5)]
    expected = sgd(params, grads)
    with weft.disabled() if disabled else torch.no_grad():
        results = weft.jit(sgd, donate=0)(params, grads)
    assert all(r is p for r, p in zip(results, params, strict=True))
    torch.testing.assert_close(params, expected)


@pytest.mark.parametrize("way", ["program", "disabled", "compiled"])
def test_old_values_and_swaps(way):
    """The first result of each is what the arguments were."""

    def swap(a, b):
        return b, a, (a + b, a, b[0])

    a, b = torch.randn(3), torch.randn(3)
    old = a.clone(), b.clone()
    call = weft.jit(swap, donate=(0, 1))
    if way == "compiled":
        call = torch.compile(functools.partial(call), backend="eager")
    with weft.disabled() if way == "disabled" else torch.no_grad():
        first, second, others = call(a, b)
    assert first is a and second is b
    assert torch.equal(a, old[1]) and torch.equal(b, old[0])
    torch.testing.assert_close(others, (old[0] + old[1], old[0], old[1][0]))


def test_the_order_of_donate_is_that_of_the_results():
    state, x = {"h": torch.zeros(2, 3), "n": torch.zeros(())}, torch.randn(2, 3)
    offset = torch.ones(2, 3)

    def step(x, offset, state, scale):
        return {"h": state["h"] + x, "n": state["n"] + 1}, offset * scale, state["h"].sum()

    h, n, expected = state["h"], state["n"], x.clone()
    for turn in range(3):
        new, twice, total = weft.jit(step, donate=(2, 1))(x, offset, state, 2.0)
        assert new["h"] is h and new["n"] is n and twice is offset
        torch.testing.assert_close(total, (turn * x).sum())
    torch.testing.assert_close(h, 3 * expected)
    assert n.item() == 3 and torch.equal(offset, torch.full((2, 3), 8.0))


def test_what_donate_takes():
    for wrong in (-1, (0, 0), "p", True, 1.0):
        with pytest.raises(TypeError, match=r"weft\.jit: donate takes positions of arguments"):
            weft.jit(sgd, donate=wrong)
    with pytest.raises(TypeError, match="argument 2 is donated, but there are 1 positional"):
        weft.jit(sgd, donate=2)([torch.randn(2)])


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda p, g: (g.sum(), p), r"arguments \(0,\) must be float32\[3,4\], as the old one is, but is float32\[\]"),
        (lambda p, g: p.double(), r"must be float32\[3,4\], as the old one is, but is float64\[3,4\]"),
        (lambda p, g: ([p],), r"must return a tuple that begins with the new values of the donated arguments \(0,\)"),
        (lambda p, g: (1.0, p), r"must be float32\[3,4\], as the old one is, but is float 1.0"),
    ],
)
def test_results_that_are_no_new_values(fn, message, disabled):
    p, g = torch.randn(3, 4), torch.randn(3, 4)
    before = p.clone()
    with weft.disabled() if disabled else torch.no_grad(), pytest.raises(TypeError, match=message):
        weft.jit(fn, donate=0)(p, g)
    assert torch.equal(p, before)


@pytest.mark.parametrize("disabled", [False, True])
def test_jit_refuses_shared_memory(disabled):
    p = torch.randn(3, 4)
    before = p.clone()
    with weft.disabled() if disabled else torch.no_grad():
        with pytest.raises(RuntimeError, match="input 0 is donated, but input 1 shares memory with it"):
            weft.jit(sgd, donate=0)([p], [p])
        with pytest.raises(RuntimeError, match="input 0 is donated, so it must be contiguous"):
            weft.jit(sgd, donate=0)([p.T], [torch.randn(4, 3)])
    assert torch.equal(p, before)


def test_jit_refuses_a_donated_tensor_that_is_captured_too():
    p = torch.randn(3)
    with pytest.raises(RuntimeError, match="is donated, but input 1 shares memory with it"):
        weft.jit(lambda q: q + p, donate=0)(p)


def test_jit_refuses_leaves_in_grad_mode():
    p = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        weft.jit(lambda q: q * 2, donate=0)(p)


def test_a_function_that_is_no_program_runs_as_it_is():
    def update(p):
        return p + torch.linalg.eigvalsh(p + p.T).to(torch.cfloat).real

    p = torch.randn(3, 3)
    expected = update(p)
    with torch.no_grad():
        result = weft.jit(update, donate=0)(p)
    assert result is p
    torch.testing.assert_close(p, expected)


def test_any_sizes():
    call = weft.jit(lambda h, x: (h + x.sum(0), h[0] * 2), donate=0)
    for rows in (2, 5, 3, 1):
        h, x = torch.randn(rows, 3), torch.randn(4, rows, 3)
        old, expected = h.clone(), h + x.sum(0)
        result, other = call(h, x)
        assert result is h
        torch.testing.assert_close(h, expected)
        torch.testing.assert_close(other, old[0] * 2)
