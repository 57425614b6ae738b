"""Ways around a break whose value is needed: the statement as an operator, a function of its own that Dynamo leaves
alone, the same on the lazy device, and marks taken away."""

from __future__ import annotations

import ast
import dataclasses
import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import torch

from weft import device
from weft.explanation._changes.code import Edit, Put, Source, living, living_functions
from weft.explanation._changes.regions import Region, place_of, region_at
from weft.explanation._changes.rewrites import Change
from weft.explanation._measuring.steps import Step, Variant, run_once
from weft.explanation._report.records import Break

#: How a region is run.
OPERATOR = "the statement as an operator, with torch.library.custom_op"
BOUNDARY = "the loop in a function of its own that Dynamo leaves alone: what is around it is compiled"
DEVICE = 'the loop in a function of its own, on the device "weft": what is around it is compiled'
UNMARKED = "take the mark torch.compiler.disable away"
MISFIT = "does not fit the line's form"


@dataclasses.dataclass
class Bridge:
    """A change that takes more than other code in a function."""

    helper: str = ""  #: text of functions that stand before the one that has the region
    puts: list[Put] = dataclasses.field(default_factory=list)
    deleted: tuple[int, int] | None = None  #: lines of the user's file that go


def ways_around(found: Break) -> list[Change]:
    """The bridges to try, those that leave a single graph first."""
    ways = [UNMARKED] if "disable()`d" in found.type else []
    ways.append(OPERATOR)
    if found.skips_frame and "loop" in found.skipped_by:
        ways += [DEVICE, BOUNDARY] if device.is_registered() else [BOUNDARY]
    return [
        Change(
            way,
            None if way == UNMARKED else outlined(found.line, way != OPERATOR, way == OPERATOR),
            found.line,
            found.file,
            way=way,
        )
        for way in ways
    ]


def outlined(line: int, loop: bool, lift: bool) -> Edit:
    """Replaces the region's statement by a call of its function."""

    def edit(tree: ast.Module) -> ast.Module | None:
        region = region_at(tree, line, loop, lift)
        place = place_of(tree, line, loop)
        if region is None or place is None:
            return None
        body, index = place
        body[index] = ast.copy_location(region.call(), body[index])
        return tree

    return edit


# What goes in and comes out


@dataclasses.dataclass
class Seen:
    """The arguments and results of a region's calls."""

    inputs: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    outputs: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    changes: bool = False  #: it writes to an input
    shared: bool = False  #: a result has the memory of an input, or of another result

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its arguments and results noted."""

        def watched(*inputs: Any) -> Any:
            tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
            versions = [value._version for value in tensors]
            result = function(*inputs)
            outputs = result if isinstance(result, tuple) else (result,)
            self.changes = self.changes or versions != [value._version for value in tensors]
            given = [value for value in outputs if isinstance(value, torch.Tensor)]
            memory = [value.untyped_storage().data_ptr() for value in (*tensors, *given) if value.numel()]
            own = [value.untyped_storage().data_ptr() for value in tensors if value.numel()]
            self.shared = self.shared or len(set(memory)) - len(set(own)) < len(memory) - len(own)
            self.inputs.append(tuple(map(_described, inputs)))
            self.outputs.append(tuple(map(_described, outputs)))
            return result

        return watched


@dataclasses.dataclass(frozen=True)
class Described:
    """A tensor, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    gradient: bool


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Described(tuple(value.shape), value.dtype, value.requires_grad)
    return type(value)


# Texts


def operator_text(region: Region, seen: Seen, namespace: str) -> str:
    """The region as an operator whose results have the sizes that they had in every call.

    Raises:
        ValueError: it can't be one; the message says why.
    """
    if not seen.inputs:
        raise ValueError("it does not run without torch.compile")
    types = [_annotation(name, [call[i] for call in seen.inputs]) for i, name in enumerate(region.parameters)]
    if len({len(call) for call in seen.outputs}) != 1:
        raise ValueError("it returns now more, now fewer values")
    count = len(seen.outputs[0])
    if not (region.returns or region.results) or any(
        not isinstance(value, Described) for call in seen.outputs for value in call
    ):
        raise ValueError("its results are not all tensors")
    if seen.changes:
        raise ValueError("it writes to its inputs")
    if any(value.gradient for call in seen.outputs for value in call):
        raise ValueError("a gradient goes through it, and an operator needs a backward of its own")
    if not any(isinstance(value, Described) for value in seen.inputs[0]):
        raise ValueError("it takes no tensor")
    fakes = [_fake(region, seen, i) for i in range(count)]
    returned = "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"
    names = ", ".join(region.parameters)
    own = ".clone(memory_format=torch.contiguous_format)" if seen.shared else ".contiguous()"
    body = ast.unparse(_owning(region, own, count))
    lines = body.splitlines()
    lines[0] = f"def {region.name}({', '.join(types)}) -> {returned}:"
    return "\n".join(
        [
            f'@torch.library.custom_op("{namespace}::{region.name.strip("_")}", mutates_args=())',
            *lines,
            "",
            "",
            f"@{region.name}.register_fake",
            f"def {region.name}_sizes({names}):",
            f"    return {', '.join(fakes)}",
        ]
    )


def _owning(region: Region, own: str, count: int) -> ast.FunctionDef:
    """The region's function with its results copied by the expression `own`. An operator must own its results, in the
    layout of its fake's."""
    if not region.returns:
        return region.function([f"{name}{own}" for name in region.results])
    function = region.function()
    (statement,) = function.body
    assert isinstance(statement, ast.Return) and statement.value is not None
    if count == 1:
        text = f"def f():\n    return ({ast.unparse(statement.value)}){own}"
    else:
        text = f"def f():\n    return tuple(each{own} for each in {ast.unparse(statement.value)})"
    function.body = ast.parse(text).body[0].body  # type: ignore[attr-defined]
    return function


def _annotation(name: str, values: list[Any]) -> str:
    kinds = {torch.Tensor if isinstance(value, Described) else value for value in values}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is torch.Tensor:
            return f"{name}: torch.Tensor"
        if kind in (bool, int, float, str):
            return f"{name}: {kind.__name__}"
    words = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"it takes {name}, of {words}: an operator takes tensors and numbers")


def _fake(region: Region, seen: Seen, index: int) -> str:
    """The result without values: shaped like an input if it always is, else of the one size that it always has."""
    outputs = [call[index] for call in seen.outputs]
    for i, name in enumerate(region.parameters):
        if all(
            isinstance(call[i], Described) and (call[i].shape, call[i].dtype) == (out.shape, out.dtype)
            for call, out in zip(seen.inputs, outputs, strict=True)
        ):
            return f"torch.empty_like({name}, memory_format=torch.contiguous_format)"
    if len({(out.shape, out.dtype) for out in outputs}) > 1:
        raise ValueError("the sizes of its results change from call to call")
    like = next(n for n, value in zip(region.parameters, seen.inputs[0], strict=True) if isinstance(value, Described))
    return f"{like}.new_empty({outputs[0].shape}, dtype={outputs[0].dtype})"


def boundary_text(region: Region, seen: Seen, way: str) -> str:
    """The region as a function that Dynamo doesn't compile. With `way` DEVICE it moves its tensors to the device, and
    its results back.

    Raises:
        ValueError: it can't be one; the message says why.
    """
    if not seen.inputs:
        raise ValueError("it does not run without torch.compile")
    function = region.function()
    if way == DEVICE:
        if seen.changes:
            raise ValueError("it writes to its inputs")
        moved = [n for n, value in zip(region.parameters, seen.inputs[0], strict=True) if isinstance(value, Described)]
        back = [
            f'{name}.to("cpu")' if isinstance(value, Described) else name
            for name, value in zip(region.results, seen.outputs[0], strict=False)
        ]
        if not moved or not back:
            raise ValueError("no tensor goes in and out")
        function = region.function(back)
        there = "\n".join(f'{name} = {name}.to("weft")' for name in moved)
        function.body = [*ast.parse(there).body, *function.body]
    return "@torch.compiler.disable\n" + ast.unparse(ast.fix_missing_locations(function))


class Builder:
    """Makes bridges for one step; each once, since an operator's name is for the whole process."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._made: dict[tuple[str, str, int], Bridge | str] = {}

    def bridge(self, change: Change, source: Source) -> Bridge:
        """What the change needs in addition to its edit.

        Raises:
            ValueError: there is none; the message says why.
        """
        key = change.way, change.file, change.line
        if key not in self._made:
            try:
                self._made[key] = self._make(change, source)
            except ValueError as error:
                self._made[key] = str(error)
        found = self._made[key]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _make(self, change: Change, source: Source) -> Bridge:
        if source.tree is None:
            raise ValueError(MISFIT)
        if change.way == UNMARKED:
            return _unmarked(source.tree, change.line)
        region = region_at(source.tree, change.line, change.way != OPERATOR, change.way == OPERATOR)
        edited = source.edited([change.edit]) if change.edit else None
        swaps = source.swaps(edited, [change.line]) if edited is not None else None
        if region is None or not swaps:
            raise ValueError(MISFIT)
        # Runs the region's plain text first, to see its arguments and results.
        namespaces = list({id(function.__globals__): function.__globals__ for function, _ in swaps}.values())
        seen = Seen()
        plain = [
            (names, region.name, seen.watching(_defined(ast.unparse(region.function()), region.name, names)))
            for names in namespaces
        ]
        variant = Variant("watched", self._step.function, swaps, puts=plain)
        for _ in range(2):
            try:
                run_once(variant, self._step)
            except Exception as error:
                raise ValueError(f"as a function of its own it raised {type(error).__name__}: {_line(error)}") from None
        if change.way == OPERATOR:
            text = operator_text(region, seen, re.sub(r"\W", "_", Path(change.file).stem))
        else:
            text = boundary_text(region, seen, change.way)
        puts = [(names, region.name, _defined(text, region.name, names)) for names in namespaces]
        if any("torch" not in names for names in namespaces):
            text = f"import torch\n\n\n{text}"
            puts += [(names, "torch", torch) for names in namespaces if "torch" not in names]
        return Bridge(text, puts)


def _defined(text: str, name: str, names: dict[str, Any]) -> Any:
    """The object that the text defines under the name, for a module with these global names."""
    own: dict[str, Any] = {"torch": torch}
    try:
        exec(compile(text, f"<{name}>", "exec", dont_inherit=True), names, own)
    except Exception as error:  # whatever torch.library has against it
        raise ValueError(f"{type(error).__name__}: {_line(error)}") from None
    return own[name]


# Marks


def _unmarked(tree: ast.Module, line: int) -> Bridge:
    """The function called at the line without torch.compiler.disable, wherever its name is."""
    called = {
        name for node in ast.walk(tree) if isinstance(node, ast.Call) and _covers(node, line) for name in _last(node)
    }
    marks = [*living_functions(lambda each: each.__dict__.get("_torchdynamo_disable") and each.__name__ in called)]
    puts = [put for mark in marks if hasattr(mark, "_torchdynamo_orig_callable") for put in _places(mark)]
    if not puts:
        raise ValueError("the function called was not found by its name")
    return Bridge(puts=puts, deleted=_decorator(tree, called))


def _covers(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _last(node: ast.Call) -> list[str]:
    if isinstance(node.func, ast.Attribute):
        return [node.func.attr]
    return [node.func.id] if isinstance(node.func, ast.Name) else []


def _places(mark: FunctionType) -> list[Put]:
    original = mark.__dict__["_torchdynamo_orig_callable"]
    found: list[Put] = [(cell, "", original) for cell in gc.get_referrers(mark) if isinstance(cell, CellType)]
    spaces = {id(space): space for space in (vars(module) for module in list(sys.modules.values()))}
    for thing in living():
        if type(thing) is FunctionType:  # a module that is run, not imported, is in no list
            spaces[id(thing.__globals__)] = thing.__globals__
        elif issubclass(type(thing), type):
            found += [(thing, name, original) for name, value in list(vars(thing).items()) if value is mark]
    for space in spaces.values():
        found += [(space, name, original) for name, value in list(space.items()) if value is mark]
    return found


def _decorator(tree: ast.Module, names: set[str]) -> tuple[int, int] | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            for each in node.decorator_list:
                if ast.unparse(each).split("(")[0].split(".")[-1] == "disable":
                    return each.lineno, each.end_lineno or each.lineno
    return None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:120]
