"""Device weft under autograd, torch.func, compilers and weft.scan."""

from __future__ import annotations

import io

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from oracles import assert_close_on_cpu
from torch import nn
from torch.utils.checkpoint import checkpoint

import weft


def pending():
    return weft.device.memory_stats()["pending"]


# ---- autograd


def test_backward_twice_and_once_too_often():
    x = torch.randn(3, device="weft", requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert_close_on_cpu(x.grad, 4 * x)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_hooks():
    seen = []
    x = torch.randn(3, device="weft", requires_grad=True)
    x.register_hook(lambda grad: seen.append(grad.device.type) or grad * 2)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    y = x * 3
    y.retain_grad()
    y.sum().backward()
    assert seen == ["weft", [6, 6, 6]] and y.grad.tolist() == [1, 1, 1]
    model = nn.Linear(3, 3).to("weft")
    model.register_forward_hook(lambda module, given, out: out * 2)
    model.register_full_backward_hook(lambda module, given, out: seen.append(out[0].shape))
    model(torch.randn(2, 3, device="weft", requires_grad=True)).sum().backward()
    assert seen[-1] == (2, 3)
    z = torch.randn(3, device="weft", requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        total = z.exp().sum()
    total.backward()
    assert_close_on_cpu(z.grad, z.exp())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_the_same_again(reentrant):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3)).to("weft")
    x = torch.randn(4, 3, device="weft", requires_grad=True)
    torch.manual_seed(0)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(0)
    model(x).sum().backward()
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, model.parameters(), strict=True))


def test_derivatives_of_derivatives():
    def f(x):
        return x.sin() * x

    x = torch.randn(3, dtype=torch.double, device="weft", requires_grad=True)
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)
    plain = x.detach()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(plain, torch.ones_like(plain))
        assert_close_on_cpu(forward_ad.unpack_dual(dual.sin()).tangent, plain.cos())
    with torch.autograd.detect_anomaly(check_nan=True):
        f(x).sum().backward()


@pytest.mark.parametrize(
    "transformed",
    [
        lambda x: torch.func.grad(lambda x: (x.sin() * x).sum())(x),
        lambda x: torch.func.vmap(lambda a: a.sin() @ a)(torch.stack([x, x + 1])),
        lambda x: torch.func.jvp(lambda x: x.sin(), (x,), (x,))[1],
        lambda x: torch.func.hessian(lambda x: (x.sin() * x).sum())(x),
        lambda x: torch.func.jacrev(lambda x: x.sin())(x),
        lambda x: torch.func.vmap(torch.func.grad(lambda a: a.exp().sum()))(torch.stack([x, x])),
    ],
)
def test_functions_of_torch_func(transformed):
    x = torch.randn(4)
    result = transformed(x.to("weft"))
    assert result.is_weft
    assert_close_on_cpu(result, transformed(x))


def test_inference_mode():
    with torch.inference_mode():
        x = torch.ones(2, device="weft") * 2
        x += 1
        assert x.tolist() == [3, 3]


# ---- compilers


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "weft"])
def test_torch_compile(backend):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)).to("weft")
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (4, 7, 9):
        x = torch.randn(rows, 3, device="weft")
        results = []
        for each in (compiled, model):
            model.zero_grad()
            y = each(x)
            y.square().sum().backward()
            results.append((y, model[0].weight.grad.clone()))
        for ours, theirs in zip(*results, strict=True):
            assert ours.is_weft
            assert_close_on_cpu(ours, theirs)

    @torch.compile(backend=backend)
    def change(x):
        x.add_(1)
        return x[1:] * 2

    x = torch.zeros(3, device="weft")
    assert change(x).tolist() == [2, 2] and x.tolist() == [1, 1, 1]


def test_export():
    model, x = nn.Sequential(nn.Linear(3, 8), nn.ReLU()).to("weft"), torch.randn(4, 3, device="weft")
    exported = torch.export.export(model, (x,))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    for program in (exported, exported.run_decompositions(), torch.export.load(file)):
        assert_close_on_cpu(program.module()(x), model(x))


# ---- weft.scan and its kin on tensors of the device


def on_both(fn, *tensors):
    """Results and gradients on the device as on the CPU, three times; nothing ran as a Python loop."""
    torch.manual_seed(7)
    expected = results(fn, tensors)
    before = weft.stats()["fallbacks"]
    for _ in range(3):
        torch.manual_seed(7)
        found = results(fn, [t.to("weft") for t in tensors])
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.is_weft
            assert_close_on_cpu(ours, theirs)
    assert weft.stats()["fallbacks"] == before


def results(fn, tensors):
    given = [t.detach().requires_grad_() for t in tensors]
    outputs = fn(*given)
    gradients = torch.autograd.grad(sum(y.square().sum() for y in outputs), given)
    return [*outputs, *gradients]


def test_scan():
    on_both(
        lambda w, x, h: weft.scan(lambda h, x: (torch.tanh(torch.cat([h, x], -1) @ w), h.sum(-1)), h, x),
        torch.randn(7, 4),
        torch.randn(5, 2, 3),
        torch.randn(2, 4),
    )


def test_scan_that_draws_and_makes_tensors():
    def step(h, x):
        h = nn.functional.dropout(h + x, 0.4) + torch.ones(3, device=x.device) + torch.tensor([1.0, 2.0, 3.0])
        return h, h * torch.arange(3.0)

    on_both(lambda x, h: weft.scan(step, h, x, reverse=True), torch.randn(5, 3), torch.randn(3))


def test_scan_under_a_default_device():
    with torch.device("weft"):
        x = torch.randn(5, 3)
        last, _ = weft.scan(lambda h, x: (h + x + torch.ones(3), None), torch.zeros(3), x)
        counted, _ = weft.scan(lambda h, _: (h + 1, None), torch.zeros(3), length=4)
    assert_close_on_cpu(last, x.sum(0) + 5)
    assert counted.is_weft and counted.tolist() == [4, 4, 4]


def test_scan_sees_what_a_captured_tensor_holds_now():
    w, x = torch.ones(3, device="weft"), torch.randn(5, 3, device="weft")

    def run():
        return weft.scan(lambda h, x: (h + w * x, None), torch.zeros(3, device="weft"), x)[0]

    assert_close_on_cpu(run(), x.sum(0))
    w.mul_(2)
    assert_close_on_cpu(run(), 2 * x.sum(0))


def test_scan_is_one_operation_of_the_record():
    x = torch.randn(50, 3, device="weft")
    weft.sync()
    last, _ = weft.scan(lambda h, x: (torch.tanh(h + x), None), torch.zeros(3, device="weft"), x)
    assert 1 <= pending() <= 5
    assert last.shape == (3,)


def test_loops_and_functions():
    on_both(
        lambda x: weft.checkpoint_scan(lambda h, x: (h * x.cos(), h), torch.ones(3, device=x.device), x),
        torch.randn(9, 3),
    )
    on_both(lambda x: [weft.associative_scan(lambda a, b: 0.9 * a + b, x)], torch.randn(6, 3))
    on_both(
        lambda x: [weft.while_loop(lambda c: (c < 50).all(), lambda c: c * x, x, max_steps=30)], torch.full((2,), 1.5)
    )
    on_both(weft.jit(lambda x, w: [torch.tanh(x @ w), x.sum(0)]), torch.randn(5, 3), torch.randn(3, 4))
    last = weft.while_loop(lambda c: (c < 50).all(), lambda c: c * 2 + 1, torch.ones(2, device="weft"))
    assert last.is_weft and last.tolist() == [63, 63]


def test_a_donated_tensor_gets_its_new_value():
    step = weft.jit(lambda p, g: [a - b for a, b in zip(p, g, strict=True)], donate=0)
    p, g = [torch.ones(3, device="weft")], [torch.full((3,), 0.5, device="weft")]
    alias = p[0].view(3, 1)
    for expected in (0.5, 0.0):
        assert step(p, g)[0] is p[0]
        assert p[0].tolist() == [expected] * 3 and alias.tolist() == [[expected]] * 3
    with pytest.raises(RuntimeError, match="share"):
        step(p, p)


def test_scan_twice_differentiated_and_batched():
    def run(x):
        return weft.scan(lambda h, x: (torch.tanh(h + x), None), torch.zeros(3, device=x.device), x)[0]

    def second(x):
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    x = torch.randn(4, 3)
    assert_close_on_cpu(second(x.to("weft")), second(x))
    batch = torch.randn(2, 4, 3, device="weft")
    assert_close_on_cpu(torch.func.vmap(run)(batch), torch.stack([run(x) for x in batch]))
