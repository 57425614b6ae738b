"""Every operation in place with a number among its arguments, in a step: part of the program, right, and else with a
reason in the words of the user's program."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import loop
from torch import Tensor

import weft


def schemas() -> list[Any]:
    """All of ATen's operations that change their first argument and take a number."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        first, *others = schema.arguments or [None]
        if not schema.name.startswith("aten::") or not re.fullmatch(r"(__i\w+__|[a-z]\w*[a-z0-9]_)", schema.name[6:]):
            continue
        if first is None or first.alias_info is None or not first.alias_info.is_write:
            continue
        if any(str(argument.type) in ("number", "Optional[number]") for argument in others):
            found.append(schema)
    return found


SCHEMAS = schemas()


def name_of(schema: Any) -> str:
    return f"{schema.name[6:]}.{schema.overload_name}" if schema.overload_name else schema.name[6:]


#: Arguments that are no numbers, by operation: tensors that go with the state [3, 4].
ARGUMENTS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "addr_": lambda u: (u[:, 0].clone(), u[0].clone()),
    "addmm_": lambda u: (torch.ones(3, 2, dtype=u.dtype), u[:2].clone()),
    "addbmm_": lambda u: (torch.ones(2, 3, 2, dtype=u.dtype), torch.stack([u[:2]] * 2)),
    "index_add_": lambda u: (0, torch.tensor([0, 2]), u[:2].clone()),
    "scatter_": lambda u: (0, torch.tensor([[0, 1], [1, 0]])),
    "index_fill_": lambda u: (0, torch.tensor([0, 2])),
    "masked_fill_": lambda u: (u > 2,),
    "renorm_": lambda u: (2, 0),
    "addcmul_": lambda u: (u.clone(), u.clone()),
    "addcdiv_": lambda u: (u.clone(), u.clone()),
    "lerp_": lambda u: (u.clone(),),
    "clamp_": lambda u: (1.5, 2.5),
    "clip_": lambda u: (1.5, 2.5),
    "add_.Tensor": lambda u: (u.clone(),),
    "sub_.Tensor": lambda u: (u.clone(),),
    "subtract_.Tensor": lambda u: (u.clone(),),
    "rrelu_with_noise_": lambda u: (torch.empty_like(u),),
}
#: Operations that take another state: [3], or [1, 3, 4].
SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "addmv_": lambda u: (u[:, 0].clone(), torch.ones(3, 4, dtype=u.dtype), u[0].clone()),
    "baddbmm_": lambda u: (u[None].clone(), torch.ones(1, 3, 2, dtype=u.dtype), u[None, :2].clone()),
}
#: The reasons why no program has them.
REASONS = {
    "fill_diagonal_": "no place in memory",
    "addr_": "can't tell the result's shape",
    "scatter_.value_reduce": "derivative is not known",
    "rrelu_": "random numbers that can't be drawn ahead",
    "rrelu_with_noise_": "random numbers|autograd refuses|as_strided",
}


def applied(schema: Any, u: Tensor) -> Tensor:
    """The state after the operation."""
    op = getattr(getattr(torch.ops.aten, schema.name[6:]), schema.overload_name or "default")
    bare = schema.name[6:]
    if bare in SHAPES:
        u, *given = SHAPES[bare](u)
    else:
        given = list(ARGUMENTS.get(name_of(schema), ARGUMENTS.get(bare, lambda u: ()))(u))
    numbers = {}
    for argument in schema.arguments[1 + len(given) :]:
        if str(argument.type) == "number":
            numbers[argument.name] = 2
        elif argument.name == "rounding_mode":
            numbers[argument.name] = "floor"
        elif argument.name == "reduce":
            numbers[argument.name] = "add"
        elif not argument.has_default_value():
            numbers[argument.name] = 1
    op(u, *given, **numbers)
    return u


def results(run: Callable[..., Any], step: Any, start: Tensor, xs: Tensor) -> list[Tensor]:
    """The results, and the gradient of the first state where it asks for one."""
    torch.manual_seed(0)
    h, ys = run(step, start, xs)
    found = [h, ys]
    if start.requires_grad and (h.requires_grad or ys.requires_grad):
        found.append(torch.autograd.grad(h.sum() + ys.sum(), start)[0])
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("schema", SCHEMAS, ids=name_of)
def test_numbers_in_place(schema: Any) -> None:
    tried = 0
    for dtype, with_gradient in ((torch.float64, True), (torch.float64, False), (torch.int64, False)):
        start = (torch.rand(3, 4) * 3 + 1).to(dtype).requires_grad_(with_gradient)
        xs = torch.ones(3, 3, 4, dtype=dtype)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            u = h + x
            y = applied(schema, u)
            return u, y.clone()

        try:
            expected = results(loop, step, start, xs)
        except (RuntimeError, TypeError, IndexError):  # no kernel for the type, or no derivative
            continue
        tried += 1
        before = dict(weft.stats()["fallbacks"])
        torch.testing.assert_close(results(weft.scan, step, start, xs), expected, equal_nan=True)
        counted = weft.stats()["fallbacks"]
        reasons = [text for text in counted if text.startswith("weft.scan") and counted[text] != before.get(text)]
        wanted = REASONS.get(schema.name[6:], REASONS.get(name_of(schema)))
        assert wanted is not None or not reasons, reasons
        for reason in reasons:
            assert re.search(wanted, reason) and not re.search("meta|device|[Ss]tand-in", reason), reason
    assert tried


def test_what_does_not_fit_is_pytorchs_error() -> None:
    for change, message in (
        (lambda u: u.addr_(torch.ones(2), torch.ones(4)), "size"),
        (lambda u: u.floor_divide_(torch.ones(2, 3, 4)), "doesn't match the broadcast shape"),
    ):

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            u = h + x
            change(u)  # noqa: B023
            return u, u

        with pytest.raises(RuntimeError, match=message):
            weft.scan(step, torch.ones(3, 4), torch.ones(2, 3, 4))


@pytest.mark.parametrize("divide", [lambda u: u.floor_divide_(2), lambda u: u.floor_divide_(torch.tensor(2.0))])
def test_floor_division_in_place(divide: Callable[[Tensor], Tensor]) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        u = h + x
        divide(u)
        return u, u.clone()

    start, xs = torch.rand(3, 4) * 9, torch.rand(5, 3, 4) * 7
    torch.testing.assert_close(weft.scan(step, start, xs), loop(step, start, xs))
    assert not weft.stats()["fallbacks"]
