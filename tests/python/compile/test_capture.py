"""ATen ops as programs: every op of the table against ATen, regions of random graphs against eager."""

from __future__ import annotations

import operator
import random

import aten_cases
import pytest
import torch
import torch.nn.functional as fn
from aten_cases import floats
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import weft
from weft import backend
from weft._dynamo.regions.partition import Partition
from weft._dynamo.regions.program import RegionProgram

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def program_of(f, inputs):
    """The program of the whole function f: its text, and which inputs it takes."""
    module = make_fx(f, tracing_mode="fake")(*inputs)
    graph = Partition(module.graph)
    members = [n for n in module.graph.nodes if n.op == "call_function"]
    refused = [str(n.target) for n in members if n not in graph.expressible]
    assert not refused, refused
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    graph.views, graph.members = set(), set(members)
    program = RegionProgram(graph, members)
    assert not program.refused, [str(n.target) for n in program.refused]
    return program.text, [placeholders.index(n) for n in program.inputs]


def assert_equals_aten(f, *inputs):
    text, taken = program_of(f, inputs)
    got = torch.ops.weft.call(text, [inputs[i] for i in taken])
    want = f(*inputs)
    want = list(want) if isinstance(want, tuple) else [want]
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.is_contiguous()
        torch.testing.assert_close(a, b.contiguous(), rtol=2e-6, atol=1e-6, equal_nan=True)


UNARY = [
    "neg", "abs", "sign", "exp", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "sin", "cos", "erf",
    "floor", "reciprocal", "silu", "detach", "clone", "alias",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for x in (floats(3, 5), floats(0, 2), floats(), floats(3, 5).double()):
        assert_equals_aten(lambda x: getattr(aten, name)(x), x)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum"])
def test_binary_with_broadcasting_and_promotion(name):
    f = getattr(aten, name)
    for b in (floats(3, 5), floats(5), floats(3, 1), floats(1, 1), floats(), floats(2, 3, 5), floats(5).double()):
        assert_equals_aten(lambda a, b: f(a, b), floats(3, 5, special=False), b)
    assert_equals_aten(lambda a, b: f(a, b), floats(3, 5), torch.arange(5))
    if name not in ("maximum", "minimum"):
        assert_equals_aten(lambda a: f(a, 2), floats(3, 5))
        assert_equals_aten(lambda a: f(a, 0.3), torch.arange(6).view(2, 3))
    if name in ("add", "sub"):
        assert_equals_aten(lambda a, b: f(a, b, alpha=-2.5), floats(3, 5), floats(5))
        assert_equals_aten(lambda a, b: f(a, b, alpha=3), torch.arange(5), torch.arange(5))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    f = getattr(aten, name)
    assert_equals_aten(lambda a, b: f(a, b), floats(3, 5), floats(5))
    assert_equals_aten(lambda a: f(a, 0), floats(3, 5))
    assert_equals_aten(lambda a: f(a, 2), torch.arange(5))


CASES = {
    "rsub": (lambda x: aten.rsub(x, 2.0), [floats(3, 5)]),
    "square": (lambda x: aten.pow(x, 2), [floats(3, 5)]),
    "root": (lambda x: aten.pow(x, 0.5), [floats(3, 5).abs()]),
    "power": (lambda x: aten.pow(x, 2.5), [floats(3, 5).abs()]),
    "clamp": (lambda x: aten.clamp(x, -0.5, 0.5), [floats(3, 5)]),
    "clamp below": (lambda x: aten.clamp(x, min=0.25), [floats(3, 5)]),
    "not": (lambda m: aten.logical_not(m), [floats(3, 5) > 0]),
    "and": (lambda a, b: aten.logical_and(a, b), [floats(3, 5) > 0, floats(3, 5) > 1]),
    "where": (lambda m, a, b: aten.where(m, a, b), [floats(3, 5) > 0, floats(5), floats(3, 1)]),
    "masked_fill": (lambda x, m: aten.masked_fill(x, m, 7.0), [floats(3, 5), floats(5) > 0]),
    "tanh_backward": (lambda g, y: aten.tanh_backward(g, y), [floats(3, 5), floats(3, 5)]),
    "sigmoid_backward": (lambda g, y: aten.sigmoid_backward(g, y), [floats(3, 5), floats(3, 5)]),
    "threshold_backward": (lambda g, x: aten.threshold_backward(g, x, 0), [floats(3, 5, special=False), floats(3, 5)]),
    "dropout_backward": (lambda g, m: aten.native_dropout_backward(g, m, 2.0), [floats(3, 5), floats(3, 5) > 0]),
    "to double": (lambda x: aten._to_copy(x, dtype=torch.float64), [floats(3, 5)]),
    "to integer": (lambda x: aten._to_copy(x, dtype=torch.int64), [floats(3, 5, special=False) * 9]),
    "filled": (lambda x: (aten.zeros_like(x), aten.full([2, 3], 1.5), aten.new_ones(x, [4])), [floats(3, 5)]),
    "view": (lambda x: aten.view(x, [5, -1, 2]), [floats(4, 5)]),
    "unsqueeze": (lambda x: aten.unsqueeze(x, -1), [floats(4, 5)]),
    "squeeze": (lambda x: aten.squeeze(x, 1), [floats(4, 1, 5)]),
    "expand": (lambda x: aten.expand(x, [3, 4, 5]), [floats(4, 1)]),
    "t": (lambda x: aten.t(x), [floats(4, 5)]),
    "transpose": (lambda x: aten.transpose(x, -1, 0), [floats(4, 2, 5)]),
    "permute": (lambda x: aten.permute(x, [2, 0, -2]), [floats(4, 2, 5)]),
    "permute twice": (lambda x: aten.permute(aten.permute(x, [2, 0, 1]), [2, 0, 1]), [floats(4, 2, 5)]),
    "permute back": (lambda x: aten.permute(aten.permute(x, [2, 0, 1]), [1, 2, 0]), [floats(4, 2, 5)]),
    "slice": (lambda x: aten.slice(x, 1, -4, 100), [floats(3, 6)]),
    "slice of nothing": (lambda x: aten.slice(x, 1, 4, 2), [floats(3, 6)]),
    "select": (lambda x: aten.select(x, 1, -2), [floats(3, 6, 2)]),
    "cat": (lambda a, b: aten.cat([a, b, a], -1), [floats(3, 2), floats(3, 4)]),
    "stack": (lambda a, b: aten.stack([a, b], 1), [floats(3, 2), floats(3, 2)]),
    "flip": (lambda x: aten.flip(x, [0, -1]), [floats(3, 6)]),
    "sum": (lambda x: aten.sum(x), [floats(3, 6, special=False)]),
    "sum of bools": (lambda x: aten.sum(x), [floats(3, 6) > 0]),
    "sum over dims": (lambda x: aten.sum(x, [-1, 0]), [floats(3, 6, 2, special=False)]),
    "sum kept": (lambda x: aten.sum(x, [1], True), [floats(3, 6, 2, special=False)]),
    "sum over all": (lambda x: aten.sum(x, []), [floats(3, 6, special=False)]),
    "sum over nothing": (lambda x: aten.sum(x, [0]), [floats(0, 6)]),
    "mean": (lambda x: aten.mean(x, [0], True), [floats(3, 6, special=False)]),
    "mean of all": (lambda x: aten.mean(x), [floats(3, 6)]),
    "amax": (lambda x: aten.amax(x, [1]), [floats(3, 6)]),
    "softmax": (lambda x: aten._softmax(x, 1, False), [floats(3, 6, special=False)]),
    "log_softmax": (lambda x: aten._log_softmax(x, -2, False), [floats(3, 6, special=False)]),
    "mm": (lambda a, b: aten.mm(a, b), [floats(3, 6, special=False), floats(6, 4, special=False)]),
    "mm, b transposed": (
        lambda a, b: aten.mm(a, aten.t(b)),
        [floats(3, 6, special=False), floats(4, 6, special=False)],
    ),
    "mm, a transposed": (
        lambda a, b: aten.mm(aten.t(a), b),
        [floats(6, 3, special=False), floats(6, 4, special=False)],
    ),
    "mm, both": (
        lambda a, b: aten.mm(aten.t(a), aten.t(b)),
        [floats(6, 3, special=False), floats(4, 6, special=False)],
    ),
    "mm over nothing": (lambda a, b: aten.mm(a, b), [floats(3, 0), floats(0, 4)]),
    "addmm": (lambda c, a, b: aten.addmm(c, a, aten.t(b)), [floats(4), floats(3, 6, special=False), floats(4, 6)]),
    "bmm": (lambda a, b: aten.bmm(a, b), [floats(2, 3, 6, special=False), floats(2, 6, 4, special=False)]),
    "bmm, b transposed": (
        lambda a, b: aten.bmm(a, aten.transpose(b, 1, 2)),
        [floats(2, 3, 6, special=False), floats(2, 4, 6, special=False)],
    ),
    "embedding": (lambda w, i: aten.embedding(w, i), [floats(5, 3), torch.tensor([[0, 4], [2, 2]])]),
    "embedding backward": (
        lambda g, i: aten.embedding_dense_backward(g, i, 5, -1, False),
        [floats(2, 2, 3, special=False), torch.tensor([[0, 4], [2, 2]])],
    ),
}


CASES |= aten_cases.CASES


@pytest.mark.parametrize("name", CASES)
def test_op(name):
    f, inputs = CASES[name]
    assert_equals_aten(f, *inputs)


def test_each_op_of_the_table_is_tested():
    """Compares the table's names with the operations that the tests above trace."""
    source = (_repository() / "pytorch" / "importer" / "aten_ops.cpp").read_text()
    table = {line.split('"')[1].split(".")[1] for line in source.splitlines() if line.strip().startswith('{"aten.')}
    traced = set(UNARY) | {"add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"}
    for f, inputs in CASES.values():
        module = make_fx(f, tracing_mode="fake")(*inputs)
        traced |= {n.target._schema.name.split("::")[1] for n in module.graph.nodes if n.op == "call_function"}
    same = {"_unsafe_view", "reshape", "contiguous", "lift_fresh_copy", "scalar_tensor", "zeros", "ones", "ones_like"}
    same |= {"square", "zero", "lift_fresh"}  # tracing turns these into other operations, or takes them for others
    same |= {"new_zeros", "full_like", "logical_or", "ones", "zeros"}  # these share a handler with a tested operation
    assert table - traced - same == set()


def _repository():
    from pathlib import Path

    return Path(__file__).parents[3]


# ---- regions


def regions_of(f, *inputs, **options):
    """The number of program calls that f compiles to, and how many of these are regions; results are checked against
    eager."""
    before = (backend.stats.calls, backend.stats.regions)
    compiled = torch.compile(f, backend="weft", fullgraph=True, options=options or None)
    torch.manual_seed(7)
    got = compiled(*inputs)
    torch.manual_seed(7)
    with weft.disabled():
        want = f(*inputs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    return backend.stats.calls - before[0], backend.stats.regions - before[1]


def residual_stack():
    first, second = nn.GRU(6, 6), nn.LSTM(6, 6)
    linear = nn.Linear(6, 4)

    def f(x):
        y = first(x)[0].tanh() + x
        return linear(second(y * 0.5)[0]).relu()

    return f


@torch.no_grad()
def test_what_stands_between_two_recurrences_makes_one_program_of_both():
    assert regions_of(residual_stack(), torch.randn(5, 3, 6)) == (1, 1)
    assert not weft.stats()["extern"].keys() & {"aten.tanh.default", "aten.addmm.default", "aten.relu.default"}


MADE_OF_OTHERS = {
    "gelu": fn.gelu,
    "gelu tanh": lambda x: fn.gelu(x, approximate="tanh"),
    "elu": fn.elu,
    "softplus": fn.softplus,
    "mish": fn.mish,
    "hardswish": fn.hardswish,
    "leaky_relu": lambda x: fn.leaky_relu(x, 0.2),
    "hardtanh": fn.hardtanh,
    "softshrink": fn.softshrink,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "lerp": lambda x: torch.lerp(x, x * x, 0.3),
}


@pytest.mark.parametrize("name", MADE_OF_OTHERS)
def test_what_a_step_makes_of_others_joins_a_region_too(name):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.GRU(3, 4), nn.GRU(4, 5)

        def forward(self, x):
            return self.second(MADE_OF_OTHERS[name](self.first(x)[0]))[0]

    model, x = Model(), torch.randn(6, 2, 3)
    weft.reset_stats()
    ours = torch.compile(model, backend="weft")(x)
    ours_gradients = torch.autograd.grad(ours.square().sum(), list(model.parameters()))
    extern = weft.stats()["extern"]
    with weft.disabled():
        theirs = model(x)
    theirs_gradients = torch.autograd.grad(theirs.square().sum(), list(model.parameters()))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours_gradients, theirs_gradients, rtol=1e-4, atol=1e-5)
    assert not [op for op in extern if name.split()[0] in op], extern


@torch.no_grad()
def test_capture_can_be_switched_off():
    assert regions_of(residual_stack(), torch.randn(5, 3, 6), capture=False) == (2, 0)
    assert weft.stats()["extern"]["aten.tanh.default"] == 1


@torch.no_grad()
def test_a_path_that_leaves_a_region_does_not_come_back():
    first, second = nn.GRU(6, 6), nn.GRU(6, 6)

    def f(x):
        y = first(x)[0].tanh()
        z = y.cumsum(0)  # no op of Weft's: it waits for the first recurrence, and the second waits for it
        return second(y + z)[0] + y

    assert regions_of(f, torch.randn(5, 3, 6)) == (2, 2)


@torch.no_grad()
def test_random_numbers_keep_their_order_around_regions():
    gru = nn.GRU(6, 6)

    def f(x):
        a = torch.rand(3)
        y = nn.functional.dropout(gru(x)[0] * 2, 0.5)
        b = torch.rand(3)
        return gru(y + b.sum())[0].relu() + a.sum() + torch.rand(6)

    regions_of(f, torch.randn(5, 3, 6))


@torch.no_grad()
def test_outputs_nobody_reads_are_not_computed():
    gru = nn.GRU(6, 6)
    seen = []
    original, backend._count = backend._count, lambda graph: seen.extend(graph.nodes) or original(graph)
    try:
        assert regions_of(lambda x, h: gru(x, h)[1].clone(), torch.randn(5, 3, 6), torch.zeros(1, 3, 6)) == (1, 0)
    finally:
        backend._count = original
    call = next(n for n in seen if n.target is torch.ops.weft.call.default)
    assert len(torch.ops.weft.call(call.args[0], [torch.zeros(s) for s in _sizes(call)])) == 1
    assert len(call.users) == 1 and next(iter(call.users)).target is operator.getitem


def _sizes(call):
    return [n.meta["val"].shape for n in call.args[1]]


@torch.no_grad()
def test_symbolic_sizes_and_batch_first():
    gru, linear = nn.GRU(6, 6, batch_first=True), nn.Linear(6, 5)

    def f(x):
        return linear(gru(x)[0].flatten(0, 1)).tanh() + 1

    for steps in (4, 5, 9):
        regions_of(f, torch.randn(2, steps, 6))


def random_function(seed):
    """A function of x [T,B,6] with two recurrences, pointwise ops, products, views, dropout and ops the IR lacks."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    gru, lstm, linear = nn.GRU(6, 6), nn.LSTM(6, 6, 2), nn.Linear(6, 6)
    parameters = [p for m in (gru, lstm, linear) for p in m.parameters()]
    ops = {
        "gru": lambda a, b: gru(a)[0],
        "lstm": lambda a, b: lstm(a + b)[0],
        "linear": lambda a, b: linear(a),
        "tanh": lambda a, b: a.tanh() * b,
        "gate": lambda a, b: torch.where(a > 0, b, a.sigmoid()),
        "norm": lambda a, b: (a - a.mean(-1, keepdim=True)) / (b.square().sum(-1, keepdim=True) + 1).sqrt(),
        "views": lambda a, b: a.flatten(0, 1).view(a.shape) + b[..., 2:3] - a.transpose(0, 1).transpose(0, 1),
        "turn": lambda a, b: (a.transpose(1, 2) * 0.5).transpose(1, 2) + b,
        "cat": lambda a, b: torch.cat([a[..., :2], b[..., 2:]], -1),
        "cumsum": lambda a, b: a.cumsum(0) * 0.1 + b,
        "dropout": lambda a, b: nn.functional.dropout(a, 0.3) + b,
        "inplace": lambda a, b: a.clone().mul_(0.5).add_(b),
    }
    plan = [(choose.choice(list(ops)), choose.random(), choose.random()) for _ in range(choose.randint(4, 12))]
    plan.insert(choose.randrange(len(plan)), ("gru", choose.random(), choose.random()))

    def f(x):
        values = [x]
        for name, a, b in plan:
            values.append(ops[name](values[int(a * len(values))], values[int(b * len(values))]))
        return values[-1], sum(v.mean() for v in values), values[len(values) // 2]

    return f, parameters


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_equal_eager(seed):
    f, parameters = random_function(seed)
    compiled = torch.compile(f, backend="weft", fullgraph=True)
    for steps in (5, 7):
        x = torch.randn(steps, 3, 6, requires_grad=True)

        def run(f, x=x):
            torch.manual_seed(3)
            outputs = f(x)
            loss = outputs[0].sin().sum() + outputs[1] + outputs[2].square().sum()
            return outputs, torch.autograd.grad(loss, [x, *parameters], allow_unused=True)

        got = run(compiled)
        with weft.disabled():
            want = run(f)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_operations_that_turn_out_to_have_no_program_stay_outside_of_regions():
    torch.manual_seed(0)
    rnn, x = nn.GRU(3, 5), torch.randn(4, 2, 3)

    def function(x):
        y = rnn(x)[0].tanh() * 2
        z = torch.digamma(y + 3).tanh() * y.cumprod(0) + y.var(0)
        return (torch.ldexp(z, torch.tensor(2)) + y).sigmoid()

    weft.reset_stats()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend="weft")(x), function(x))
    counted = weft.stats()
    assert counted["backend"]["regions"] == 1
    assert {"aten.digamma.default", "aten.cumprod.default", "aten.ldexp.Tensor"} <= set(counted["extern"])
