"""Programs whose tensors are bf16 or f16: the same numbers as in f32, except for the rounding of results."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import weft

CELLS = {
    "GRU": """
    %hs = slice %gh {{dim = 1, start = {H2}, limit = {H3}}} : f32[B,{H}]
    %xs = slice %gx {{dim = 1, start = {H2}, limit = {H3}}} : f32[B,{H}]
    %g = add %gx, %gh : f32[B,{G}]
    %ar = slice %g {{dim = 1, start = 0, limit = {H}}} : f32[B,{H}]
    %r = sigmoid %ar : f32[B,{H}]
    %az = slice %g {{dim = 1, start = {H}, limit = {H2}}} : f32[B,{H}]
    %z = sigmoid %az : f32[B,{H}]
    %rn = mul %r, %hs : f32[B,{H}]
    %an = add %xs, %rn : f32[B,{H}]
    %n = tanh %an : f32[B,{H}]
    %d = sub %h, %n : f32[B,{H}]
    %zd = mul %z, %d : f32[B,{H}]
    %h1 = add %n, %zd : f32[B,{H}]""",
    "LSTM": """
    %g = add %gx, %gh : f32[B,{G}]
    %ai = slice %g {{dim = 1, start = 0, limit = {H}}} : f32[B,{H}]
    %i = sigmoid %ai : f32[B,{H}]
    %af = slice %g {{dim = 1, start = {H}, limit = {H2}}} : f32[B,{H}]
    %f = sigmoid %af : f32[B,{H}]
    %ag = slice %g {{dim = 1, start = {H2}, limit = {H3}}} : f32[B,{H}]
    %c_new = tanh %ag : f32[B,{H}]
    %ao = slice %g {{dim = 1, start = {H3}, limit = {H4}}} : f32[B,{H}]
    %o = sigmoid %ao : f32[B,{H}]
    %fc = mul %f, %c : f32[B,{H}]
    %ic = mul %i, %c_new : f32[B,{H}]
    %c1 = add %fc, %ic : f32[B,{H}]
    %tc = tanh %c1 : f32[B,{H}]
    %h1 = mul %o, %tc : f32[B,{H}]""",
}

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def layer(kind: str, inputs: int, hidden: int, dtype: str, weights: str | None = None) -> str:
    """The program of one layer: everything inside in f32, x, states and results in `dtype`.

    With `weights` the parameters are of that type, and rounded to `dtype` before they are used: what autocast does.
    """
    weights = weights or dtype
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    gates = 4 if kind == "LSTM" else 3
    shapes = {"w_ih": f"[{gates * hidden},{inputs}]", "w_hh": f"[{gates * hidden},{hidden}]"}
    shapes |= {name: f"[{gates * hidden}]" for name in ("b_ih", "b_hh")}
    arguments = [f"%x: {dtype}[T,B,{inputs}]", *(f"%{s}0: {dtype}[B,{hidden}]" for s in states)]
    arguments += [f"%{name}: {weights}{shape}" for name, shape in shapes.items()]
    lines = [f"  %x_f = cast %x : f32[T,B,{inputs}]", *(f"  %{s}0_f = cast %{s}0 : f32[B,{hidden}]" for s in states)]
    for name, shape in shapes.items():
        lines.append(f"  %{name}_r = cast %{name} : {dtype}{shape}")
        lines.append(f"  %{name}_f = cast %{name}_r : f32{shape}")
    carries = ", ".join(f"%{s} = %{s}0_f" for s in states)
    results = ", ".join(f"%{s}T_f" for s in states)
    lines.append(f"  {results}, %ys = scan length T carry({carries}) xs(%xt = %x_f) {{")
    for of, product, source in (("x", "ih", "xt"), ("h", "hh", "h")):
        lines.append(f"    %p{of} = matmul %{source}, %w_{product}_f {{transpose_b = true}} : f32[B,{gates * hidden}]")
        lines.append(f"    %b{of} = broadcast %b_{product}_f {{dims = [1]}} : f32[B,{gates * hidden}]")
        lines.append(f"    %g{of} = add %p{of}, %b{of} : f32[B,{gates * hidden}]")
    sizes = {f"H{i}": i * hidden for i in (2, 3, 4)}
    lines.append(CELLS[kind].format(H=hidden, G=gates * hidden, **sizes))
    lines.append(f"    %y = cast %h1 : {dtype}[B,{hidden}]")
    lines.append(f"    yield carry({', '.join(f'%{s}1' for s in states)}) ys(%y)")
    lines.append(f"  }} : {', '.join([f'f32[B,{hidden}]'] * len(states))}, {dtype}[T,B,{hidden}]")
    lines += [f"  %{s}T = cast %{s}T_f : {dtype}[B,{hidden}]" for s in states]
    lines.append(f"  return %ys, {', '.join(f'%{s}T' for s in states)}")
    text = "\n".join([f"program @{kind.lower()}({', '.join(arguments)}) {{", *lines, "}\n"])
    return re.sub(r"\n\n+", "\n", text)


def make_inputs(kind: str, sizes: tuple[int, int, int, int], dtype: torch.dtype) -> tuple[nn.Module, list[Tensor]]:
    """A module of that type, and x, states and parameters, all of them leaves that want gradients."""
    steps, batch, inputs, hidden = sizes
    module = getattr(nn, kind)(inputs, hidden, dtype=dtype)
    states = [torch.randn(batch, hidden, dtype=dtype) for _ in range(2 if kind == "LSTM" else 1)]
    leaves = [torch.randn(steps, batch, inputs, dtype=dtype), *states]
    return module, [leaf.requires_grad_() for leaf in leaves] + list(module.parameters())


def forward_backward(run, leaves: list[Tensor], dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs, and gradients for cotangents that are numbers of `dtype` whatever the outputs' type."""
    outputs = list(run(leaves))
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(y.shape, generator=generator).to(dtype).to(y.dtype) for y in outputs]
    return [y.detach() for y in outputs], list(torch.autograd.grad(outputs, leaves, cotangents))


def eager(module: nn.Module):
    def run(leaves: list[Tensor]) -> list[Tensor]:
        states = [state[None] for state in leaves[1:-4]]
        with weft.disabled():
            y, last = module(leaves[0], tuple(states) if len(states) == 2 else states[0])
        return [y, *(state[0] for state in (last if isinstance(last, tuple) else [last]))]

    return run


def assert_rounded(found: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    """Checks that each number is the f32 result rounded to its type, or the neighbour where f32 was summed in another
    order."""
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == dtype
        step = torch.finfo(dtype).eps
        worst = (a.float() - b).abs() - step * b.abs()
        assert worst.max() <= 4e-5 * b.abs().max().clamp(min=1), worst.max()


SIZES = [(7, 5, 6, 9), (1, 1, 16, 16), (12, 33, 40, 48), (3, 2, 1, 3)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_layer_rounds_only_what_comes_out(kind, dtype, sizes):
    module, leaves = make_inputs(kind, sizes, TYPES[dtype])
    wide = [leaf.detach().float().requires_grad_() for leaf in leaves]
    text, exact = (layer(kind, *sizes[2:], each) for each in (dtype, "f32"))
    found = forward_backward(lambda inputs: weft.call(text, inputs), leaves, TYPES[dtype])
    assert weft.stats()["fallbacks"] == {}
    wanted = forward_backward(lambda inputs: weft.call(exact, inputs), wide, TYPES[dtype])
    assert_rounded(found[0], wanted[0], TYPES[dtype])
    if dtype == "f16":
        assert_rounded(found[1], wanted[1], TYPES[dtype])
        return
    # Products that end in a bf16 gradient take both factors as bf16, as PyTorch's do.
    pytorchs = forward_backward(eager(module), leaves, torch.bfloat16)
    for a, b, c in zip(found[1], wanted[1], pytorchs[1], strict=True):
        assert a.dtype == torch.bfloat16
        rounding = torch.finfo(torch.bfloat16).eps * b.abs()
        assert (a.float() - b).norm() <= max((c.float() - b).norm(), rounding.norm())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_layer_is_pytorchs(kind, dtype, sizes):
    """PyTorch's kernels round every intermediate result to the type, so the results are some ulps of the type apart."""
    module, leaves = make_inputs(kind, sizes, TYPES[dtype])
    text = layer(kind, *sizes[2:], dtype)
    found = forward_backward(lambda inputs: weft.call(text, inputs), leaves, TYPES[dtype])
    wanted = forward_backward(eager(module), leaves, TYPES[dtype])
    ulps = 40 * torch.finfo(TYPES[dtype]).eps
    for a, b in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.float(), b.float(), rtol=0, atol=ulps * max(1, b.float().abs().max().item()))


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_f32_weights_rounded_on_the_way(kind):
    """The form that autocast takes: the rounding of a parameter stays, though it goes to bf16 and back."""
    sizes = (7, 5, 6, 9)
    _, leaves = make_inputs(kind, sizes, torch.bfloat16)
    parameters = [torch.randn(leaf.shape).mul_(0.3).requires_grad_() for leaf in leaves[-4:]]
    mixed = [*leaves[:-4], *parameters]
    rounded = [*leaves[:-4], *(p.detach().bfloat16().requires_grad_() for p in parameters)]
    texts = layer(kind, *sizes[2:], "bf16", "f32"), layer(kind, *sizes[2:], "bf16")
    found = forward_backward(lambda inputs: weft.call(texts[0], inputs), mixed, torch.bfloat16)
    wanted = forward_backward(lambda inputs: weft.call(texts[1], inputs), rounded, torch.bfloat16)
    assert weft.stats()["fallbacks"] == {}
    for a, b in zip(found[0], wanted[0], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(found[1], wanted[1], strict=True):
        assert torch.equal(a.bfloat16(), b)
    assert all(p.grad_fn is None and g.dtype == p.dtype for p, g in zip(mixed, found[1], strict=True))


ROUNDED_STATE = """
program @rnn(%x: bf16[T,B,{I}], %h0: bf16[B,{H}], %w: bf16[{H},{I}], %u: bf16[{H},{H}]) {{
  %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {{
    %xf = cast %xt : f32[B,{I}]
    %wf = cast %w : f32[{H},{I}]
    %px = matmul %xf, %wf {{transpose_b = true}} : f32[B,{H}]
    %hf = cast %h : f32[B,{H}]
    %uf = cast %u : f32[{H},{H}]
    %ph = matmul %hf, %uf {{transpose_b = true}} : f32[B,{H}]
    %p = add %px, %ph : f32[B,{H}]
    %n = tanh %p : f32[B,{H}]
    %y = cast %n : bf16[B,{H}]
    yield carry(%y) ys(%y)
  }} : bf16[B,{H}], bf16[T,B,{H}]
  return %ys, %hT
}}
"""


@pytest.mark.parametrize("sizes", SIZES)
def test_bf16_on_both_sides_of_a_product(sizes):
    """A bf16 carry, so that both products of the step multiply bf16 numbers. Each step is compared with PyTorch's step
    in f32."""
    steps, batch, inputs, hidden = sizes
    x, h, w, u = (
        torch.randn(shape).bfloat16()
        for shape in ((steps, batch, inputs), (batch, hidden), (hidden, inputs), (hidden, hidden))
    )
    found, last = weft.call(ROUNDED_STATE.format(I=inputs, H=hidden), [x, h, w / 4, u / 4])
    assert weft.stats()["fallbacks"] == {}
    for t in range(steps):
        exact = torch.tanh(x[t].float() @ (w / 4).float().T + h.float() @ (u / 4).float().T)
        assert_rounded([found[t]], [exact], torch.bfloat16)
        h = found[t]
    assert torch.equal(last, found[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ops_on_halves_round_once(dtype):
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    text = f"""
program @p(%x: {name}[N,37], %y: {name}[N,37], %w: {name}[37,11]) {{
  %s = add %x, %y : {name}[N,37]
  %p = mul %s, %y : {name}[N,37]
  %q = div %p, %x : {name}[N,37]
  %m = matmul %q, %w : {name}[N,11]
  %o = outer %q, %y : {name}[37,37]
  %l = reduce_sum %q {{dims = [1]}} : {name}[N]
  %c = reduce_sum %q {{dims = [0]}} : {name}[37]
  return %q, %m, %o, %l, %c
}}
"""
    x, y, w = (torch.randn(shape).to(dtype) for shape in ((50, 37), (50, 37), (37, 11)))
    q, *sums = weft.call(text, [x, y, w])
    assert weft.stats()["fallbacks"] == {}
    assert torch.equal(q, (x + y) * y / x)
    f = q.double()
    exact = [f @ w.double(), f.T @ y.double(), f.sum(1), f.sum(0)]
    for a, b in zip(sums, exact, strict=True):
        limit = torch.finfo(dtype).eps / 2 * b.abs() + 1e-6 * b.abs().max()
        assert ((a.double() - b).abs() <= limit).all()


@pytest.mark.parametrize("sizes", [(1, 1, 7, 5), (1, 40, 16, 33), (6, 3, 1, 17)])
def test_f16_weights_of_a_step_are_f32_in_products(sizes):
    """A user's step casts f16 weights to f32. The results have the bits that f32 weights give, and the gradients are
    rounded once."""
    steps, batch, inputs, hidden = sizes
    x, h = torch.randn(steps, batch, inputs), torch.randn(batch, hidden)
    halves = [torch.randn(shape).div(4).half() for shape in ((hidden, inputs), (hidden, hidden))]

    def run(weights: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        leaves = [w.clone().requires_grad_() for w in weights]

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(x @ leaves[0].float().T + h @ leaves[1].float())
            return h, h

        last, ys = weft.scan(step, h, x)
        return [last, ys], list(torch.autograd.grad(ys.square().sum(), leaves))

    (results, gradients), (wanted, exact) = run(halves), run([w.float() for w in halves])
    assert weft.stats()["fallbacks"] == {}
    assert all(torch.equal(a, b) for a, b in zip(results, wanted, strict=True))
    assert all(torch.equal(a, b.half()) for a, b in zip(gradients, exact, strict=True))


def test_denormals_and_infinities_stay(run_warm_python):
    """Every bf16 and f16 number, through f32 and back, on every instruction set."""
    script = """
import torch, weft
for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    steps = f"%a = cast %x : f32[N] %b = neg %a : f32[N] %y = cast %b : {name}[N] return %a, %y"
    text = f"program @p(%x: {name}[N]) {{ {steps} }}"
    wide, back = weft.call(text, [x])
    assert torch.equal(wide.nan_to_num(7), x.float().nan_to_num(7)) and torch.equal(wide.isnan(), x.isnan())
    assert torch.equal(back.nan_to_num(7), (-x).nan_to_num(7)) and torch.equal(back.isnan(), x.isnan())
assert weft.stats()["fallbacks"] == {}
print("same")
"""
    for isa in ("generic", "avx2", ""):
        assert run_warm_python(script, WEFT_ISA=isa) == "same\n"
