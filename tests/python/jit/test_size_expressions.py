"""Programs whose sizes are sums and divisions of others: one for all lengths."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

NEIGHBOURS = """
program @neighbours(%x: f32[T,3]) {
  %a = slice %x {dim = 0, limit = dim(T), start = 1}
  %b = slice %x {dim = 0, limit = dim(T-1), start = 0}
  %c = mul %a, %b
  return %c
}
"""


def compiled(run: Callable[[], Any]) -> int:
    before = weft.stats()["compiled"]
    run()
    return weft.stats()["compiled"] - before


def agrees(fn: Callable[..., Any], jitted: Callable[..., Any], inputs: list[Tensor]) -> None:
    """Compares values and gradients."""
    results = []
    for call in (fn, jitted):
        leaves = [x.clone().requires_grad_() for x in inputs]
        outputs = call(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        gradients = torch.autograd.grad(sum((y * y).sum() for y in outputs), leaves)
        results.append([*outputs, *gradients])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def neighbours(x: Tensor) -> Tensor:
    return x[1:] * x[:-1]


def halves(x: Tensor) -> Tensor:
    half = x.shape[0] // 2
    return x[:half].sum(0) - x[half:].sum(0)


def attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    return nn.functional.scaled_dot_product_attention(q, keys, values), keys, values


def of_cache(length: int) -> list[Tensor]:
    return [*(torch.randn(2, 1, 8) for _ in range(3)), *(torch.randn(2, length, 8) for _ in range(2))]


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (neighbours, [[torch.randn(t, 3)] for t in (5, 9, 4, 31)]),
        (lambda x: nn.functional.pad(x, (0, 0, 2, 1)), [[torch.randn(t, 3)] for t in (5, 9, 4, 31)]),
        (lambda x: torch.cat([x, x[:2], x]), [[torch.randn(t, 3)] for t in (5, 9, 4, 31)]),
        (attention, [of_cache(t) for t in (3, 4, 9)]),
    ],
    ids=["neighbours", "pad", "concatenation", "attention"],
)
def test_other_lengths_compile_nothing(fn: Callable[..., Any], inputs: list[list[Tensor]]) -> None:
    jitted = weft.jit(fn)
    agrees(fn, jitted, inputs[0])
    assert compiled(lambda: [agrees(fn, jitted, each) for each in inputs[1:]]) == 0


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x[40 - len(y) : 44 - len(y)] + y[:4].sum(),
        lambda x, y: x[len(y) - 40 : len(y) - 36] + y[:4].sum(),
        lambda x, y: x[-len(y) : 20 - len(y)] + y[:4].sum(),
        lambda x, y: x[-len(y) :] * y,
        lambda x, y: x[5 - len(y) :].sum(0) * y,
        lambda x, y: x[-(len(y) - 3) :] * y[3:],
        lambda x, y: x[-(2 * len(y) + 1) : 1 - len(y)].sum(0) * y,
        lambda x, y: x.select(0, 2 - len(y)) * y,
        lambda x, y: x.slice_scatter(y, 0, -len(y)),
        lambda x, y: x.slice_scatter(y[2:], 0, 2 - len(y)),
        lambda x, y: x.select_scatter(y[0], 0, 3 - len(y)),
        lambda x, y: x[: -len(y)].sum(0) * y,
        lambda x, y: x.select(0, 40 - len(y)) * y,
        lambda x, y: x.select(0, -len(y)) * y,
        lambda x, y: x.narrow(0, 60 - len(y), 3).sum(0) * y,
    ],
)
def test_places_counted_from_either_end(fn: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A bound that is a number less a size is a place from the front at one size and from the end at another."""
    torch.manual_seed(0)
    jitted, x = weft.jit(fn), torch.randn(64, 3)
    for length in (30, 20, 42, 50, 58, 25, 36, 7, 41, 39):
        agrees(fn, jitted, [x, torch.randn(length, 3)])
    jitted = weft.jit(fn)  # whose first size is on the other side
    for length in (50, 58, 42, 30, 20, 60):
        agrees(fn, jitted, [x, torch.randn(length, 3)])


def test_slices_counted_from_the_end_at_all_sizes() -> None:
    def model(x: Tensor) -> Tensor:
        return x[:, -x[:, 2:].shape[1] :]  # of no elements: all of x

    jitted = weft.jit(model)
    for steps in (50, 51, 7, 3, 2, 1, 60, 2):
        x = torch.randn(2, steps)
        assert torch.equal(jitted(x), model(x))


def test_a_slice_counted_from_the_end_is_one_program() -> None:
    """Its bound is minus a size less one."""
    jitted = weft.jit(lambda x: x[-(len(x) - 1) :] * x[:-1])
    for length in (20, 11, 31):
        x = torch.randn(length, 3)
        torch.testing.assert_close(jitted(x), x[1:] * x[:-1])
    before = weft.stats()["compiled"]
    for length in (7, 40, 13):
        x = torch.randn(length, 3)
        torch.testing.assert_close(jitted(x), x[1:] * x[:-1])
    assert weft.stats()["compiled"] == before


def test_the_number_of_programs() -> None:
    jitted = weft.jit(lambda *inputs: attention(*inputs))
    with torch.no_grad():
        assert compiled(lambda: [jitted(*of_cache(t)) for t in (3, 4, 9)]) == 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.norm(self.first(x))), 2)
        return self.last(nn.functional.adaptive_avg_pool2d(nn.functional.relu(self.second(x)), 1).flatten(1))


def test_a_convolution_net_is_one_program() -> None:
    net = Net().eval()
    jitted = weft.jit(lambda x: net(x))
    images = [torch.randn(n, 3, size, size) for n, size in ((2, 16), (3, 16), (3, 20), (5, 27))]
    with torch.no_grad():
        assert compiled(lambda: [torch.testing.assert_close(jitted(x), net(x)) for x in images]) == 1


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
def test_halves_of_any_length(length: int) -> None:
    agrees(halves, weft.jit(halves), [torch.randn(length, 3)])


@pytest.mark.parametrize("length", [0, 1, 2])
def test_few_elements(length: int) -> None:
    """For T = 0 PyTorch's x[1:] has no elements, where T-1 would be negative: that is another program."""
    jitted = weft.jit(neighbours)
    for size in (6, length):
        x = torch.randn(size, 3)
        torch.testing.assert_close(jitted(x), neighbours(x))


def test_a_size_that_stops_growing_is_no_expression() -> None:
    def first_ten(x: Tensor) -> Tensor:
        return x[:10] * 2

    jitted = weft.jit(first_ten)
    for size in (30, 12, 10, 7, 3):
        x = torch.randn(size, 3)
        torch.testing.assert_close(jitted(x), first_ten(x))


def test_other_sizes_of_the_last_dim_are_symbols_at_the_second_sight() -> None:
    jitted = weft.jit(lambda x: torch.sort(x, -1)[0] + x.argmax(-1, keepdim=True))
    with torch.no_grad():
        jitted(torch.randn(3, 5))
        jitted(torch.randn(4, 6))
        assert compiled(lambda: [jitted(torch.randn(*shape)) for shape in ((5, 7), (9, 4))]) == 0


def test_the_operator() -> None:
    for length in (1, 2, 5):
        x = torch.randn(length, 3)
        (y,) = torch.ops.weft.call(NEIGHBOURS, [x])
        torch.testing.assert_close(y, x[1:] * x[:-1])
    meta = torch.ops.weft.call(NEIGHBOURS, [torch.empty(7, 3, device="meta")])
    assert meta[0].shape == (6, 3)


def test_a_negative_size_is_the_users_error() -> None:
    with pytest.raises(RuntimeError, match=r"the size T-1 is negative .* with T = 0 \(dim 0 of input 0 'x'\)"):
        torch.ops.weft.call(NEIGHBOURS, [torch.randn(0, 3)])
