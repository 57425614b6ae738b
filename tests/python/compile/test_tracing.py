"""The modules under torch.export, AOTAutograd, Dynamo, Inductor and compiled autograd."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from oracles import assert_leaves_close
from rnn_cases import KINDS, make
from torch._dynamo.utils import counters

import weft


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    counters.clear()


def train_step(module, f, x):
    module.zero_grad()
    x = x.detach().requires_grad_()
    y = f(x)[0]
    y.pow(2).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in module.parameters())]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_nine_lengths_give_two_graphs(kind, dynamic):
    module = make(kind, layers=2).module
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for steps in (8, 7, 9, 12, 17, 33, 6, 50, 11):  # none is the input size: equal sizes share a symbol
        x = torch.randn(steps, 3, 5)
        ours = train_step(module, compiled, x)
        with weft.disabled():
            assert_leaves_close(ours, train_step(module, module, x))
    assert counters["stats"]["unique_graphs"] == (1 if dynamic else 2)


@pytest.mark.parametrize("kind", KINDS)
def test_aot_eager_trains(kind):
    case = make(kind, layers=2, batch_first=True)
    compiled = torch.compile(case.module, backend="aot_eager", fullgraph=True)
    ours = train_step(case.module, compiled, case.x)
    with weft.disabled():
        assert_leaves_close(ours, train_step(case.module, case.module, case.x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", ["GRU", "RNN_RELU"])
def test_nine_lengths_without_gradients(kind, mode):
    module = make(kind, layers=2).module
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    with mode():
        for steps in (8, 7, 9, 12, 17, 33, 6, 50, 11):
            x = torch.randn(steps, 3, 5)
            assert_leaves_close([compiled(x)[0]], [module(x)[0]])
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.parametrize("what", ["forward mode", "a single step"])
def test_what_is_not_covered_traces_as_pytorch_traces_it(what):
    from torch.fx.experimental.proxy_tensor import make_fx

    if what == "a single step":  # a compiler must see the operations in it
        module, x = torch.nn.GRUCell(5, 7), torch.randn(3, 5)
        function = module
    else:
        module, x = torch.nn.GRU(5, 7), torch.randn(4, 3, 5)
        function = lambda x: torch.func.jvp(lambda x: module(x)[0], (x,), (x,))  # noqa: E731

    def trace():
        return str(make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(x).graph)

    with weft.disabled():
        theirs = trace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert trace() == theirs


def test_batch_may_change_too():
    module = torch.nn.GRU(5, 7)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for steps, batch in ((4, 3), (5, 6), (9, 2), (7, 11)):
        x = torch.randn(steps, batch, 5)
        assert_leaves_close([compiled(x)[0]], [module(x)[0]])
    assert counters["stats"]["unique_graphs"] <= 2


def test_the_trace_holds_one_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    module = torch.nn.GRU(5, 7)
    graph = make_fx(lambda x: module(x)[0], tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        torch.randn(4, 3, 5)
    ).graph
    calls = [node.target for node in graph.nodes if node.op == "call_function" and "weft" in str(node.target)]
    assert calls == [torch.ops.weft.call.default]


@pytest.mark.parametrize("decomposed", [False, True])
def test_export_with_dynamic_length_saved_and_loaded(decomposed):
    module = torch.nn.LSTM(5, 7, 2, batch_first=True).eval()
    steps = torch.export.Dim("steps", min=2, max=1000)
    program = torch.export.export(module, (torch.randn(3, 6, 5),), dynamic_shapes=({1: steps},))
    if decomposed:
        program = program.run_decompositions()
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    weft.reset_stats()
    for length in (2, 6, 31):
        x = torch.randn(3, length, 5)
        with weft.disabled():
            theirs = module(x)[0]
        assert_leaves_close([loaded(x)[0]], [theirs])
    assert weft.stats()["calls"] == 3


def test_export_in_training_form():
    module = torch.nn.GRU(5, 7).eval()
    steps = torch.export.Dim("steps", min=2, max=1000)
    loaded = torch.export.export(module, (torch.randn(6, 3, 5),), dynamic_shapes=({0: steps},)).module()
    x = torch.randn(11, 3, 5)
    assert_leaves_close([loaded(x)[0]], [module(x)[0]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_inductor_trains_one_graph(kind):
    torch.manual_seed(0)
    layers = make(kind, input_size=8, hidden=16).module

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(20, 8)
            self.rnn = layers
            self.head = torch.nn.Linear(16, 20)

        def forward(self, tokens):
            return self.head(self.rnn(self.embedding(tokens))[0])

    ours, tokens = Model(), torch.randint(20, (9, 4))
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, fullgraph=True)
    for _, f in ((ours, compiled), (theirs, theirs)):
        for length in (9, 7, 5):
            logits = f(tokens[:length])
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:length].flatten()).backward()
    assert_leaves_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    assert counters["stats"]["unique_graphs"] <= 2


@pytest.mark.slow
def test_compiled_autograd():
    module = torch.nn.GRU(5, 7)
    expected = {}
    for steps in (4, 6, 9):
        x = torch.randn(steps, 3, 5)
        expected[steps] = (x, train_step(module, module, x))
    for steps, (x, want) in expected.items():
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager", dynamic=steps > 4)):
            assert_leaves_close(train_step(module, module, x), want)
    # Dynamo's own trace of the forward, with its backward through compiled autograd too.
    with torch._dynamo.config.patch(compiled_autograd=True):
        x, want = expected[4]
        assert_leaves_close(train_step(module, torch.compile(module, backend="aot_eager"), x), want)


def test_tracing_while_disabled_leaves_the_modules_to_pytorch():
    from torch.fx.experimental.proxy_tensor import make_fx

    module = torch.nn.GRU(5, 7)
    with weft.disabled():
        graph = make_fx(lambda x: module(x)[0])(torch.randn(4, 3, 5)).graph
    assert "weft" not in str(graph)
    assert "weft" in str(make_fx(lambda x: module(x)[0])(torch.randn(4, 3, 5)).graph)


LATE = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
import torch._dynamo
torch._dynamo.config.cache_size_limit
module, x = torch.nn.GRU(5, 7), torch.randn(4, 3, 5)
trace = lambda: str(make_fx(lambda x: module(x)[0], tracing_mode="symbolic", _allow_non_fake_inputs=True)(x).graph)
assert "weft" not in trace()
import weft
assert "weft" in trace()
assert torch._dynamo.config.allow_rnn
torch.compile(module, backend="aot_eager", fullgraph=True)(x)
import threading
def other_thread():
    torch._dynamo.reset()
    torch.compile(module, backend="aot_eager", fullgraph=True)(x)
    print("compiled in a thread", torch.compiler.config.cache_key_tag)
thread = threading.Thread(target=other_thread)
thread.start()
thread.join()
weft.disable()
assert "weft" not in trace() and not torch._dynamo.config.allow_rnn
assert "weft" not in torch.compiler.config.cache_key_tag
weft.enable()
assert "weft" in trace() and torch._dynamo.config.allow_rnn and "weft" in torch.compiler.config.cache_key_tag
"""


def test_importing_late_and_switching(run_python):
    assert "compiled in a thread weft-" in run_python(LATE)


SHARED_CACHE = """
import os, sys, torch
import torch._dynamo, torch._inductor.compile_fx
from torch._dynamo.utils import counters

def train(having):
    if having:
        import weft
    torch._dynamo.config.allow_rnn = True
    torch.manual_seed(0)
    module, x = torch.nn.GRU(4, 8), torch.randn(2, 2, 4)  # PyTorch's own is unrolled
    torch.compile(module)(x)[0].sum().backward()
    hits = counters["aot_autograd"].get("autograd_cache_hit", 0), counters["inductor"].get("fxgraph_cache_hit", 0)
    print(*hits, weft.stats()["calls"] if having else "without", flush=True)

for having in (False, True, True, False):
    child = os.fork()
    if child == 0:
        train(having)
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "weft" not in sys.modules
"""


@pytest.mark.slow
def test_a_shared_compile_cache_never_mixes(run_python, tmp_path):
    """Each process finds on the disk what its own kind left there, and only that."""
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    printed = [line.rsplit(" ", 1) for line in run_python(SHARED_CACHE, **environment).splitlines()]
    hits, calls = zip(*printed, strict=True)
    assert hits[:2] == ("0 0", "0 0"), "a fresh kind of run hit the other's entries"
    assert "0 0" not in hits[2:]
    assert calls == ("without", "2", "2", "without"), "not both directions ran on weft"
