"""torch.autocast on device weft: the dtypes of PyTorch's lists, and the bits that explicit casts give."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from autocast_cases import (
    CASES,
    HALVES,
    LISTS,
    REFUSED,
    ROOT,
    close,
    equal,
    explicit,
    explicit_on_cpu,
    ids,
    tables,
    values,
)
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import weft

# ---- the lists


def test_every_operator_of_pytorchs_list_for_cuda_is_in_wefts():
    cuda, ours = tables.registered("AutocastCUDA"), tables.registered("AutocastPrivateUse1")
    of_cuda_builds = {"_cudnn_rnn"} if torch.version.cuda else set()
    assert cuda - ours == {"cudnn_convolution", "cudnn_convolution_transpose"} | of_cuda_builds
    layers = {f"{name}.{form}" for name in ("gru", "lstm", "rnn_tanh", "rnn_relu") for form in ("input", "data")}
    assert ours - cuda == layers
    assert set(LISTS) <= ours
    tried = {case.operation for case in CASES}
    on_gpus_only = {"_scaled_dot_product_flash_attention", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"}
    assert {name.split(".")[0] for name in LISTS} - tried == on_gpus_only


@pytest.mark.parametrize("case", [case for case in CASES if case.op != REFUSED], ids=ids)
def test_a_form_of_a_list(case):
    weft.sync()
    for _ in range(3):  # the first time op by op, then compiled
        want, got = values(explicit(case, "weft")), values(tables.run(case, "weft"))
    equal(got, want)
    assert tables.result_dtypes(got) == tables.outcome_for_cuda(case, LISTS).removesuffix(tables.BY_LIST)
    for one, other in zip(got, explicit_on_cpu(case), strict=True):
        if isinstance(one, torch.Tensor):
            close(one, other)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("equation, shapes", tables.EINSUMS, ids=[equation for equation, _ in tables.EINSUMS])
def test_einsum_computes_in_the_lower_dtype(equation, shapes, dtype):
    operands = [torch.randn(shape, device="weft", requires_grad=True) for shape in shapes]
    lowered = [operand.detach().to(dtype).requires_grad_() for operand in operands]
    with torch.autocast("weft", dtype=dtype):
        got = torch.einsum(equation, *operands)
    want = torch.einsum(equation, *lowered)
    assert got.dtype == dtype
    close(got.detach().cpu(), want.detach().cpu())
    on_cpu = torch.einsum(equation, *[operand.detach().cpu().to(dtype) for operand in operands])
    close(got.detach().cpu(), on_cpu)
    got.sum().backward()
    want.sum().backward()
    for operand, low in zip(operands, lowered, strict=True):
        assert operand.grad.dtype == torch.float32
        torch.testing.assert_close(operand.grad.cpu(), low.grad.cpu().float(), rtol=2e-2, atol=2e-2)


def gradients(case, call):
    """Gradients of the sum of squares of the results; each tensor given is a leaf on weft."""
    leaves = []

    def leaf(tensor):
        made = tensor.to("weft").requires_grad_(tensor.is_floating_point())
        leaves.extend([made] if made.requires_grad else [])
        return made

    args, kwargs = case.on(leaf)
    result = call(dataclasses.replace(case, args=args, kwargs=kwargs))
    outputs = [out for out in pytree.tree_leaves(result) if isinstance(out, torch.Tensor) and out.requires_grad]
    if not outputs:
        return []
    found = torch.autograd.grad(sum(out.float().square().sum() for out in outputs), leaves, allow_unused=True)
    return [gradient.cpu() for gradient in found if gradient is not None]


WITHOUT_DERIVATIVE = (REFUSED, "_addmm_activation", "_native_multi_head_attention")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.dtype == torch.bfloat16 and case.op not in WITHOUT_DERIVATIVE], ids=ids
)
def test_gradients_of_a_form(case):
    def under_autocast(case):
        with tables.autocast("weft", case.dtype):
            return case.function()(*case.args, **case.kwargs)

    weft.sync()
    for _ in range(3):
        got, want = gradients(case, under_autocast), gradients(case, lambda case: explicit(case, "weft"))
    equal(got, want)


def test_einsum_of_other_operands():
    a, b = torch.randn(3, 4, device="weft"), torch.randn(4, 5, device="weft")
    with torch.autocast("weft", dtype=torch.bfloat16):
        by_numbers = torch.einsum(a, [0, 1], b, [1, 2], [2, 0])
        mixed = torch.einsum("ij,jk", a.bfloat16(), b)
        broadcast = torch.einsum("ij,jk", a[:, :1], b)
        doubles = torch.einsum("ij,jk", a.double(), b.double())
        whole = torch.einsum("ij,jk", a.long(), b.long())
        in_a_list = torch.einsum(" i j, j k -> k i ", [a, b])
        nothing = torch.einsum("ij,jk", a[:0], b)
    low_a, low_b = a.bfloat16(), b.bfloat16()
    equal(by_numbers, torch.einsum("ij,jk->ki", low_a, low_b))
    equal(in_a_list, by_numbers)
    equal(mixed, torch.einsum("ij,jk", low_a, low_b))
    equal(broadcast, torch.einsum("ij,jk", low_a[:, :1], low_b))
    equal(doubles, torch.einsum("ij,jk", a.double(), b.double()))
    equal(whole, torch.einsum("ij,jk", a.long(), b.long()))
    assert (nothing.dtype, nothing.shape) == (torch.bfloat16, (0, 5))
    with torch.autocast("weft", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="einsum"):
        torch.einsum("ij,jk", a, a)


@pytest.mark.parametrize("dtype", HALVES)
def test_binary_cross_entropy_is_refused(dtype):
    x, y = torch.rand(4, device="weft"), torch.rand(4, device="weft")
    with torch.autocast("weft", dtype=dtype):
        with pytest.raises(RuntimeError, match=r"binary_cross_entropy and torch\.nn.BCELoss are unsafe to autocast"):
            functional.binary_cross_entropy(x, y)
        assert functional.binary_cross_entropy_with_logits(x, y).dtype == torch.float32
        on_cpu = functional.binary_cross_entropy(x.cpu(), y.cpu())
        with torch.autocast("weft", enabled=False):
            torch.testing.assert_close(functional.binary_cross_entropy(x, y).cpu(), on_cpu)


def test_doubles_integers_and_what_is_changed_in_place_stay_as_they_are():
    a, n = torch.randn(3, 3, device="weft", dtype=torch.float64), torch.ones(3, 3, device="weft", dtype=torch.int64)
    x = torch.randn(3, 3, device="weft")
    with torch.autocast("weft", dtype=torch.bfloat16):
        assert torch.mm(a, a).dtype == torch.float64
        assert torch.exp(a).dtype == torch.float64
        assert n.sum().dtype == torch.int64
        assert n.softmax(0, dtype=torch.float64).dtype == torch.float64
        assert x.clone().addmm_(x, x).dtype == torch.float32
        assert torch.mm(x, x, out=torch.empty(3, 3, device="weft")).dtype == torch.float32
        with pytest.raises(RuntimeError, match=r"same dtype|expected"):
            torch.mm(a, x).cpu()


# ---- recurrent modules

LAYERS = {
    "gru": lambda: nn.GRU(4, 5),
    "lstm": lambda: nn.LSTM(4, 5),
    "tanh": lambda: nn.RNN(4, 5),
    "relu": lambda: nn.RNN(4, 5, nonlinearity="relu"),
    "gru of two layers, both ways": lambda: nn.GRU(4, 5, num_layers=2, bidirectional=True),
    "lstm, batch first, without biases": lambda: nn.LSTM(4, 5, batch_first=True, bias=False),
    "lstm with a projection": lambda: nn.LSTM(4, 5, proj_size=3),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_recurrent_layer_gives_the_lower_dtype(layer, dtype):
    torch.manual_seed(0)
    module, x = layer().to("weft"), torch.randn(3, 2, 4, device="weft")
    lowered = layer().to("weft", dtype)
    lowered.load_state_dict(module.state_dict())
    with torch.autocast("weft", dtype=dtype):
        got = module(x)
    want = lowered(x.to(dtype))
    assert {leaf.dtype for leaf in pytree.tree_leaves(got)} == {dtype}
    equal(got, want)
    for one, other in zip(values(got), values(module.cpu()(x.cpu())), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=5e-2, atol=5e-2)


def test_a_packed_sequence_and_a_gradient():
    module = nn.GRU(4, 5).to("weft")
    x = torch.randn(3, 2, 4, device="weft", requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))
    with torch.autocast("weft", dtype=torch.bfloat16):
        y, h = module(packed)
    assert y.data.dtype == h.dtype == torch.bfloat16
    y.data.float().square().sum().backward()
    grads = {name: parameter.grad.cpu() for name, parameter in module.named_parameters()}
    reference = nn.GRU(4, 5)
    reference.load_state_dict({name: value.cpu() for name, value in module.state_dict().items()})
    on_cpu = x.detach().cpu().requires_grad_()
    z, _ = reference(nn.utils.rnn.pack_padded_sequence(on_cpu, torch.tensor([3, 2])))
    z.data.square().sum().backward()
    assert x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad.cpu(), on_cpu.grad, rtol=5e-2, atol=5e-2)
    for name, parameter in reference.named_parameters():
        assert grads[name].dtype == torch.float32
        torch.testing.assert_close(grads[name], parameter.grad, rtol=5e-2, atol=8e-2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_a_cell_gives_the_lower_dtype(cell, dtype):
    module, x = cell(4, 5).to("weft"), torch.randn(2, 4, device="weft")
    with torch.autocast("weft", dtype=dtype):
        got = module(x)
        got = module(x, got)
    assert {leaf.dtype for leaf in pytree.tree_leaves(got)} == {dtype}
    reference = module.cpu()
    want = reference(x.cpu(), reference(x.cpu()))
    for one, other in zip(values(got), values(want), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=2e-2)


def fused(kind, tensors):
    """h' of PyTorch's fused cell, from [B,I] and [B,H], with the parameters of nn.LSTMCell or nn.GRUCell."""
    x, hidden, w_ih, w_hh, b_ih, b_hh = tensors
    igates, hgates = x @ w_ih.t(), hidden @ w_hh.t()
    if kind == "lstm":
        return torch.ops.aten._thnn_fused_lstm_cell(igates, hgates, hidden * 2, b_ih, b_hh)[:2]
    return torch.ops.aten._thnn_fused_gru_cell(igates, hgates, hidden, b_ih, b_hh)[:1]


@pytest.mark.parametrize("kind, module", [("lstm", nn.LSTMCell), ("gru", nn.GRUCell)])
def test_pytorchs_fused_cells(kind, module):
    cell, x, hidden = module(4, 5), torch.randn(2, 4), torch.randn(2, 5)
    given = [x.requires_grad_(), hidden.requires_grad_(), *cell.parameters()]
    want = cell(x, (hidden, hidden * 2) if kind == "lstm" else hidden)
    want = list(want) if kind == "lstm" else [want]
    on_device = [tensor.detach().to("weft").requires_grad_() for tensor in given]
    got = fused(kind, on_device)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach())
    gradients = torch.autograd.grad(sum(one.square().sum() for one in got), on_device)
    for one, other in zip(gradients, torch.autograd.grad(sum(one.square().sum() for one in want), given), strict=True):
        torch.testing.assert_close(one.cpu(), other)
    with torch.inference_mode():
        equal(fused(kind, [tensor.detach().to("weft") for tensor in given]), [one.detach() for one in got])
    with torch.autocast("weft", torch.bfloat16):
        low = fused(kind, on_device)
    assert {one.dtype for one in low} == {torch.bfloat16}
    for one, other in zip(low, want, strict=True):
        torch.testing.assert_close(one.detach().cpu().float(), other.detach(), rtol=5e-2, atol=5e-2)


# ---- regions


def test_regions_nest():
    a = torch.randn(3, 3, device="weft")
    with torch.autocast("weft", dtype=torch.bfloat16):
        low = a @ a
        with torch.autocast("weft", enabled=False):
            assert (a @ a).dtype == torch.float32
            assert (a @ low.float()).dtype == torch.float32
            with torch.autocast("weft", dtype=torch.float16):
                assert (a @ a).dtype == torch.float16
            assert (a @ a).dtype == torch.float32
        assert (a @ low).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32

    @torch.autocast("weft", dtype=torch.bfloat16)
    def decorated(x):
        return x @ x

    assert decorated(a).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="stop"), torch.autocast("weft", dtype=torch.bfloat16):
        raise ValueError("stop")
    assert not torch.is_autocast_enabled("weft")
    assert torch.amp.is_autocast_available("weft")


def test_each_device_has_its_own_autocast():
    a, b = torch.randn(3, 3), torch.randn(3, 3, device="weft")
    with torch.autocast("weft", dtype=torch.bfloat16):
        assert not torch.is_autocast_enabled("cpu")
        assert (a @ a).dtype == torch.float32
        assert a.half().sum().dtype == torch.float16
        assert b.half().sum().dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not torch.is_autocast_enabled("weft")
        assert (a @ a).dtype == torch.bfloat16
        assert (b @ b).dtype == torch.float32
        assert nn.GRU(3, 3).to("weft")(b[None])[0].dtype == torch.float32
        with torch.autocast("weft", dtype=torch.float16):
            assert (a @ a).dtype == torch.bfloat16
            assert (b @ b).dtype == torch.float16
        assert (b @ b).dtype == torch.float32
    assert (a @ a).dtype == torch.float32


def test_what_runs_later_runs_as_it_was_recorded():
    a = torch.randn(3, 3, device="weft")
    pending = a @ a
    with torch.autocast("weft", dtype=torch.bfloat16):
        low = a @ a
        torch.testing.assert_close(pending.cpu(), a.cpu() @ a.cpu())
    torch.testing.assert_close(low.cpu(), a.cpu().bfloat16() @ a.cpu().bfloat16())


def test_a_step_of_a_scan_on_the_cpu_is_left_alone():
    x = torch.rand(3, 4)

    def step(h, x):
        h = (h @ torch.eye(4)) * 0.5 + x * 0.25
        return h, functional.binary_cross_entropy(h, x) + h.norm() + h.half().exp().sum() + h.half().softmax(0).sum()

    want = weft.scan(step, torch.zeros(4), x)
    with torch.autocast("weft", dtype=torch.bfloat16):
        got = weft.scan(step, torch.zeros(4), x)
    equal(got, want)


def test_another_thread_has_no_autocast():
    a, found = torch.randn(3, 3, device="weft"), []
    with torch.autocast("weft", dtype=torch.bfloat16):
        thread = threading.Thread(target=lambda: found.append((a @ a).dtype))
        thread.start()
        thread.join()
    assert found == [torch.float32]


def test_an_unsupported_dtype_is_warned_about():
    a = torch.randn(3, 3, device="weft")
    with pytest.warns(UserWarning, match="In weft autocast, but the target dtype is not supported. Disabling autocast"):
        region = torch.autocast("weft", dtype=torch.float64)
    with region:
        assert (a @ a).dtype == torch.float32


# ---- the page


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page has the operators of PyTorch 2.13")
def test_the_tables_of_the_page_are_what_is_so():
    text = (ROOT / "docs" / "autocast.md").read_text()
    for name, made in tables.sections().items():
        written = text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->\n")[0]
        assert written == made, "run scripts/autocast_table.py --write"
