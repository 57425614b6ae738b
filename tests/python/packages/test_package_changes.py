"""States of which a step changes some rows, as delay lines: the rows alone are written, when the step can't fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import package_checks
import packaged
import pytest
import torch
from torch import Tensor

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


Carry = tuple[Tensor, Tensor]


def put(line: Tensor, i: Tensor, row: Tensor) -> Tensor:
    """The line with another row, whose sizes are the line's for any line, as the capture wants to see."""
    return line.index_put((i,), row + 0 * line[0])


def echo(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
    line, i = carry
    y = x + 0.5 * line[i]
    return (line.index_put((i,), y), (i + 1) % line.shape[0]), y


def read_behind(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
    """Reads the old line after the change, too."""
    line, i = carry
    changed = put(line, i, torch.tanh(x))
    return (changed, (i + 1) % line.shape[0]), line.flip(0) * 2 + line.sum(0)


def new_line_is_read(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
    line, i = carry
    line = put(line, i, x)
    return (line, (i + 1) % line.shape[0]), line.sum(0) + line[0]


def new_line_is_given(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
    line, i = carry
    line = put(line, i, x)
    return (line, (i + 1) % line.shape[0]), line


STEPS: dict[str, Callable[[Carry, Tensor], tuple[Carry, Tensor]]] = {
    each.__name__: each for each in (echo, read_behind, new_line_is_read, new_line_is_given)
}


@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 16), (3, 2, 33)])
@pytest.mark.parametrize("name", STEPS)
def test_changes(name: str, shape: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(1)
    init, xs = (torch.randn(shape), torch.tensor(1)), torch.randn(23, *shape[1:])
    package_checks.check_step(tmp_path_factory, STEPS[name], init, xs, 23, packaged.NATIVE, 2e-6)


@pytest.mark.parametrize("target", packaged.MACHINES)
def test_changes_on_other_machines(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(2)

    def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        line, i = carry
        y = x + 0.5 * line[i]
        return (line.index_put((i,), y), torch.where(i == 4, 0, i + 1)), y

    init, xs = (torch.randn(5, 3), torch.tensor(0, dtype=torch.int32)), torch.randn(23, 3)
    package_checks.check_step(tmp_path_factory, step, init, xs, 23, [target], 2e-6)


def test_a_step_that_fails_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(line: Tensor, x: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        i, j, value = x
        return put(line, i, value), line[j]

    example = (torch.zeros(6, 3), (torch.tensor(0), torch.tensor(0), torch.zeros(3)))
    model = packaged.loaded(
        weft.package(step, example, tmp_path_factory.mktemp("packages") / "model"), tmp_path_factory
    )
    line = torch.zeros(6, 3)
    for t in range(30):
        value = torch.randn(3)
        for i, j in ((t % 6, 6), (6, t % 6)):
            with pytest.raises(RuntimeError, match="an index is outside its table"):
                model.step(torch.tensor(i), torch.tensor(j), value)
        assert torch.equal(model.step(torch.tensor(t % 6), torch.tensor(5 - t % 6), value), line[5 - t % 6])
        line[t % 6] = value
        assert torch.equal(model.state["carry"], line)


def test_a_step_takes_as_long_for_any_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step_ns(rows: int) -> float:
        init, xs = (torch.zeros(rows), torch.tensor(0)), torch.randn(2000)
        folder = weft.package(echo, (init, xs[0]), tmp_path_factory.mktemp("packages") / "model")
        return package_checks.least_step_ns(packaged.loaded(folder, tmp_path_factory), xs)

    assert step_ns(65536) < 20 * step_ns(16)  # copying 256 KB takes a thousand times as long
