"""Operations on autograd in a step: the step's derivative is that of the graph which PyTorch's autograd builds."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

import gradient_cases as cases
import pytest
import torch
from oracles import loop
from torch import Tensor
from torch.autograd import grad

import weft

ROOT = Path(__file__).resolve().parents[3]
COUNT = int(os.environ.get("WEFT_RANDOM_GRADIENTS", "120"))
PARTS = 8
F64 = torch.float64


def fallbacks() -> dict[str, int]:
    return dict(weft.stats()["fallbacks"])


def reasons(before: dict[str, int]) -> list[str]:
    return [reason for reason, count in fallbacks().items() if before.get(reason) != count]


def quietly(run, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(*args)


def assert_same(found, expected, step):
    for what, ours, theirs in zip(("values", "gradients", "second derivatives"), found, expected, strict=True):
        assert ours or (what == "second derivatives" and " hook " in repr(step)), step
        exact = "half" not in repr(step)  # rounded to float32
        for a, b in zip(ours, theirs, strict=bool(ours)):
            scale = 1 + float(b.abs().max())
            torch.testing.assert_close(
                a / scale,
                b / scale,
                rtol=0,
                atol=1e-8 if exact else 1e-5,
                msg=lambda m, what=what: f"{what}: {step}\n{m}",
            )


@pytest.mark.parametrize("part", range(PARTS))
def test_random_steps(part):
    compiled = tried = 0
    for seed in range(part, COUNT, PARTS):
        step = cases.make(seed)
        try:
            expected = cases.derivatives(loop, step, 3)
        except RuntimeError:  # autograd can't derive it either
            continue
        before = fallbacks()
        found = quietly(cases.derivatives, weft.scan, step, 3)
        tried += 1
        compiled += not reasons(before)
        assert_same(found, expected, f"seed {seed}: {step}")
    assert compiled >= 0.6 * tried, (compiled, tried)


FAULTY = """
import sys, warnings
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import torch, weft
from weft import _C
import gradient_cases as cases
from oracles import loop
_C.inject_gradient_fault({fault!r})
for seed in range({count}):
    step = cases.make(seed)
    expected, found = (cases.derivatives(how, step, 3) for how in (loop, weft.scan))
    close = [torch.allclose(a, b, rtol=1e-4, atol=1e-4) for us, them in zip(found, expected) for a, b in zip(us, them)]
    if not all(close):
        print("wrong")
        break
"""


@pytest.mark.parametrize(("fault", "count"), [("none", 8), ("stops", 40), ("hooks", 40)])
def test_a_fault_would_be_seen(fault, count, run_warm_python):
    """The random steps reveal a replay that leaves out parts of the record's graph. Without a fault all of them are
    right, which test_random_steps sees."""
    program = FAULTY.format(here=str(Path(__file__).parent), fault=fault, count=count)
    assert run_warm_python(program).split() == ([] if fault == "none" else ["wrong"])


# ---- by all ways in

W = torch.tensor([0.4, -0.7, 0.2], dtype=F64, requires_grad=True)


def hooked(h, x):
    z = h * W + x
    z.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return torch.tanh(z), z


def hooked_node(h, x):
    z = h * W + x
    z.grad_fn.register_prehook(lambda gs: (0.5 * gs[0],))
    return torch.tanh(z), z


def hooked_results(h, x):
    z = h * W + x
    z.grad_fn.register_hook(lambda gs, _: tuple(None if g is None else 0.5 * g for g in gs))
    return torch.tanh(z), z


def inner(h, x):
    return h - 0.1 * grad((torch.exp(h * W) * x).sum(), h, create_graph=True)[0], h


def inner_transform(h, x):
    return h - 0.1 * torch.func.grad(lambda p: (torch.tanh(p * W) * x).mean().square())(h), h


def detached(h, x):
    a = h * W
    a.detach_()
    return a + torch.tanh(h * x), a


def data(h, x):
    return torch.tanh(h.data * W + x) + 0.3 * h, h


def inverse(h, x):
    return torch.tanh(h + torch.linalg.inv(torch.outer(h, W) + 5 * torch.eye(3, dtype=F64)) @ x), h


STEPS = [hooked, hooked_node, hooked_results, inner, inner_transform, detached, data, inverse]


def bounded(step, h, xs):
    """As many steps as there are xs, of the first x."""
    count = torch.zeros((), dtype=torch.int64)
    body = lambda s: (step(s[0], xs[0])[0], s[1] + 1)  # noqa: E731
    return weft.while_loop(lambda s: s[1] < len(xs), body, (h, count), max_steps=len(xs) + 1)[0], xs


def bounded_loop(step, h, xs):
    h = h.clone()
    for _ in xs:
        h, _ = step(h, xs[0])
    return h, xs


def compiled_by(backend):
    return lambda step, h, xs: torch.compile(lambda h, xs: weft.scan(step, h, xs), backend=backend)(h, xs)


WAYS = {
    "scan": weft.scan,
    "checkpoint_scan": weft.checkpoint_scan,
    "while_loop": bounded,
    "jit": lambda step, h, xs: weft.jit(lambda h, xs: loop(step, h, xs))(h, xs),
    "weft": compiled_by("weft"),
    "aot_eager": compiled_by("aot_eager"),
    "inductor": compiled_by("inductor"),
}


def first_and_second(how, step, twice):
    h = torch.tensor([0.3, -0.2, 0.9], dtype=F64, requires_grad=True)
    xs = torch.linspace(-1, 1, 12, dtype=F64).reshape(4, 3).requires_grad_()
    last, ys = how(step, h, xs)
    total = (last * torch.arange(1.0, 4.0)).sum() + (ys * ys).sum()
    first = grad(total, [h, xs, W], create_graph=twice, allow_unused=True)
    first = [torch.zeros_like(x) if g is None else g for g, x in zip(first, [h, xs, W], strict=True)]
    found = [last, ys, *first]
    if twice:
        second = grad(sum((g * g).sum() for g in first), [h, xs, W], allow_unused=True)
        found += [torch.zeros_like(x) if g is None else g for g, x in zip(second, [h, xs, W], strict=True)]
    return [t.detach() for t in found]


def assert_compiled(step, twice=False):
    before = fallbacks()
    found = first_and_second(weft.scan, step, twice)
    torch.testing.assert_close(found, first_and_second(loop, step, twice))
    assert not reasons(before)


def assert_left_to_a_loop(step, *parts, twice=False):
    """Checks that a loop ran, for a reason with these words."""
    before = fallbacks()
    found = quietly(first_and_second, weft.scan, step, twice)
    torch.testing.assert_close(found, first_and_second(loop, step, twice))
    (told,) = reasons(before)
    assert all(part in told for part in parts), told


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_every_way_in(step, way):
    torch._dynamo.reset()
    twice = way in ("scan", "checkpoint_scan", "while_loop", "jit") and step is not hooked
    found = quietly(first_and_second, WAYS[way], step, twice)
    expected = first_and_second(bounded_loop if way == "while_loop" else loop, step, twice)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_finite_differences():
    h = torch.tensor([0.3, -0.2, 0.9], dtype=F64)
    xs = torch.linspace(-1, 1, 6, dtype=F64).reshape(2, 3)

    def f(w, x):
        def step(h, x):
            moved = h - 0.1 * grad((torch.exp(h * w) * x).sum(), h, create_graph=True)[0]
            return torch.tanh(moved), torch.linalg.inv(torch.outer(h, w) + 5 * torch.eye(3, dtype=F64)) @ x

        return weft.scan(step, h, x)

    inputs = (W.detach().clone().requires_grad_(), xs.clone().requires_grad_())
    assert torch.autograd.gradcheck(f, inputs) and torch.autograd.gradgradcheck(f, inputs)


# ---- the programs that the issue began with


def test_an_inner_gradient_through_a_saved_result():
    w = torch.tensor([0.5, -0.3], requires_grad=True)
    step = lambda p, x: (p - grad(torch.exp(p).sum(), p, create_graph=True)[0], None)  # noqa: E731
    last, _ = weft.scan(step, w, torch.zeros(1))
    torch.testing.assert_close(grad(last.sum(), w)[0], 1 - torch.exp(w.detach()))


def test_a_second_derivative_of_what_pytorch_runs():
    def f(a):
        step = lambda h, x: (h + torch.linalg.inv(a * torch.eye(2)), None)  # noqa: E731
        return weft.scan(step, torch.zeros(2, 2), torch.ones(3))[0].sum()

    a = torch.tensor(2.0, requires_grad=True)
    (slope,) = grad(f(a), a, create_graph=True)
    torch.testing.assert_close(grad(slope, a)[0], torch.tensor(1.5))
    torch.testing.assert_close(torch.func.hessian(f)(torch.tensor(2.0)), torch.tensor(1.5))


def test_a_captured_tensor_gets_the_total_derivative():
    def step(p, x):
        return p - 0.1 * grad((p * W * x).sum().sin(), W, create_graph=True)[0], p

    assert_left_to_a_loop(step, "with respect to a tensor from outside", twice=True)


def test_layer_norm_in_an_inner_gradient():
    """Third derivatives of PyTorch's layer norm take its mean and deviation for constants; Weft's don't."""
    h, xs = torch.tensor([0.3, -0.2, 0.9], dtype=F64), torch.linspace(-1, 1, 6, dtype=F64).reshape(2, 3)

    def f(w, x):
        norm = lambda p: (torch.nn.functional.layer_norm(p * w, (3,)) * x[0]).mean().square()  # noqa: E731
        return weft.scan(lambda h, x: (h - 0.1 * torch.func.grad(norm)(h), h), h, x)

    inputs = (W.detach().clone().requires_grad_(), xs.clone().requires_grad_())
    assert torch.autograd.gradcheck(f, inputs) and torch.autograd.gradgradcheck(f, inputs)


def test_tangents_of_captured_tensors():
    v = torch.tensor([1.0, 2.0, -1.0], dtype=F64)
    h, xs = torch.zeros(3, dtype=F64), torch.linspace(-1, 1, 12, dtype=F64).reshape(4, 3)
    f = lambda w: weft.scan(lambda h, x: (torch.tanh(h * w + x), None), h, xs)[0]  # noqa: E731
    expected = torch.autograd.functional.jvp(f, W.detach(), v)[1]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(W.detach(), v)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(f(dual)).tangent, expected)
        with torch.no_grad():
            torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(f(dual)).tangent, expected)
    torch.testing.assert_close(torch.func.linearize(f, W.detach())[1](v), expected)
    assert torch.autograd.gradcheck(f, (W.detach().clone().requires_grad_(),), check_forward_ad=True)


# ---- hooks


def test_a_hook_is_part_of_the_key():
    bound = [0.01]

    def step(h, x):
        z = h * W + x
        z.register_hook(lambda g, by=bound[0]: g.clamp(-by, by))
        return torch.tanh(z), z

    for bound[0] in (0.01, 0.2, 0.01):
        assert_compiled(step)


def test_hooks_of_equal_values_stay_apart():
    """Neither one for two equal values, nor one in front of the loop for all steps."""

    def step(h, x):
        a, b, c = torch.tanh(h), torch.tanh(h), W * 2
        for z in (a, b, c):
            z.register_hook(lambda g: g.clamp(-0.1, 0.1))
        return a * x + b * c, c

    assert_compiled(step)


def test_a_hook_on_a_carry_that_is_a_y_too():
    def step(h, x):
        h.register_hook(lambda g: g.clamp(-0.1, 0.1))
        h = torch.tanh(h * W + x)
        return h, h

    assert_left_to_a_loop(step, "a carry that the step before has used elsewhere too")


SEEN: list[float] = []


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (lambda g: SEEN.append(float(g.sum())) or g, "needs the value of a tensor"),
        (lambda g: None, "it returns nothing"),
        (lambda g: g.clamp_(-0.1, 0.1), "changes an argument in place"),
        (lambda g: g + 0.1, "isn't seen to be zero"),
        (lambda g: g * torch.rand(()), ""),
    ],
)
def test_hooks_that_no_program_can_have(hook, reason):
    def step(h, x):
        z = h * W + x
        z.register_hook(hook)
        return torch.tanh(z), z

    before = fallbacks()
    torch.manual_seed(0)
    found = quietly(first_and_second, weft.scan, step, False)
    torch.manual_seed(0)
    torch.testing.assert_close(found, first_and_second(loop, step, False))
    (told,) = reasons(before)
    assert reason in told and "test_step_gradients.py" in told


def test_a_second_derivative_through_clipping_is_refused():
    with pytest.raises(RuntimeError, match="second derivative through a hook on a gradient"):
        first_and_second(weft.scan, hooked, True)


# ---- what runs as a loop, with its reason


def own_hook_outside(h, x):
    W.register_hook(lambda g: g)
    return torch.tanh(h * W + x), h


def saved_elsewhere(h, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        return torch.tanh(h * W + x), h


def accumulates(h, x):
    (h.detach() * W).sum().backward()
    return torch.tanh(h * W + x), h


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (own_hook_outside, "a hook on the gradient of a tensor from outside"),
        (saved_elsewhere, "hooks on what autograd saves"),
        (accumulates, "adds to .grad of a tensor from outside"),
        (hooked_results, "grad_fn.register_hook"),
    ],
)
def test_left_to_a_loop(step, reason):
    before = fallbacks()
    with torch.no_grad():
        W.grad = None
    found = quietly(first_and_second, weft.scan, step, False)
    torch.testing.assert_close(found, first_and_second(loop, step, False))
    assert any(reason in told for told in reasons(before)), reasons(before)
    assert W.grad is None or (W.grad.device.type == "cpu" and W.grad.sum().isfinite())
    W.grad = None


def test_a_module_with_a_backward_hook():
    cell = torch.nn.GRUCell(3, 3)
    cell.register_full_backward_hook(lambda *_: None)
    before = fallbacks()
    quietly(weft.scan, lambda h, x: (cell(x, h), h), torch.zeros(2, 3), torch.randn(4, 2, 3))
    assert any("register_full_backward_hook" in reason for reason in reasons(before))


class Unseen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return 7 * g


def test_a_node_that_nobody_recorded():
    """A Function that the recorder misses leaves a node that no recorded operation explains."""
    past = super(torch.autograd.function._SingleLevelFunction, Unseen).apply

    def step(h, x):
        return torch.tanh(past(h * W) + x), h

    # Since 2.14 the context that such a call makes reveals it.
    named = ["UnseenBackward", "test_step_gradients.py"] if torch.__version__ < "2.14" else ["Function Unseen"]
    assert_left_to_a_loop(step, *named)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * torch.cos(ctx.saved_tensors[0])


def test_once_differentiable():
    def step(h, x):
        return Once.apply(h * W + x), h

    assert_compiled(step)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first_and_second(weft.scan, step, True)


def test_a_backward_that_reads_what_its_forward_does_not():
    scale = torch.tensor([1.0, 2.0, 3.0], dtype=F64)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * scale

    def step(h, x):
        return torch.tanh(Scaled.apply(h * W + x)), h

    assert_compiled(step, twice=True)


# ---- programs that need it


def example():
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples/gradients_in_a_step.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", list(example().PROGRAMS))
def test_the_example(name):
    module = example()
    torch.manual_seed(1)
    loss, parameters = module.PROGRAMS[name]()
    before = fallbacks()
    found = module.gradients(loss(weft.scan), parameters)
    torch.testing.assert_close(found, module.gradients(loss(module.loop), parameters))
    assert not reasons(before)


def test_a_kalman_filter_twice():
    module = example()
    torch.manual_seed(1)
    loss, parameters = module.kalman_filter(states=2, length=4)
    turn, noise = parameters

    def f(a, b):
        with torch.no_grad():
            turn.copy_(a), noise.copy_(b)
        first = grad(loss(weft.scan), parameters, create_graph=True)
        return sum((g * g).sum() for g in first)

    expected = grad(sum((g * g).sum() for g in grad(loss(module.loop), parameters, create_graph=True)), parameters)
    found = grad(f(turn.detach().clone(), noise.detach().clone()), parameters)
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "node_creation_hook"), reason="since PyTorch 2.14")
@pytest.mark.parametrize("where", ["around", "inside"])
def test_a_hook_on_the_creation_of_nodes_sees_those_of_the_loop(where: str) -> None:
    """Hooks may be attached to nodes that one sees, and these change gradients."""

    def halve(node: Any) -> None:
        if "Tanh" in node.name():
            node.register_prehook(lambda gradients: tuple(g * 0.5 for g in gradients))

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autograd.graph.node_creation_hook(halve) if where == "inside" else contextlib.nullcontext():
            h = torch.tanh(h + x)
        return h, h

    def gradient(how: Any) -> Tensor:
        xs = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
        with torch.autograd.graph.node_creation_hook(halve) if where == "around" else contextlib.nullcontext():
            h, _ = how(step, torch.zeros(3, dtype=torch.float64), xs)
        return torch.autograd.grad(h.sum(), xs)[0]

    want = gradient(loop)
    for _ in range(2):
        torch.testing.assert_close(gradient(weft.scan), want)
    assert any("node_creation_hook" in reason for reason in weft.stats()["fallbacks"])
