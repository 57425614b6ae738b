"""Training with torch.amp on device weft: casted weights, custom functions, GradScaler."""

from __future__ import annotations

import warnings

import pytest
import torch
from autocast_cases import close, equal, values
from torch import nn
from torch.amp import GradScaler, custom_bwd, custom_fwd
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import weft

# ---- casted weights


class Casts(TorchDispatchMode):
    """Counts casts, seen below autocast."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes, self.count = sizes, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default and args[0].shape == self.sizes:
            self.count += 1
        return func(*args, **(kwargs or {}))


def casts_of_weight(device, cache_enabled=True):
    layer, x = nn.Linear(3, 4).to(device), torch.randn(2, 3, device=device)
    counts = []
    for _ in range(2):
        with Casts(layer.weight.shape) as casts, torch.autocast(device, torch.bfloat16, cache_enabled=cache_enabled):
            layer(x).sum() + layer(x).sum()
            with torch.autocast(device, torch.bfloat16, cache_enabled=cache_enabled):
                layer(x)
        counts.append(casts.count)
    with torch.no_grad(), Casts(layer.weight.shape) as casts, torch.autocast(device, torch.bfloat16):
        functional.linear(x, layer.weight.detach())
        functional.linear(x, layer.weight.detach())
    return [*counts, casts.count]


def test_a_weight_is_cast_once_in_a_region():
    assert casts_of_weight("weft") == [1, 1, 2] == casts_of_weight("cpu")
    assert casts_of_weight("weft", cache_enabled=False) == [3, 3, 2] == casts_of_weight("cpu", cache_enabled=False)


def test_the_next_region_sees_the_next_weights():
    layer, x = nn.Linear(3, 4).to("weft"), torch.randn(2, 3, device="weft")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(4):
        with torch.autocast("weft", torch.bfloat16):
            y = layer(x)
        weight, bias = (parameter.detach().cpu().bfloat16() for parameter in layer.parameters())
        close(y.detach().cpu(), functional.linear(x.cpu().bfloat16(), weight, bias))
        y.float().square().mean().backward()
        assert layer.weight.grad.dtype == torch.float32
        optimizer.step()
        optimizer.zero_grad()


class Product(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="weft")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="weft")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        Product.seen = torch.is_autocast_enabled("weft"), torch.get_autocast_dtype("weft")
        return grad @ b.t(), a.t() @ grad


class InFloat32(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="weft", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        InFloat32.seen = [a.dtype, b.dtype, torch.is_autocast_enabled("weft")]
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="weft")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        InFloat32.seen.append(torch.is_autocast_enabled("weft"))
        return grad @ b.t(), a.t() @ grad


def test_custom_functions():
    a, b = (torch.randn(3, 3, device="weft", requires_grad=True) for _ in range(2))
    with torch.autocast("weft", dtype=torch.bfloat16):
        y = Product.apply(a, b)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert Product.seen == (True, torch.bfloat16)
    assert a.grad.dtype == b.grad.dtype == torch.float32
    torch.testing.assert_close(a.grad.cpu(), torch.ones(3, 3) @ b.detach().cpu().t(), rtol=2e-2, atol=2e-2)
    with torch.autocast("weft", dtype=torch.bfloat16):
        y = InFloat32.apply(a.bfloat16(), b)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert InFloat32.seen == [torch.float32, torch.float32, False, False]


# ---- what autocast leads to


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_that_a_cpu_kernel_lacks(dtype):
    x = torch.randn(2, 3, 4, 4, 4)
    got = functional.avg_pool3d(x.to("weft", dtype), 2)
    want = functional.avg_pool3d(x.to(dtype).float(), 2).to(dtype)
    equal(got, want)
    a = torch.randn(5, 3)
    equal(torch.pdist(a.to("weft", dtype)), torch.pdist(a.to(dtype).float()).to(dtype))
    with pytest.raises(RuntimeError, match=r"Low precision dtypes not supported|not implemented for"):
        torch.linalg.inv(torch.eye(3, device="weft", dtype=dtype)).cpu()


def test_views_in_inference_mode():
    x = torch.randn(4, 4, device="weft", requires_grad=True)
    with torch.inference_mode():
        y = x.detach().view(2, 8).t()[0]
        z = x + 1
        assert not y.is_inference()
        assert z.is_inference()
        assert z.view(16).is_inference()
        torch.testing.assert_close(y.cpu(), x.cpu().view(2, 8).t()[0])


# ---- GradScaler


def test_the_operations_of_grad_scaler():
    grads = [torch.randn(4), torch.randn(2, 3).bfloat16(), torch.randn(()).double(), torch.randn(0)]
    for bad in (None, float("inf"), float("-inf"), float("nan")):
        if bad is not None:
            grads[1][0, 0] = bad
        results = {}
        for device in ("cpu", "weft"):
            mine, found = [grad.to(device, copy=True) for grad in grads], torch.zeros(1, device=device)
            inverse = torch.full((), 1 / 3, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(mine, found, inverse)
            results[device] = [*values(mine), found.cpu()]
        equal(results["weft"], results["cpu"])
        assert results["weft"][-1].item() == (bad is not None)


def test_the_scale_grows_and_falls():
    flags = [0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    state = {
        device: (torch.tensor(3.0, device=device), torch.tensor(0, dtype=torch.int32, device=device))
        for device in ("cpu", "weft")
    }
    seen = {"cpu": [], "weft": []}
    for flag in flags:
        for device, (scale, tracker) in state.items():
            result = torch._amp_update_scale_(scale, tracker, torch.tensor(float(flag), device=device), 2.1, 0.3, 2)
            assert result is scale
            seen[device].append((scale.item(), tracker.item()))
    assert seen["weft"] == seen["cpu"]
    largest = torch.tensor(3e38, device="weft")
    torch._amp_update_scale_(
        largest, torch.tensor(1, dtype=torch.int32, device="weft"), torch.tensor(0.0, device="weft"), 2.0, 0.5, 2
    )
    assert largest.item() == torch.tensor(3e38).item()


def test_wrong_arguments_of_grad_scalers_operations():
    grad, found = torch.ones(3, device="weft"), torch.zeros((), device="weft")
    with pytest.raises(RuntimeError, match="inv_scale must be a 1-element tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_([grad], found, torch.ones(2, device="weft"))
    with pytest.raises(RuntimeError, match="found_inf must be a float tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_([grad], found.double(), torch.ones((), device="weft"))
    with pytest.raises(RuntimeError, match="growth_tracker must be an int tensor"):
        torch._amp_update_scale_(torch.ones((), device="weft"), found, found, 2.0, 0.5, 2)


def train(device, dtype, steps=12):
    """Losses and scales; in one step a loss is infinite."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = GradScaler(device, init_scale=64.0, growth_interval=3)
    x, y, seen = torch.randn(16, 4).to(device), torch.randn(16, 3).to(device), []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            loss = functional.mse_loss(model(x), y)
        scaler.scale(loss * float("inf") if step == 5 else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        seen.append((loss.item(), scaler.get_scale()))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("dtype, tolerance", [(None, 1e-5), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
def test_training_with_grad_scaler_is_the_cpus(dtype, tolerance):
    (ours, state), (cpus, cpu_state) = train("weft", dtype), train("cpu", dtype)
    assert state == cpu_state
    assert [scale for _, scale in ours] == [scale for _, scale in cpus]
    assert ours[5][1] == ours[4][1] / 2
    for (one, _), (other, _) in zip(ours, cpus, strict=True):
        assert one == pytest.approx(other, rel=tolerance)


def test_steps_with_autocast_and_grad_scaler_compile_a_fixed_number_of_programs():
    train("weft", torch.bfloat16)
    before = weft.device.stats()["programs"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train("weft", torch.bfloat16, steps=24)
    assert weft.device.stats()["programs"] == before
