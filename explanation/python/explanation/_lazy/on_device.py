"""The same step on the device "weft": recorded, and run as programs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from weft import device
from weft._base.torch_private import pytree
from weft.explanation._lazy.cuts import Cut, Cuts
from weft.explanation._measuring.steps import Step, Variant, as_near, run_once, same
from weft.explanation._watching.watch import tensors

#: An error of pack_padded_sequence. With tensors on any device it takes only lengths on the CPU, so a user would have
#: left the lengths there.
_WANTS_LENGTHS = "'lengths' argument should be a 1D CPU int64 tensor"
_WARM = 4  #: runs after which a step's record has been seen, compiled and found again


@dataclasses.dataclass
class Lazy:
    """The device's counts for the step."""

    variant: Variant | None
    programs: int | None  #: a step
    cuts: list[Cut]  #: of a step, but for the last
    note: str


def prepare(step: Step, reference: Any) -> Lazy:
    """The step on copies that live on the device. If that isn't possible, the note says why."""
    if not device.is_registered():
        return Lazy(None, None, [], "the device is not registered in this process")
    try:
        try:
            variant, moved, result = _warmed(_moved(step, _to_device))
        except RuntimeError as error:
            if _WANTS_LENGTHS not in str(error):
                raise
            variant, moved, result = _warmed(_moved(step, _to_device_but_lengths))
        batches, cuts = _counted(variant, moved)
    except Exception as error:
        return _not_run(error)
    differs = reference is not None and not same(result, reference) and not _is_as_near(step, result, reference)
    note = "its results are not within 1e-4 of the CPU's, nor as near to float64's" if differs else ""
    asked = [cut for cut in cuts if cut.asked_by != "sync"]
    return Lazy(variant, batches, asked, note)


def _is_as_near(step: Step, result: Any, reference: Any) -> bool:
    """Whether the result is about as near to the step's result in float64 as the CPU's result in float32 is. The
    gradients of some networks depend on small differences, so each order of additions gives other gradients."""
    try:
        exact_step = _moved(step, _to_double, lambda module: copy.deepcopy(module).double())
        exact = run_once(Variant("exact", exact_step.function, step=exact_step), exact_step)
    except Exception:  # a step that has no float64
        return False
    return as_near(result, reference, exact)


def _warmed(moved: Step) -> tuple[Variant, Step, Any]:
    variant = Variant("lazy", moved.function, after=device.sync, step=moved)
    result = None
    for _ in range(_WARM):
        result = run_once(variant, moved)
    return variant, moved, result


def _counted(variant: Variant, step: Step) -> tuple[int, list[Cut]]:
    """The number of graphs of a step whose results are held but not read, and where it is cut."""
    step.clear_gradients()
    before = device.stats()
    with Cuts() as watched:
        result = step.run(variant.call)
        device.sync()
    after = device.stats()
    del result
    return sum(after[name] - before[name] for name in ("compiled_batches", "plain_batches")), watched.found


def _not_run(error: Exception) -> Lazy:
    return Lazy(None, None, [], f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


def _moved(step: Step, leaf: Callable[[Any], Any], copied: Callable[[nn.Module], nn.Module] | None = None) -> Step:
    """A step of copies of the modules, on the device if nothing else is said. `leaf` moves an argument."""
    copied = copied or _copied
    args, kwargs = pytree.tree_map(leaf, (step.args, step.kwargs))
    function: Callable[..., Any] = step.function
    owner = getattr(function, "__self__", None)
    if isinstance(function, nn.Module):
        function = copied(function)
    elif isinstance(owner, nn.Module):
        function = getattr(copied(owner), function.__name__)
    elif isinstance(function, FunctionType) and step.modules():
        function = _with_modules_moved(function, copied)
    elif not tensors((args, kwargs)):
        raise ValueError("no argument is a tensor")
    return Step(function, args, kwargs, step.train, step.grad)


def _with_modules_moved(function: FunctionType, copied: Callable[[nn.Module], nn.Module]) -> FunctionType:
    """The function with copies of the modules that it reaches by global names or its closure."""
    copies: dict[int, nn.Module] = {}

    def moved(value: Any) -> Any:
        if not isinstance(value, nn.Module):
            return value
        return copies.setdefault(id(value), copies.get(id(value)) or copied(value))

    names = {name: moved(value) for name, value in function.__globals__.items() if name in function.__code__.co_names}
    cells = tuple(CellType(moved(cell.cell_contents)) for cell in function.__closure__ or ())
    new = FunctionType(
        function.__code__, function.__globals__ | names, function.__name__, function.__defaults__, cells or None
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _copied(module: nn.Module) -> nn.Module:
    """A copy on the device; parameters that were the same object still are."""
    return copy.deepcopy(module).to("weft")


def _to_device_but_lengths(leaf: Any) -> Any:
    is_lengths = isinstance(leaf, torch.Tensor) and leaf.dim() == 1 and leaf.dtype == torch.int64
    return leaf if is_lengths else _to_device(leaf)


def _to_double(leaf: Any) -> Any:
    is_real = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.detach().double().requires_grad_(leaf.requires_grad) if is_real else leaf


def _to_device(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().to("weft").requires_grad_(leaf.requires_grad)
