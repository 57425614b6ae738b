"""Operations that PyTorch makes of others: one operation of the record where nobody asks for gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft

SHAPES = [((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 4)), ((3, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((3, 5), (2, 5, 4))]
SHAPES += [((7, 1, 3, 5), (2, 5, 4)), ((0, 5), (5, 4)), ((2, 3, 0), (0, 4))]


def pending() -> int:
    return weft.device.memory_stats()["pending"]


def attention(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, **options)


def heads(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 6, 4, generator=generator) for _ in range(3)]


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_products(left, right, transposed):
    a, b = torch.randn(left), torch.randn(right)
    if transposed and len(right) > 1:
        b = torch.randn(*right[:-2], right[-1], right[-2]).mT
    with torch.no_grad():
        for _ in range(3):
            before = pending()
            found = a.to("weft") @ b.to("weft").sin()
            assert pending() - before <= 3 or transposed  # which takes steps of its own
            expected = a @ b.sin()
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": True}], ids=str)
def test_attention(options):
    options = dict(options)
    if "attn_mask" in options:
        options["attn_mask"] = torch.rand(6, 6) > 0.3
        options["attn_mask"][:, 0] = True
    on_device = {name: each.to("weft") if isinstance(each, Tensor) else each for name, each in options.items()}
    with torch.no_grad():
        for seed in range(3):
            q, k, v = heads(seed)
            found = attention(q.to("weft"), k.to("weft"), v.to("weft"), **on_device)
            torch.testing.assert_close(found.cpu(), attention(q, k, v, **options), rtol=1e-5, atol=1e-5)


TRAINED = [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": "bool"}, {"attn_mask": "float"}, {"attn_mask": "row"}]


def mask_of(kind: str, dtype: torch.dtype) -> Tensor:
    if kind == "float":
        return torch.randn(5, 7, dtype=dtype)
    mask = torch.rand(2, 1, 5, 7) > 0.4
    if kind == "row":
        mask[0, 0, 2] = False  # attends to nothing
    return mask


@pytest.mark.parametrize("options", TRAINED, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("heads_last", [False, True])
def test_attention_that_is_trained(options, dtype, key_heads, heads_last):
    torch.manual_seed(0)
    options = options | ({"enable_gqa": True} if key_heads != 4 else {})
    if "attn_mask" in options:
        options["attn_mask"] = mask_of(options["attn_mask"], dtype)
    on_device = {name: each.to("weft") if isinstance(each, Tensor) else each for name, each in options.items()}

    def run(device, options):
        inputs = [x.to(device).detach().clone().requires_grad_() for x in plain]
        seen = [x.transpose(1, 2) if heads_last else x for x in inputs]
        out = attention(*seen, **options)
        out = out.transpose(1, 2).reshape(2, 5, 32)
        (out * out.detach().cos()).sum().backward()
        return [each.detach().cpu() for each in (out, *(x.grad for x in inputs))]

    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for _ in range(3):  # one by one, then as a program
        shapes = [(2, 4, 5, 8), (2, key_heads, 7, 8), (2, key_heads, 7, 8)]
        plain = [torch.randn(shape, dtype=dtype) for shape in shapes]
        if heads_last:
            plain = [x.transpose(1, 2).contiguous() for x in plain]
        expected = run("cpu", options)
        for found, value in zip(run("weft", on_device), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=tolerance, atol=tolerance)
    assert not [name for name in weft.stats()["extern"] if "attention" in name]


def test_attention_and_its_gradient_are_one_operation_each():
    inputs = [x.to("weft").requires_grad_() for x in heads(0)]
    flash, math = torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.MATH
    recorded = []
    for backend in (flash, math):
        weft.sync()
        before = pending()
        with torch.nn.attention.sdpa_kernel(backend):
            gradients = torch.autograd.grad(attention(*inputs).sum(), inputs)
        recorded.append(pending() - before)
        del gradients
    assert recorded[0] < recorded[1] / 2, recorded
    with torch.nn.attention.sdpa_kernel(math):  # has a second derivative
        (first,) = torch.autograd.grad(attention(*inputs).sum(), inputs[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs[1])
    assert second.shape == inputs[1].shape


def test_one_operation_a_call():
    layer = nn.Linear(5, 4).to("weft")
    x = torch.randn(2, 3, 5, device="weft")
    q, k, v = (each.to("weft") for each in heads(0))
    with torch.no_grad():
        for call in (lambda: layer(x), lambda: x @ x.mT.contiguous(), lambda: attention(q, k, v)):
            weft.sync()
            kept = call()
            alone = pending()
            weft.sync()
            assert alone <= 3, kept.shape
    y = layer(x)  # autograd sees the parts
    assert pending() > 1
    y.sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape


def test_gradients_and_tangents():
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 3, 5), torch.randn(4, 5), torch.randn(4)
    q, k, v = heads(1)

    def run(*inputs: Tensor) -> Tensor:
        x, w, b, *attended = inputs  # on the CPU attention has no forward mode
        products = functional.linear(x, w, b).sin().sum() + (x @ w.mT).cos().sum()
        return products + attention(*attended).square().sum() if attended else products

    inputs = [x, w, b, q, k, v]
    devices = [[each.to(device) for each in inputs] for device in ("cpu", "weft")]
    for differentiate in (
        lambda given: torch.autograd.grad(run(*(leaves := [g.clone().requires_grad_() for g in given])), leaves),
        lambda given: torch.func.grad(run, argnums=tuple(range(6)))(*given),
        lambda given: torch.func.jvp(run, tuple(given[:3]), tuple(g * 0 + 1 for g in given[:3])),
        lambda given: torch.func.vmap(lambda x: functional.linear(x, given[1], given[2]))(given[0])[None],
    ):
        expected, found = ([each.cpu() for each in differentiate(given)] for given in devices)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    # Only some of the inputs ask for a gradient.
    w = devices[1][1].clone().requires_grad_()
    functional.linear(devices[1][0], w).sum().backward()
    torch.testing.assert_close(w.grad.cpu(), x.sum((0, 1)).expand(4, 5))


@pytest.mark.parametrize("differs", ["factor", "scale", "both"])
def test_numbers_that_differ_from_call_to_call(differs):
    """Numbers in the parts of a composite operation are not among the record's numbers."""
    q, k, v = heads(3)
    on_device = [each.to("weft") for each in (q, k, v)]
    with torch.no_grad():
        for n in range(6):
            factor = 0.7 + n if differs != "scale" else 0.7
            scale = 0.1 + n / 8 if differs != "factor" else 0.1
            expected = (attention(q * 1.5, k, v, scale=scale) * factor + 0.3) * 2.5
            found = (attention(on_device[0] * 1.5, *on_device[1:], scale=scale) * factor + 0.3) * 2.5
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_dropout_is_drawn_at_every_call():
    q, k, v = (each.to("weft") for each in heads(2))
    with torch.no_grad():
        results = [attention(q, k, v, dropout_p=0.5).cpu() for _ in range(4)]
    assert all(not torch.equal(results[0], other) for other in results[1:])


def test_in_a_step_of_a_scan():
    w = torch.randn(4, 4)
    xs, h = torch.randn(6, 2, 4), torch.zeros(2, 4)

    def run(w: Tensor, xs: Tensor, h: Tensor) -> Tensor:
        return weft.scan(lambda h, x: ((h @ (w @ w) + x).tanh(), h), h, xs)[0]

    for factor in (1.0, 2.0, 0.5):
        with torch.no_grad():
            found = run((w * factor).to("weft"), xs.to("weft"), h.to("weft"))
        torch.testing.assert_close(found.cpu(), run(w * factor, xs, h), rtol=1e-5, atol=1e-5)


def test_errors_are_at_their_line():
    x = torch.randn(2, 5, device="weft")
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            functional.linear(x, torch.randn(4, 6, device="weft"))
        with pytest.raises(RuntimeError, match="same device"):
            x @ torch.randn(5, 4)
