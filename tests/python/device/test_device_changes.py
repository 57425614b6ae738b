"""Changes in place on the device "weft" as autograd sees them, changes of what is no plain tensor, and their errors."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import weft


def leaf(device: str) -> Tensor:
    return torch.arange(6.0).reshape(2, 3).clone().to(device).requires_grad_()


def on_a_leaf(device: str) -> Tensor:
    x = leaf(device)
    x.add_(1)
    return x


def on_a_view_of_a_leaf(device: str) -> Tensor:
    x = leaf(device)
    x[0].zero_()
    return x


def on_a_saved_tensor(device: str) -> Tensor:
    x = leaf(device)
    y = x.exp()
    y.add_(1)
    return torch.autograd.grad(y.sum(), x)[0]


def on_a_saved_tensor_through_a_view(device: str) -> Tensor:
    x = leaf(device)
    y = x.exp()
    y.view(-1)[1:3].mul_(2)
    return torch.autograd.grad(y.sum(), x)[0]


def on_one_of_many_views(device: str) -> Tensor:
    x = leaf(device) * 1
    a, _ = x.unbind(0)
    a.mul_(2)
    return x


def through_views(device: str) -> Tensor:
    x = leaf(device)
    y = x * 2
    y[:, 1].mul_(3)
    y.t()[0].copy_(x[:, 2] * x[:, 1])
    return torch.autograd.grad((y * x).sum(), x)[0]


def through_a_transposition_in_place(device: str) -> Tensor:
    x = leaf(device)
    y = (x * 2).t_()
    y[0].mul_(x[:, 0] + 1)
    return torch.autograd.grad((y * y).sum(), x)[0]


def after_detach(device: str) -> Tensor:
    x = leaf(device)
    y = x * 2
    y.detach().mul_(5)  # it shares memory, which autograd sees by the version alone
    return torch.autograd.grad((y * 3).sum(), x)[0] + y


def after_detach_of_a_saved_tensor(device: str) -> Tensor:
    x = leaf(device)
    y = x.exp()
    y.detach().mul_(5)
    return torch.autograd.grad(y.sum(), x)[0]


def by_data(device: str) -> Tensor:
    x = leaf(device)
    y = x.exp()
    y.data.mul_(5)
    return torch.autograd.grad(y.sum(), x)[0]


def by_setting_data(device: str) -> Tensor:
    x = leaf(device)
    y = (x * x).sum()
    x.data = torch.ones(4, device=device)
    z = x * 2
    return torch.cat([z, y.reshape(1)])


def without_gradients(device: str) -> Tensor:
    x = leaf(device)
    with torch.no_grad():
        x[:, ::2] -= 1
        x.t()[1].fill_(7)
    return (x * x).sum() + x._version


def versions(device: str) -> Tensor:
    x = torch.zeros(4, device=device)
    y, z = x[1:], x.view(2, 2)
    y.add_(1)
    z.t_()
    z[0, 0] = 3
    torch.add(x, 1, out=x)
    return torch.tensor([x._version, y._version, z._version, x.detach()._version], device=device) + x.long()


def across_a_sync(device: str) -> Tensor:
    x = torch.arange(12.0).reshape(3, 4).to(device)
    y, z = x[:, 1::2], x.t()
    weft.sync()
    y.mul_(-1)
    weft.sync()
    z[0] += y.sum()
    x.unsqueeze_(0).transpose_(0, 2)
    del x
    weft.sync()
    return z + y.sum()


@pytest.mark.parametrize(
    "change",
    [
        on_a_leaf,
        on_a_view_of_a_leaf,
        on_a_saved_tensor,
        on_a_saved_tensor_through_a_view,
        on_one_of_many_views,
        through_views,
        through_a_transposition_in_place,
        after_detach,
        after_detach_of_a_saved_tensor,
        by_data,
        by_setting_data,
        without_gradients,
        versions,
        across_a_sync,
    ],
    ids=lambda f: f.__name__,
)
def test_changes_under_autograd(change: Callable[[str], Tensor]) -> None:
    """The same result, or the same error."""
    try:
        want = change("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as found:
            change("weft")
        got, wanted = (re.sub(r"[\w.]*Float\w*", "", str(e).splitlines()[0]) for e in (found.value, error))
        assert got == wanted
        return
    torch.testing.assert_close(change("weft").cpu(), want)


def test_a_complex_result_fits_no_real_tensor() -> None:
    x = torch.ones(3, device="weft")
    with pytest.raises(RuntimeError, match="result type ComplexFloat can't be cast to the desired output type Float"):
        x.add_(torch.ones(3, device="weft") * 1j)
    assert x.tolist() == [1, 1, 1]


def test_results_of_other_types_than_meta_kernels_say() -> None:
    """`arange` into a tensor has the length that its numbers give, also where other numbers were seen before."""
    lengths = []
    for end in (2.5, 3.5, 1.5):
        out = torch.empty(0, device="weft")
        torch.arange(0.0, end, 1.0, out=out)
        lengths.append(out.shape[0])
    assert lengths == [3, 4, 2]


def test_sparse_tensors() -> None:
    """They are made of dense ones of the device, and their operations run at once, counted."""
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for layout in (torch.sparse_coo, torch.sparse_csr):
        sparse = dense.to_sparse(layout=layout).to("weft")
        assert sparse.device.type == "weft" and sparse.layout == layout
        assert torch.equal(sparse.to_dense().cpu(), dense)
        assert torch.equal((sparse @ torch.eye(2, device="weft")).cpu(), dense)
        assert torch.equal(sparse.cpu().to_dense(), dense)


def test_sparse_gradients() -> None:
    """A table of embeddings with sparse gradients trains as on the CPU."""
    found = {}
    for device in ("cpu", "weft"):
        table = torch.nn.Embedding(5, 3, sparse=True)
        with torch.no_grad():
            table.weight.copy_(torch.arange(15.0).reshape(5, 3))
        table = table.to(device)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        for _ in range(3):
            (table(torch.tensor([1, 3, 1], device=device)) ** 2).sum().backward()
            assert table.weight.grad is not None and table.weight.grad.is_sparse
            optimizer.step()
            optimizer.zero_grad()
        found[device] = table.weight.detach().cpu()
    torch.testing.assert_close(found["weft"], found["cpu"])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_of_bags(mode: str) -> None:
    indices = torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])
    grads = {}
    for device in ("cpu", "weft"):
        weight = torch.arange(30.0, device=device).view(10, 3).requires_grad_()
        torch.nn.functional.embedding_bag(indices.to(device), weight, mode=mode, sparse=True).sum().backward()
        assert weight.grad.layout == torch.sparse_coo
        grads[device] = weight.grad.cpu().to_dense()
    assert torch.equal(grads["weft"], grads["cpu"])


def test_values_of_sparse_tensors_share_their_memory() -> None:
    found = {}
    for device in ("cpu", "weft"):
        indices = torch.tensor([[0, 1, 1], [2, 0, 2]], device=device)
        sparse = torch.sparse_coo_tensor(indices, torch.tensor([16.0, 32, 64], device=device), (2, 3))
        sparse._values().mul_(0.25)
        sparse = sparse.coalesce()
        sparse.values().add_(1)
        found[device] = sparse.to_dense().cpu()
    assert torch.equal(found["weft"], found["cpu"])
    uncoalesced = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.ones(2), (2,)).to("weft")
    with pytest.raises(RuntimeError, match="coalesced"):
        uncoalesced.values()


def test_overlapping_memory_is_refused_as_on_the_cpu() -> None:
    x = torch.arange(9.0, device="weft")
    for wrong in (
        lambda: x[1:].copy_(x[:-1]),
        lambda: x[1:].add_(x[:-1]),
        lambda: torch.add(x[:-1], 1, out=x[1:]),
    ):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            wrong()
    assert x.add_(x).tolist() == [2.0 * i for i in range(9)]


def test_uninitialized_memory_is_filled_if_asked_for() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="weft").isnan().all().item()
        assert torch.empty(2, dtype=torch.int8, device="weft").tolist() == [127, 127]
        assert torch.ones(2, device="weft").resize_(4).isnan().tolist() == [False, False, True, True]
    finally:
        torch.use_deterministic_algorithms(before)


FAILING = {
    "index": lambda x, n: x[n],
    "embedding": lambda x, n: torch.nn.functional.embedding(n, x),
    "integers by zero": lambda x, n: torch.full_like(n, 7) // (n - 9),
    "a target": lambda x, n: torch.nn.functional.nll_loss(x[:4], n),
}


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("fails", FAILING)
def test_a_change_is_applied_once_where_something_fails(fails: str, where: str) -> None:
    """If a program fails, its operations run again one by one, with the memory that was donated to it."""
    x = torch.randn(6, 4, device="weft")
    p, q = torch.zeros(300, 40, device="weft"), torch.zeros(300, 40, device="weft")
    weft.sync()
    for turn in range(1, 6):
        n = torch.tensor([0, 1, 2, 9] if turn in (3, 5) else [0, 1, 2, 3]).to("weft")
        with torch.no_grad():
            if where == "before":
                found = FAILING[fails](x, n)
            p.add_(1)
            q.add_(p * 2)
            if where == "behind":
                found = FAILING[fails](x, n)
        if turn in (3, 5):
            with pytest.raises((IndexError, RuntimeError)):
                found.cpu()
        else:
            found.cpu()
        assert torch.equal(p.cpu(), torch.full((300, 40), float(turn)))
        assert torch.equal(q.cpu(), torch.full((300, 40), float(turn * (turn + 1))))
