"""Rows of a table that a step replaces, or adds to, by an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import packaged
import pytest
import torch
from package_checks import check_step
from torch import Tensor

import weft

TARGETS = [*packaged.NATIVE, "aarch64", "riscv64", "wasm32"]
Inputs = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def replaced(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    """In place of some rows of the state, which is read in the step too."""
    found = table[x[0]].sum(0)
    table = table.clone()
    table[x[0]] = torch.tanh(x[1])
    return table, found


def read_again(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    table = table.index_copy(0, x[0], x[1])
    return table, table * 2


def added(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    """Equal indices among them."""
    table = table.index_put((x[0] // 2,), x[1], accumulate=True)
    return table, table.sum(0)


def counted(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    """From the end, and a histogram."""
    table = table.scatter_add(0, (x[0] % 3)[:, None].expand_as(x[1]), x[1])
    table[x[0] - 9] = 0.5
    return table, torch.zeros(12, dtype=torch.int64).scatter_add(0, x[0], torch.ones_like(x[0])).float()


def by_product(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    """The rows are sums of products, and so is the table that they go to."""
    rows = x[1] @ WEIGHTS
    wide = (table @ WEIGHTS).index_copy(0, x[0], rows)
    return table * 0.9, wide


def single_elements(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    table = table.clone()
    table[x[0], x[0] % 5] = x[1][:, 0]
    return table, table[:, 1].index_fill(0, x[0], 3.0)


WEIGHTS = torch.randn(5, 37, generator=torch.Generator().manual_seed(1))
STEPS: dict[str, Callable[[Tensor, Inputs], tuple[Tensor, Tensor]]] = {
    each.__name__: each for each in (replaced, read_again, added, counted, by_product, single_elements)
}


def inputs(steps: int, rows: int, columns: int) -> Inputs:
    """Different rows in each step: which of equal ones stays isn't said in PyTorch."""
    index = torch.stack([torch.randperm(rows)[:4] for _ in range(steps)])
    return index, torch.randn(steps, 4, columns)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STEPS)
def test_rows(name: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    check_step(tmp_path_factory, STEPS[name], torch.randn(9, 5), inputs(12, 9, 5), 12, [target])


@pytest.mark.parametrize("step", [replaced, read_again, by_product])
def test_rows_on_a_microcontroller(step: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    check_step(tmp_path_factory, step, torch.randn(9, 5), inputs(12, 9, 5), 12, ["cortex-m4"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["read_again", "added"])
def test_types(name: str, dtype: torch.dtype, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(1)
    index, rows = inputs(12, 9, 11)
    tolerance = {torch.float16: 3e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-12)
    table, rows = (torch.randn(9, 11) * 8).to(dtype), (rows * 8).to(dtype)
    check_step(tmp_path_factory, STEPS[name], table, (index, rows), 12, packaged.NATIVE, tolerance)


def swapped(carry: tuple[Tensor, Tensor], x: Inputs) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A state that is changed in place becomes, as it was, another state."""
    table = carry[0].clone()
    table[x[0]] = x[1]
    return (table, carry[0]), carry[1].sum(0)


def three_dims(table: Tensor, x: Inputs) -> tuple[Tensor, Tensor]:
    """An index of two dims, rows of two dims."""
    index, rows = x[0].reshape(2, 2), x[1].reshape(2, 2, 3, 7)
    return table.index_put((index,), rows), table.index_put((index,), rows, accumulate=True)


@pytest.mark.parametrize("target", packaged.NATIVE)
def test_states_and_dims(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(2)
    tables = (torch.randn(9, 21), torch.randn(9, 21))
    check_step(tmp_path_factory, swapped, tables, inputs(7, 9, 21), 7, [target])
    check_step(tmp_path_factory, three_dims, torch.randn(9, 3, 7), inputs(7, 9, 21), 7, [target])


@pytest.mark.parametrize("step", [replaced, read_again, added])
def test_an_index_outside_is_told(step: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)
    table, (index, rows) = torch.randn(9, 5), inputs(2, 9, 5)
    folder = weft.package(step, (table, (index[0], rows[0])), tmp_path_factory.mktemp("packages") / "model")
    model = packaged.loaded(folder, tmp_path_factory)
    model.step(index[0], rows[0])
    before = model.save()
    for wrong in (18, -30, 1 << 40):
        with pytest.raises(RuntimeError, match="an index is outside its table"):
            model.step(torch.tensor([1, 2, wrong, 3]), rows[1])
        assert model.save() == before
    model.step(index[1], rows[1])
    assert model.save() != before
