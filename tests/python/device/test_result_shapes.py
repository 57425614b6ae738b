"""Shapes of results, which the device and the capture compute in C++ for what is common in steps."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import warm_python
from torch.nn import functional

import weft

#: Operations as Python text, on floats `x` [4, 3] and `y` [2, 3, 5, 4], which are tried without gaps, transposed and
#: with gaps.
OPERATIONS = [
    "torch.stack([x, x])",
    "torch.stack([x, 2 * x, x], -1)",
    "torch.stack([y, y], 2)",
    "x.flip(0)",
    "y.flip(1, -1)",
    "x.roll(1)",
    "x.roll(1, 0)",
    "y.roll((1, 2), (0, -1))",
    "x.repeat(2, 1)",
    "x.repeat(3, 1, 2)",
    "torch.zeros_like(x) + x",
    "torch.ones_like(y)",
    "torch.full_like(x, 2.0) * x",
    "torch.full_like(x, 2, dtype=torch.int64)",
    "x.new_zeros(3) + x",
    "x.new_full((2, 2), 7.0)",
    "x.new_ones(3, dtype=torch.bool)",
    "x * torch.arange(3, device=x.device)",
    "torch.arange(1, 9, 3, device=x.device)",
    "torch.arange(0, 1, 0.3, device=x.device)",
    "torch.arange(5, 1, -2, dtype=torch.int32, device=x.device)",
    "x + torch.ones(3, device=x.device)",
    "torch.full((2, 3), 4, device=x.device)",
    "torch.full((2, 3), True, device=x.device)",
    "torch.full((2, 3), 1.5, device=x.device)",
    "torch.scalar_tensor(3, device=x.device) * x",
    "torch.eye(3, device=x.device)",
    "torch.eye(3, 5, device=x.device)",
    "x.clone().fill_(3)",
    "torch.fill(x, 3)",
    "x.clone().zero_() + 1",
    "x[torch.tensor([0, 2], device=x.device)]",
    "y[:, torch.tensor([0, 2], device=x.device)]",
    "y[torch.tensor([[1], [0]], device=x.device), :, torch.tensor([0, 2, 1], device=x.device)]",
    "y[:, torch.tensor([0, 2], device=x.device), torch.tensor([1, 1], device=x.device)]",
    "x.index_select(0, torch.tensor([3, 1, 1], device=x.device))",
    "y.index_select(-2, torch.tensor(0, device=x.device))",
    "x.index_put((torch.tensor([0, 2], device=x.device),), torch.ones(2, 3, device=x.device))",
    "torch.slice_scatter(x, torch.ones(2, 3, device=x.device), 0, 1, 3)",
    "torch.select_scatter(y, torch.ones(2, 5, 4, device=x.device), 1, 2)",
    "torch.isnan(x)",
    "torch.isinf(y)",
    "torch.logical_not(x)",
    "torch.logical_and(x, x > 0)",
    "torch.copysign(x, -1.0)",
    "x.clamp(min=torch.zeros(3, device=x.device))",
    "x.clamp(torch.zeros(4, 1, device=x.device), torch.ones(3, device=x.device))",
    "x.clamp_min(torch.zeros(3, device=x.device))",
    "x.clamp_max(torch.zeros(4, 1, device=x.device))",
    "x.round(decimals=1)",
    "torch.nan_to_num(y)",
    "torch.deg2rad(x)",
    "functional.logsigmoid(x)",
    "x.sum()",
    "x.to(torch.int32).sum()",
    "x.sum(dtype=torch.float64)",
    "x.mean()",
    "x.prod()",
    "(x > 0).prod()",
    "(x > 0).all()",
    "x.any()",
    "x.max()",
    "y.min()",
    "x[0].dot(x[1])",
    "torch.vdot(x[0], x[1])",
    "x.trace()",
    "x.sort().values",
    "x.sort(0, descending=True).indices",
    "torch.special.entr(x)",
    "torch.special.i0e(x)",
    "functional.conv2d(y, y[:1, :, :2, :3])",
    "functional.conv2d(y, y[:, :1, :2, :2].repeat(3, 1, 1, 1), stride=2, padding=1, groups=3)",
    "functional.conv1d(y[0], y[:, 0, :, :2], padding=1, dilation=2)",
    "functional.conv_transpose2d(y, y.transpose(0, 1)[:, :, :2, :2], stride=2, output_padding=1)",
]


def _inputs(layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(4, 3), torch.randn(2, 3, 5, 4)
    if layout == "transposed":
        x, y = x.t().contiguous().t(), y.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)
    if layout == "with gaps":
        x, y = torch.randn(8, 6)[::2, ::2], torch.randn(2, 3, 5, 8)[..., ::2]
    return x, y


@pytest.mark.parametrize("layout", ["plain", "transposed", "with gaps"])
@pytest.mark.parametrize("text", OPERATIONS)
def test_they_are_the_cpus_and_run_no_python_of_pytorchs(text, layout):
    x, y = _inputs(layout)
    run = eval(f"lambda x, y: {text}", {"torch": torch, "functional": functional})
    expected = run(x, y)
    on_device = [_on_device(each) for each in (x, y)]
    weft.sync()
    seen: set[str] = set()

    def watch(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and any(f"torch/{each}" in name for each in ("_meta_registrations", "_refs", "_prims/")):
            seen.add(f"{name.rpartition('torch/')[2]}: {frame.f_code.co_name}")

    sys.setprofile(watch)
    try:
        result = run(*on_device)
    finally:
        sys.setprofile(None)
    assert not seen
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if "conv" not in text:  # which kernel the CPU takes, and so its strides, depends on the machine
        assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected, equal_nan=True)


def _on_device(x: torch.Tensor) -> torch.Tensor:
    """On the device, with the strides that it has on the CPU."""
    size = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((size,), (1,)).to("weft").as_strided(x.shape, x.stride())


@pytest.mark.parametrize(
    "text, message",
    [
        ("torch.stack([x, x[1:]])", r"equal size, but got \[4, 3\] at entry 0 and \[3, 3\] at entry 1"),
        ("x.flip(0, 0)", "appears multiple times"),
        ("x.repeat(2)", "can not be smaller than number of dimensions of tensor"),
        ("x[:0].max()", "Expected reduction dim to be specified"),
        ("x[0].dot(x[:, 0])", "inconsistent tensor size"),
        ("x[0].dot(x)", "1D tensors expected"),
        ("y.trace()", "expected a matrix"),
        ("functional.conv1d(y[0], y[:, 0], dilation=2)", "Kernel size can't be greater than actual input size"),
        ("functional.conv2d(y, y[:, :2])", "to have 2 channels, but got 3"),
        ("x.index_select(0, x)", "index"),
        ("torch.slice_scatter(x, x, 0, 1, 3)", "size equal to the slice"),
    ],
)
def test_wrong_sizes_are_errors_as_the_cpus(text, message):
    run = eval(f"lambda x, y: {text}", {"torch": torch, "functional": functional})
    x, y = _inputs("plain")
    with pytest.raises((RuntimeError, IndexError)):
        run(x, y)
    with pytest.raises((RuntimeError, IndexError), match=message):
        run(x.to("weft"), y.to("weft"))


#: torch.autograd.grad, of which these operations' derivatives are made, imports SymPy where gradients are given; and
#: these are decomposed by PyTorch, in Python.
STILL_IMPORT = ("index_put", "sort", "conv", "copysign", "deg2rad", "vdot", "i0e")


def test_a_first_program_imports_neither_dynamo_nor_sympy():
    """They take a second, and PyTorch's Meta functions in Python import them."""
    operations = [text for text in OPERATIONS if not any(each in text for each in STILL_IMPORT)]
    program = f"""
import sys, torch, weft
from torch.nn import functional
torch.manual_seed(0)
x, y = torch.randn(4, 3), torch.randn(2, 3, 5, 4)
for text in {operations!r}:
    run = eval("lambda x, y: " + text)
    assert torch.allclose(weft.jit(run)(x, y), run(x, y), equal_nan=True), text
    found = {{"sympy", "torch._dynamo"}} & set(sys.modules)
    assert not found, (text, found)
"""
    done = subprocess.run([warm_python.command(), "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
