"""Messages of weft.scan about bad input: the leaf, what it was and what it should be."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

X, H = torch.randn(5, 8, 3), torch.zeros(8, 16)


def same(carry: Any, x: Any) -> tuple[Any, Any]:
    return carry, x


class TestCarry:
    @pytest.mark.parametrize(
        ("step", "init", "message"),
        [
            (
                lambda c, x: ({"h": torch.cat([c["h"], c["h"][:, :1]], 1)}, x),
                {"h": H},
                "carry['h']: float32[8,16] in, float32[8,17] out",
            ),
            (lambda c, x: ([c[0], c[1].double()], x), [H, H], "carry[1]: float32[8,16] in, float64[8,16] out"),
            (lambda c, x: (c * 0.5, x), 0, "carry: int64[] in, float32[] out"),
            (lambda c, x: (c.sum(), x), H, "carry: float32[8,16] in, float32[] out"),
            (lambda c, x: ((c, c), x), H, "the structure that it got: * in, (*, *) out"),
            (
                lambda c, x: ({"g": c["h"]}, x),
                {"h": H},
                "{'h': *} in, {'g': *} out (carry['h'] missing; carry['g'] new)",
            ),
            (lambda c, x: (None, x), H, "carry: float32[8,16] in, None out"),
        ],
    )
    def test_must_stay_what_it_is(self, step: Any, init: Any, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            weft.scan(step, init, X)

    def test_must_be_tensors(self) -> None:
        with pytest.raises(TypeError, match=re.escape("init['name'] must be a tensor, a number or None, but is str")):
            weft.scan(same, {"name": "h"}, X)


class TestXs:
    @pytest.mark.parametrize(
        ("xs", "length", "message"),
        [
            (None, None, "there are no xs, so length must say how many steps to take"),
            ({}, None, "there are no xs, so length must say how many steps to take"),
            (X[:0], None, "there must be at least one step, but the length is 0"),
            (None, 0, "there must be at least one step, but the length is 0"),
            (None, -3, "there must be at least one step, but the length is -3"),
            ((X, X[:3]), None, "xs[1]: float32[3,8,3] has 3 steps, but the first has 5"),
            ({"a": X}, 4, "xs['a']: float32[5,8,3] has 5 steps, but length is 4"),
            ([torch.tensor(1.0)], None, "xs[0] has no dims, but every x needs a leading one, the time"),
        ],
    )
    def test_lengths(self, xs: Any, length: int | None, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            weft.scan(same, H, xs, length=length)

    def test_types(self) -> None:
        with pytest.raises(TypeError, match="length must be an integer, but is float"):
            weft.scan(same, H, None, length=2.0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="reverse must be True or False, but is 1"):
            weft.scan(same, H, X, reverse=1)  # type: ignore[arg-type]


class TestStep:
    def test_must_be_callable(self) -> None:
        with pytest.raises(TypeError, match="step must be callable, but is int"):
            weft.scan(3, H, X)  # type: ignore[arg-type]

    @pytest.mark.parametrize(("result", "said"), [(H, "a Tensor"), ((H, H, H), "a tuple of 3"), (None, "a NoneType")])
    def test_must_return_a_pair(self, result: Any, said: str) -> None:
        with pytest.raises(TypeError, match=rf"the step must return \(carry, y\), but returned {said}"):
            weft.scan(lambda c, x: result, H, X)

    def test_an_error_of_its_own_comes_out_as_it_is(self) -> None:
        with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(8x16 and 8x3\)"):
            weft.scan(lambda c, x: (c @ x, c), H, X)

    @pytest.mark.parametrize(
        "step",
        [
            lambda c, x: (c + 1 if c.sum() > 0 else c, x),
            lambda c, x: (c * x.sum().item(), x),
            lambda c, x: (c * float(x.sum()), x),
            lambda c, x: (c * x.sum().tolist(), x),
            lambda c, x: (c * x.detach().numpy().sum(), x),
        ],
    )
    def test_python_may_not_read_values(self, step: Any) -> None:
        with pytest.raises(RuntimeError, match=r"needs the value of a tensor \(test_scan_errors.py:\d+: .*torch.where"):
            weft.scan(step, H, X)


class TestSideEffects:
    def test_a_captured_tensor_changed_in_place(self) -> None:
        table = torch.ones(16)

        def add(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            table.add_(1)
            return c + table, x

        def assign(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            table[0] = 2
            return c + table, x

        def increment(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal table
            table += 1
            return c + table, x

        for step in (add, assign, increment):
            with pytest.raises(RuntimeError, match=r"changes a captured tensor in place .*: table: float32\[16\]"):
                weft.scan(step, H, X)
        assert torch.equal(table, torch.ones(16))

    def test_a_view_of_a_captured_tensor_changed_in_place(self) -> None:
        table = torch.ones(16, 2)

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            table[:, 0].add_(1)
            return c + table[:, 0], x

        with pytest.raises(RuntimeError, match="changes a captured tensor in place"):
            weft.scan(step, H, X)
        assert torch.equal(table, torch.ones(16, 2))

    def test_running_statistics(self) -> None:
        norm = nn.BatchNorm1d(16)
        with pytest.raises(RuntimeError, match=r"changes a captured tensor in place .*norm.num_batches_tracked"):
            weft.scan(lambda c, x: (norm(c), x), H, X)
        assert norm.num_batches_tracked == 0

    def test_a_tensor_kept_by_a_step_that_has_no_program_either(self) -> None:
        """The step keeps a tensor as a spiking neuron of snntorch keeps its reset. The first call raises, and so do the
        next."""

        class Noisy(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x.sign()

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
                return grad * torch.rand_like(grad)

        class Neuron(nn.Module):
            def forward(self, mem: Tensor, x: Tensor) -> Tensor:
                self.reset = (mem - 1).relu().detach()
                return 0.9 * mem + Noisy.apply(x) - self.reset

        neuron, inputs = Neuron(), torch.randn(5, 8, 16, requires_grad=True)
        for _ in range(3):
            with pytest.raises(
                RuntimeError, match=r"has a side effect: .*float32.* kept after it returns, as neuron\.reset"
            ):
                weft.scan(lambda mem, x: ((after := neuron(mem, x)), after), H, inputs)

    def test_a_tensor_kept(self) -> None:
        kept = []

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            kept.append(c * 2)
            return c + 1, x

        with pytest.raises(RuntimeError, match=r"has a side effect: a float32\[8,16\] that it computes is kept"):
            weft.scan(step, H, X)

    def test_a_variable_changed(self) -> None:
        count = 0

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal count
            count += 1
            return c + count, x

        with pytest.raises(RuntimeError, match="has a side effect: it changes a variable"):
            weft.scan(step, H, X)


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")  # the warning shows once for each reason
@pytest.mark.parametrize("how", ["out", "requires_grad_", "resize_"])
def test_the_reason_of_a_fallback_is_about_the_users_program(how):
    """Nothing of the user's requires a gradient here; the tensors of the recording do."""

    def step(h, x):
        if how == "out":
            return torch.add(h, x, out=torch.empty(3)), None
        return (h.requires_grad_(False) if how == "requires_grad_" else h.resize_(3)) + x, None

    xs = torch.rand(4, 3)
    weft.reset_stats()
    last, _ = weft.scan(step, torch.zeros(3), xs)
    torch.testing.assert_close(last, xs.sum(0))
    (reason,) = weft.stats()["fallbacks"]
    said = (
        "a program's tensors keep their sizes"
        if how == "resize_"
        else "what autograd refuses for tensors with gradients"
    )
    assert said in reason and "(test_scan_errors.py:" in reason


@pytest.mark.parametrize("features", [1, 2, 5, 7])
def test_a_cells_weights_of_a_wrong_size_are_an_error(features: int) -> None:
    """For such weights `chunk` gives fewer parts than the cell has gates, and reading the last gate crashed the
    process."""
    h, x = torch.zeros(3, 4), torch.randn(6, 3, 4)
    weights = torch.randn(features, 4), torch.randn(features, 4)
    for step in (
        lambda h, x: (torch.gru_cell(x, h, *weights), x),
        lambda h, x: (torch.lstm_cell(x, (h, h), *weights)[0], x),
    ):
        with pytest.raises(RuntimeError):
            weft.scan(step, h, x)
