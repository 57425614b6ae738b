"""Operations without a Meta kernel, and those with a kernel for the CPU only, on tensors of the device."""

from __future__ import annotations

import pytest
import torch

import weft

LIBRARY = torch.library.Library("weft_test_device_operators", "DEF")
LIBRARY.define("thrice(Tensor x) -> Tensor")
LIBRARY.impl("thrice", lambda x: x * 3, "CPU")
LIBRARY.define("add_one_(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.impl("add_one_", lambda x: x.add_(1), "CPU")
LIBRARY.define("parts(Tensor x, Tensor[] more) -> (Tensor, Tensor[])")
LIBRARY.impl("parts", lambda x, more: (x[:1].clone(), [each + 1 for each in more]), "CPU")
LIBRARY.define("unknown(Tensor x) -> Tensor")
OWN = torch.ops.weft_test_device_operators


@torch.library.custom_op("weft_test_device_operators::twice", mutates_args=(), device_types="cpu")
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@twice.register_fake
def _(x):
    return torch.empty_like(x)


twice.register_autograd(lambda context, grad: grad * 2)


@torch.library.custom_op("weft_test_device_operators::squared", mutates_args=(), device_types="cpu")
def squared(x: torch.Tensor) -> torch.Tensor:
    """Without a fake implementation."""
    return torch.from_numpy(x.numpy() ** 2)


OPERATIONS = {
    "histogram": lambda x: torch.histogram(x.flatten(), 4)[0],
    "geqrf": lambda x: torch.geqrf(x)[0],
    "to_sparse": lambda x: x.to_sparse().to_dense(),
    "twice": twice,
    "thrice": OWN.thrice,
    "parts": lambda x: torch.cat([OWN.parts(x, [x, x[1:]])[0], *OWN.parts(x, [x, x[1:]])[1]]),
}


@pytest.mark.parametrize("sizes", [(4, 4), (1, 1), (5, 3), (0, 3)])
@pytest.mark.parametrize("name", [*OPERATIONS, "squared", "add_one_"])
@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_operations_with_a_kernel_for_the_cpu_only(name, sizes):
    if name == "histogram" and 0 in sizes:
        pytest.skip("it has no range")
    operation = {**OPERATIONS, "squared": squared, "add_one_": OWN.add_one_}[name]
    torch.manual_seed(0)
    x = torch.rand(sizes)
    y = x.to("weft") * 1  # pending
    got, expected = operation(y), operation(x)
    assert got.is_weft
    torch.testing.assert_close(got.cpu(), expected)
    torch.testing.assert_close(y.cpu(), x)  # changed in place, or not


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_they_are_counted_and_have_gradients():
    weft.reset_stats()
    x = torch.ones(3, device="weft", requires_grad=True)
    OWN.thrice(x.detach())
    assert any("thrice" in reason for reason in map(str, weft.stats()["fallbacks"]))
    twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_an_operation_without_any_kernel_says_so():
    with pytest.raises(NotImplementedError, match="unknown"):
        OWN.unknown(torch.ones(2, device="weft")).cpu()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "weft"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_they_are_compiled(backend, name):
    torch.manual_seed(0)
    x = torch.rand(4, 3)
    torch._dynamo.reset()
    operation = OPERATIONS[name]
    compiled = torch.compile(lambda x: operation(x + 1) * 2, backend=backend)
    torch.testing.assert_close(compiled(x.to("weft")).cpu(), operation(x + 1) * 2)


@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: torch.ones(2, device="weft") + 1])
def test_inductor_says_what_to_use(make):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r'Inductor has no code for tensors of device weft\. Use .*backend="weft"'):
        torch.compile(make)(torch.ones(2, device="weft" if make(torch.ones(2)).is_cpu else "cpu"))
    assert torch.compile(lambda x: x * 2, backend="weft")(torch.ones(2, device="weft")).tolist() == [2, 2]
