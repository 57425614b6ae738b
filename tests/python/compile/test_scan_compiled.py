"""weft.scan and PyTorch's own scan under torch.compile and torch.export, against plain Python loops."""

from __future__ import annotations

import copy
import dataclasses
from collections import namedtuple

import pytest
import torch
from oracles import assert_leaves_close, loop
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._higher_order_ops.scan import scan as torch_scan

import weft

WIDTH = 4
BACKENDS = ["weft", "aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    counters.clear()
    yield
    assert not weft.stats()["fallbacks"] or "interpreted" in str(weft.stats()["fallbacks"])


class Recurrence(nn.Module):
    """One step in plain PyTorch, run over a sequence by `how`."""

    def __init__(self, how=weft.scan, *, reverse=False):
        super().__init__()
        self.how, self.reverse = how, reverse
        self.first, self.second = nn.GRUCell(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def step(self, h, x):
        h = self.first(x, h)
        return h, h

    def second_step(self, h, x):
        h = torch.tanh(self.second(torch.cat([x, h], -1)))
        return h, h

    def run(self, step, h, xs):
        return self.how(step, h, xs, reverse=self.reverse)


class Chained(Recurrence):
    def forward(self, h, xs):
        h, ys = self.run(self.step, h, xs)
        return self.run(self.second_step, h, ys)


class Nested(Recurrence):
    """A step that is itself a recurrence, over the features of its x."""

    def forward(self, h, xs):
        def outer(h, x):
            h, ys = self.run(self.step, h, x.unflatten(0, (2, -1)))
            return h, ys.flatten(0, 1)

        return self.run(outer, h, xs)


class WithCell(Recurrence):
    def forward(self, h, xs):
        return self.run(self.step, h, xs)


def sizes(module, steps=5, batch=4):
    return (batch // 2 if isinstance(module, Nested) else batch, WIDTH), (steps, batch, WIDTH)


def train(module, f, inputs, steps=3):
    """The parameters after a few steps of an optimiser."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for h, xs in inputs[:steps]:
        optimiser.zero_grad()
        carry, ys = f(h, xs)
        (carry.square().mean() + ys.square().mean()).backward()
        optimiser.step()
    return list(module.parameters())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [Chained, Nested, WithCell])
def test_trains_to_the_parameters_of_the_loop(kind, backend):
    module = kind()
    reference = copy.deepcopy(module)
    reference.how = loop
    inputs = [tuple(map(torch.randn, sizes(module))) for _ in range(3)]
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    assert_leaves_close(train(module, compiled, inputs), train(reference, reference, inputs))
    assert weft.stats()["calls"] > 0


@pytest.mark.parametrize("kind", [Chained, Nested, WithCell])
def test_gradcheck_in_float64(kind):
    module = kind(reverse=True).double()
    shape_h, shape_xs = sizes(module, steps=3)
    h = torch.randn(shape_h, dtype=torch.float64, requires_grad=True)
    xs = torch.randn(shape_xs, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*module.named_parameters(), strict=True)

    def f(h, xs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (h, xs))

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    assert torch.autograd.gradcheck(compiled, (h, xs, *parameters), fast_mode=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_four_lengths_give_two_graphs_and_a_batch_one_more(backend):
    module = WithCell()
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    reference = copy.deepcopy(module)
    reference.how = loop
    for graphs, steps, batch in [(1, 5, 3), (2, 6, 3), (2, 7, 3), (2, 9, 3), (3, 7, 6), (3, 11, 7)]:
        h, xs = torch.randn(batch, WIDTH), torch.randn(steps, batch, WIDTH)
        assert_leaves_close(compiled(h, xs), reference(h, xs))
        assert counters["stats"]["unique_graphs"] == graphs
    before = weft.stats()["compiled"]
    compiled(torch.randn(8, WIDTH), torch.randn(12, 8, WIDTH))
    assert weft.stats()["compiled"] == before


@dataclasses.dataclass
class State:
    h: torch.Tensor
    count: torch.Tensor


@dataclasses.dataclass
class Out:
    y: torch.Tensor


Pair = namedtuple("Pair", ["a", "b"])


def test_pytrees_of_all_kinds():
    def f(h, xs):
        def step(state, x):
            h = torch.tanh(state.h + x["x"] * x["s"][0])
            y = {"out": Out(h), "pair": Pair(x["x"], None), "tuple": (h, (), 2.5, True)}
            return State(h, state.count + 1), y

        return weft.scan(step, State(h, 3), {"x": xs, "s": (xs * 2,), "none": None})

    h, xs = torch.randn(3), torch.randn(5, 3)
    state, ys = torch.compile(f, backend="aot_eager", fullgraph=True)(h, xs)
    assert isinstance(state, State) and isinstance(ys["out"], Out) and isinstance(ys["pair"], Pair)
    assert state.count.dtype == torch.int64 and state.count == 8
    assert ys["pair"].b is None and ys["tuple"][1] == ()
    other, others = f(h, xs)
    assert_leaves_close((state.h, ys["out"].y, ys["pair"].a), (other.h, others["out"].y, others["pair"].a))
    assert_leaves_close(ys["tuple"], others["tuple"])


def test_two_dataclasses_that_pytorch_has_not_met():
    @dataclasses.dataclass
    class First:
        a: torch.Tensor

    @dataclasses.dataclass
    class Second:
        b: torch.Tensor

    def f(h, xs):
        first, ys = weft.scan(lambda s, x: (First(s.a + x), Second(x * s.a)), First(h), xs)
        second, zs = weft.scan(lambda s, x: (Second(s.b * x), First(s.b)), Second(first.a), ys.b)
        return second.b, zs.a

    h, xs = torch.randn(3), torch.randn(5, 3)
    assert_leaves_close(torch.compile(f, backend="aot_eager", fullgraph=True)(h, xs), f(h, xs))


@pytest.mark.parametrize("reverse", [False, True])
def test_results_have_memory_of_their_own(reverse):
    """A step that returns its carry, its x, one tensor twice, views of a tensor from outside."""
    rows = torch.randn(2, 3)

    def f(h, xs):
        one, other = rows.unbind(0)
        return weft.scan(lambda c, x: ((c[1], c[0] + x * one), (x, c[0], c[0], other)), (h, h), xs, reverse=reverse)

    h, xs = torch.randn(3), torch.randn(4, 3)
    ours = torch.compile(f, backend="aot_eager", fullgraph=True)(h, xs)
    assert_leaves_close(ours, f(h, xs))
    leaves = torch.utils._pytree.tree_leaves(ours)
    assert len({t.untyped_storage().data_ptr() for t in (*leaves, h, xs, rows)}) == len(leaves) + 3


def test_no_xs_and_no_carry():
    def f(h, xs):
        counted = weft.scan(lambda c, _: (c + 1, c), 0, None, length=xs.shape[0], reverse=True)
        mapped = weft.scan(lambda _, x: (None, x.sin()), None, xs)
        return counted, mapped[1]

    (count, ys), mapped = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)(None, torch.ones(5, 2))
    assert count == 5 and ys.tolist() == [4, 3, 2, 1, 0]
    assert_leaves_close(mapped, torch.ones(5, 2).sin())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode, backend):
    module = Chained()
    reference = copy.deepcopy(module)
    reference.how = loop
    with mode():
        h, xs = map(torch.randn, sizes(module))
        assert_leaves_close(torch.compile(module, backend=backend, fullgraph=True)(h, xs), reference(h, xs))
    assert weft.stats()["calls"] > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_rounds_products_and_keeps_the_carry(backend):
    weight = torch.randn(WIDTH, WIDTH, requires_grad=True)

    def f(h, xs, how=weft.scan):
        with torch.autocast("cpu", torch.bfloat16):
            return how(lambda h, x: ((torch.tanh(x + h @ weight)).float(), h @ weight), h, xs)

    h, xs = torch.randn(3, WIDTH), torch.randn(5, 3, WIDTH)
    ours = torch.compile(f, backend=backend, fullgraph=True)(h, xs)
    theirs = f(h, xs, loop)
    assert [t.dtype for t in ours] == [torch.float32, torch.bfloat16]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)
    ours, theirs = (torch.autograd.grad(r[1].float().sum(), weight)[0] for r in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("transform", ["grad", "vmap", "per_sample_grad", "jacrev", "hessian"])
def test_transforms(transform):
    def f(how):
        def loss(w, h, xs):
            return how(lambda h, x: ((torch.tanh(x @ w + h)),) * 2, h, xs)[1].square().sum()

        return {
            "grad": torch.func.grad(loss, (0, 1)),
            "vmap": torch.vmap(loss, (None, 0, 0)),
            "per_sample_grad": torch.vmap(torch.func.grad(loss), (None, 0, 0)),
            "jacrev": torch.func.jacrev(loss),
            "hessian": torch.func.jacrev(torch.func.jacrev(loss)),
        }[transform]

    batch = (2,) if "vmap" in transform or "sample" in transform else ()
    arguments = torch.randn(3, 3), torch.randn(*batch, 2, 3), torch.randn(*batch, 4, 2, 3)
    compiled = torch.compile(f(weft.scan), backend="aot_eager", fullgraph=True)
    assert_leaves_close(compiled(*arguments), f(loop)(*arguments), rtol=1e-4, atol=1e-4)


def test_random_numbers_are_those_of_the_forward_in_the_backward():
    def f(h, xs):
        def step(h, x):
            kept = torch.nn.functional.dropout(h * x, 0.5)
            return kept + x, kept

        return weft.scan(step, h, xs)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    h, xs = torch.ones(50), torch.ones(4, 50, requires_grad=True)
    torch.manual_seed(1)
    _, ys = compiled(h, xs)
    torch.manual_seed(1)
    assert_leaves_close(compiled(h, xs)[1], ys)
    (gradient,) = torch.autograd.grad(ys[-1].sum(), xs)
    assert torch.equal(gradient[-1] == 0, ys[-1] == 0) and (ys[-1] == 0).any()


# ---- torch.export


def test_exports_with_dynamic_sizes_saved_and_loaded(run_warm_python, tmp_path):
    """Strict and not, both loaded by one other process."""
    module = Chained()
    reference = copy.deepcopy(module)
    reference.how = loop
    steps, batch = torch.export.Dim("steps", min=2, max=1000), torch.export.Dim("batch", min=2, max=100)
    dynamic = ({0: batch}, {0: steps, 1: batch})
    for strict in (True, False):
        h, xs = map(torch.randn, sizes(module))
        exported = torch.export.export(module, (h, xs), dynamic_shapes=dynamic, strict=strict)
        torch.export.save(exported, tmp_path / f"scan-{strict}.pt2")
    h, xs = torch.randn(6, WIDTH), torch.randn(9, 6, WIDTH)
    torch.save((h, xs, *reference(h, xs)), tmp_path / "expected.pt")
    run_warm_python(
        "import torch, weft\n"
        "h, xs, carry, ys = torch.load('expected.pt')\n"
        "for strict in (True, False):\n"
        "    loaded = torch.export.load(f'scan-{strict}.pt2').module()\n"
        "    weft.reset_stats()\n"
        "    torch.testing.assert_close(loaded(h, xs), (carry, ys))\n"
        "    assert weft.stats()['calls'] > 0 and not weft.stats()['fallbacks'], weft.stats()\n"
    )


# ---- PyTorch's own scan


def rnn_step(weights):
    def step(h, x):
        h = torch.tanh(x @ weights[0] + h @ weights[1])
        return h, h.clone()

    return step


def gradients(f, arguments, leaves):
    outputs = f(*arguments)
    loss = sum(t.square().sum() for t in torch.utils._pytree.tree_leaves(outputs))
    return [*torch.utils._pytree.tree_leaves(outputs), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_tanh_recurrence_of_pytorchs_scan(backend):
    """Inductor refuses it without Weft (pytorch#195977): the carry is saved for the backward."""
    weights = [(torch.randn(WIDTH, WIDTH) / 2).requires_grad_() for _ in range(2)]
    h, xs = torch.randn(2, WIDTH), torch.randn(6, 2, WIDTH, requires_grad=True)

    def f(how, h, xs):
        return how(rnn_step(weights), h, xs)

    ours = torch.compile(f, backend=backend, fullgraph=True) if backend else f
    leaves = [*weights, xs]
    assert_leaves_close(gradients(ours, (torch_scan, h, xs), leaves), gradients(f, (loop, h, xs), leaves))
    assert weft.stats()["calls"] > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_of_pytorchs_scan_that_share_nothing(backend):
    """The gradients of all but the last layer are wrong under Inductor without Weft (pytorch#153679)."""
    layers = [[(torch.randn(WIDTH, WIDTH) / 2).requires_grad_() for _ in range(2)] for _ in range(3)]
    h, xs = torch.randn(2, WIDTH), torch.randn(6, 2, WIDTH, requires_grad=True)

    def f(how, h, xs):
        for weights in layers:
            _, xs = how(rnn_step(weights), h, xs)
        return xs

    leaves = [xs, *(w for weights in layers for w in weights)]
    ours = gradients(torch.compile(f, backend=backend, fullgraph=True), (torch_scan, h, xs), leaves)
    assert_leaves_close(ours, gradients(f, (loop, h, xs), leaves), rtol=1e-4, atol=1e-4)


def test_an_lstm_of_pytorchs_scan_in_a_pytree_along_another_dim_in_reverse():
    cell = nn.LSTMCell(WIDTH, WIDTH)

    def step(carry, x):
        h, c = cell(x["x"], (carry["h"], carry["c"][0]))
        return {"h": h, "c": [c]}, {"h": h.clone(), "gate": [torch.sigmoid(c)]}

    def f(xs):
        zeros = torch.zeros(2, WIDTH)
        return torch_scan(step, {"h": zeros, "c": [zeros.clone()]}, {"x": xs}, dim=1, reverse=True)

    def expected(xs):
        carry, hs, gates = {"h": torch.zeros(2, WIDTH), "c": [torch.zeros(2, WIDTH)]}, [], []
        for t in reversed(range(5)):
            carry, y = step(carry, {"x": xs[:, t]})
            hs.append(y["h"])
            gates.append(y["gate"][0])
        return carry, {"h": torch.stack(hs[::-1], 1), "gate": [torch.stack(gates[::-1], 1)]}

    xs = torch.randn(2, 5, WIDTH, requires_grad=True)
    leaves = [xs, *cell.parameters()]
    ours = gradients(torch.compile(f, backend="aot_eager", fullgraph=True), (xs,), leaves)
    assert_leaves_close(ours, gradients(expected, (xs,), leaves))


def test_a_carry_of_another_shape_is_refused_in_pytorchs_words():
    def f(h, xs):
        return torch_scan(lambda h, x: (torch.cat([h, x]), x.clone()), h, xs)

    with pytest.raises(Exception, match="Expected init and carry to have same metadata"):
        torch.compile(f, backend="aot_eager", fullgraph=True)(torch.randn(3), torch.randn(4, 3))


def test_make_fx_writes_one_call():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda h, xs: weft.scan(lambda h, x: (h + x, h * x), h, xs))(torch.randn(3), torch.randn(4, 3))
    assert [str(n.target) for n in graph.graph.nodes if "weft" in str(n.target)] == ["weft.call.default"]


# ---- errors


@pytest.mark.parametrize("fullgraph", [True, False])
def test_errors_are_those_of_eager_mode(fullgraph):
    def f(h, xs):
        return weft.scan(lambda c, x: ({"h": torch.cat([c["h"], x])}, x), {"h": h}, xs)

    expected = r"carry\['h'\]: float32\[3\] in, float32\[6\] out"
    with pytest.raises(Exception, match=expected) as caught:
        torch.compile(f, backend="aot_eager", fullgraph=fullgraph)(torch.randn(3), torch.randn(4, 3))
    assert fullgraph or caught.type is ValueError


def test_switched_off_pytorchs_kernels_are_back():
    from torch._higher_order_ops.scan import scan_op

    key = torch._C.DispatchKey.Autograd
    ours = scan_op.py_kernels[key]
    weft.disable()
    try:
        assert scan_op.py_kernels[key] is not ours and "weft" not in scan_op.py_kernels[key].__module__
        assert_leaves_close(
            torch_scan(lambda h, x: (h + x, h * x), torch.zeros(2), torch.ones(3, 2))[0], torch.full((2,), 3.0)
        )
        assert weft.stats()["calls"] == 0
    finally:
        weft.enable()
    torch_scan(lambda h, x: (h + x, h * x), torch.zeros(2), torch.ones(3, 2))
    assert weft.stats()["calls"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", "weft"])
@pytest.mark.parametrize("gradients", [False, True])
def test_random_numbers_beside_captured_values(backend: str, gradients: bool) -> None:
    """Parameters and other captured tensors come before the numbers that a step draws, also where they look alike."""
    context, weight = torch.randn(3, 4), torch.randn(4, requires_grad=gradients)

    def run(h: Tensor, xs: Tensor) -> Tensor:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            kept = torch.where(torch.rand_like(h) < 2, context * weight, h)  # always
            dropped = torch.nn.functional.dropout(x, 0.5)
            return h + kept, kept + 0 * dropped

        return weft.scan(step, h, xs)[1]

    h, xs = torch.randn(3, 4), torch.randn(5, 3, 4)
    ys = torch.compile(run, backend=backend)(h, xs)
    torch.testing.assert_close(ys, (context * weight).expand(5, 3, 4))
    if gradients:
        (gradient,) = torch.autograd.grad(ys.sum(), weight)
        torch.testing.assert_close(gradient, 5 * context.sum(0))


@pytest.mark.parametrize("backend", ["aot_eager", "weft"])
def test_one_captured_value_of_the_shape_of_the_random_numbers(backend: str) -> None:
    context = torch.randn(3, 4)

    def run(h: Tensor, xs: Tensor) -> Tensor:
        return weft.scan(lambda h, x: (h + x, torch.where(torch.rand_like(h) < 2, context, h)), h, xs)[1]

    ys = torch.compile(run, backend=backend)(torch.randn(3, 4), torch.randn(5, 3, 4))
    torch.testing.assert_close(ys, context.expand(5, 3, 4))
