"""Programs captured from functions, found again by the record of a run of the functions.

At every call the function is run once on tensors that hold nothing (`record`). A program is used only if the record
that it was made from, filled with this call's sizes and numbers, is word for word the record of this run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base.errors import (
    FailedError,
    LeakError,
    SideEffectError,
    UnrecordableError,
    UnsupportedError,
    raise_if_internal,
)
from weft._base.torch_private import len_torch_dispatch_stack
from weft._capture import modes, record, trace
from weft._capture.complex_numbers import as_pairs
from weft._capture.runs import Function, Run, Wider
from weft._capture.traced import Noise, Traced

Shape = Sequence[Any]


@dataclasses.dataclass
class Captured:
    """A program with everything needed to call it again."""

    program: Any  #: a _C.Program; or several, if `compose` makes several; or the error that says why there is none
    noise: list[Noise]
    extra: list[Any]  #: what the functions returned beside tensors
    templates: list[_C.Template]
    #: for each function: tensors that belong to the program, after the tensors from outside
    constants: list[list[Tensor]]
    scan: Any = None  #: a _C.KnownScan, where _C.scan_again may call it

    @functools.cached_property
    def bytes(self) -> int:
        programs = self.program if isinstance(self.program, tuple) else (self.program,)
        size = sum(len(program.text) for program in programs if isinstance(program, _C.Program))
        size += sum(tensor.nbytes for tensors in self.constants for tensor in tensors)
        return size + sum(template.bytes for template in self.templates)

    def inputs(self, runs: Sequence[Run]) -> list[Tensor]:
        """The program's inputs beside arguments and random numbers."""
        tensors: list[Tensor] = []
        for run, template, constants in zip(runs, self.templates, self.constants, strict=True):
            tensors += as_pairs(run.recording.outside)
            if template.free:
                numbers = template.free_numbers(run.recording)
                tensors += [torch.tensor(number, dtype=torch.float64, device="cpu") for number in numbers]
            tensors += constants
        return tensors

    def differing_numbers(self, runs: Sequence[Run]) -> list[list[int]] | None:
        """The numbers that must be inputs for the program to serve these runs; None if the runs differ in other ways
        too."""
        found = []
        for template, extra, run in zip(self.templates, self.extra, runs, strict=True):
            differing = template.differing_numbers(run.recording)
            if extra != run.extra or not (differing or template.matches(run.recording)):
                return None
            found.append([*template.free, *differing])
        return found


@dataclasses.dataclass
class Found:
    """A program for one call."""

    captured: Captured
    inputs: list[Tensor]  #: beside arguments and random numbers
    runs: list[Any]

    @property
    def extra(self) -> list[Any]:
        """What the functions of this call returned besides tensors."""
        return [run.extra for run in self.runs]


def find(
    what: str,
    key: Any,
    functions: Sequence[Function],
    compose: Callable[[list[Traced]], Any],
    runs: list[Run] | None = None,
) -> Found:
    """The program that `compose` makes of the functions' programs, or one that it made before for functions with the
    same records.

    `key`: what the program depends on besides the records. `runs`: the functions' runs, where they have been run for
    this call.

    Raises the errors of record.record, and UnsupportedError if there is no such program.
    """
    if runs is None and modes.is_tracing():
        with modes.without_tracing(), torch.enable_grad():  # a trace has gradients where it runs, not where it was made
            return find(what, key, functions, compose)
    if modes.in_forward_mode() and not torch.is_grad_enabled():
        with torch.enable_grad():  # a tangent passes where a gradient doesn't
            return find(what, key, functions, compose)
    if runs is None:
        tensors = [leaf for function in functions for leaf in function.leaves if isinstance(leaf, Tensor)]
        if not modes.is_recordable(tensors):
            return _find_anew(functions, compose)
        try:
            runs = [record.record(function) for function in functions]
        except UnrecordableError:
            return _find_anew(functions, compose)
    full_key, extra, recordings = (what, key), [run.extra for run in runs], [run.recording for run in runs]
    program = table.find(full_key, extra, recordings)
    if program is None:
        program = _capture(full_key, functions, runs, compose)
        table.put(full_key, extra, recordings, program.templates, program, program.bytes)
    for function, run in zip(functions, runs, strict=True):
        run.backwards.clear()
        record.refuse_leaks(function, run)
    if isinstance(program.program, UnsupportedError):
        raise UnsupportedError(*program.program.args)
    return Found(program, program.inputs(runs), runs)


def or_else(what: str, run: Callable[[], Any], plainly: Callable[[], Any]) -> Any:
    """`run()`, or `plainly()` where there is no program. Within a recording the operations of `plainly` become a part
    of the program of the surrounding function, and are counted with it."""
    try:
        return run()
    except UnsupportedError as error:
        if not _C.recording():
            _C.report_fallback(what, str(error))
        return plainly()
    except FailedError as failure:
        error = failure.__cause__
    # PyTorch raises an error of the user's too, and in its own words.
    result = plainly()
    if not _C.recording():
        _C.report_fallback(what, str(error) if error is None else record.failure(error))
    return result


def _capture(
    key: Any, functions: Sequence[Function], runs: list[Run], compose: Callable[[list[Traced]], Any]
) -> Captured:
    """Makes a new program. If it differs from an earlier one in numbers only, these numbers become inputs."""
    recordings = [run.recording for run in runs]
    known = table.alike(key, recordings)
    others = [numbers for program in known if (numbers := program.differing_numbers(runs)) is not None]
    none: list[list[int]] = [[] for _ in runs]
    fixed = [dataclasses.replace(function, dynamic=_no_dims, more_dynamic=None) for function in functions]
    ways: list[tuple[Sequence[Function], list[list[int]]]] = [(functions, none), (fixed, none)]
    wider = _wider(functions, table.widening(key, recordings)) if known else functions
    if wider is not functions:
        ways.insert(0, (wider, none))
    if others:
        ways.insert(0, (wider, others[0]))
    for way, free in ways:
        try:
            pairs = [trace.of_run(*each) for each in zip(way, runs, free, strict=True)]
            traces = [traced for traced, _ in pairs]
            return Captured(
                compose(traces),
                [noise for traced in traces for noise in traced.noise],
                [run.extra for run in runs],
                [template for _, template in pairs],
                [traced.captured[len(traced.captured) - traced.constants :] for traced in traces],
            )
        except LeakError:
            for function, run in zip(functions, runs, strict=True):  # with tensors of the sizes that the user knows
                record.refuse_leaks(function, run)
            raise
        # The function has run, so the effect isn't its own but that of an operation in a decomposition.
        except SideEffectError as error:
            refused = UnsupportedError(f"{error.__context__ or error}: changes a tensor in place")
        except Exception as error:  # the function itself has run; what it did is more than a program can hold
            raise_if_internal(error)
            refused = _located(error, functions)
    for function in functions:  # runs above may have replaced what the function's own run kept
        with record.randomness_kept():
            again = record.record(function)
        again.backwards.clear()
        record.refuse_leaks(function, again)
    templates = [_C.exact_template(run.recording) for run in runs]
    return Captured(
        UnsupportedError(record.in_words(str(refused)) or type(refused).__name__),
        [],
        [run.extra for run in runs],
        templates,
        [[] for _ in runs],
    )


def _located(error: Exception, functions: Sequence[Function]) -> Exception:
    """The error, with the line of its operation added if it knows the operation."""
    if not isinstance(error, UnsupportedError) or error.operation is None or len(functions) != 1:
        return error
    place = record.place_of(functions[0], error.operation)
    return UnsupportedError(f"{error} {place}".rstrip())


def _wider(functions: Sequence[Function], widening: _C.Widening | None) -> Sequence[Function]:
    """The functions, each with the sizes in which its calls have differed."""
    if widening is None:
        return functions
    wider = []
    for function, sizes in zip(functions, widening.sizes, strict=True):
        sizes = [size for size in sizes if size[:2] not in function.never_dynamic]
        wider.append(dataclasses.replace(function, wider=Wider(widening, sizes)) if sizes else function)
    return wider


def _no_dims(_: int, __: Tensor) -> tuple[int, ...]:
    return ()


@dataclasses.dataclass
class _Untold:
    """Takes the place of a run where functions are traced without one."""

    extra: Any


def _find_anew(functions: Sequence[Function], compose: Callable[[list[Traced]], Any]) -> Found:
    """Captures at each call what no recording can hold (tensors of a trace, subclasses), since nothing tells whether
    the function does the same as before."""
    traces = [trace.of_function(function) for function in functions]
    extras = [traced.extra for traced in traces]
    program = Captured(compose(traces), [n for traced in traces for n in traced.noise], extras, [], [])
    tensors = as_pairs([tensor for traced in traces for tensor in traced.captured])
    return Found(program, tensors, [_Untold(extra) for extra in extras])


def draw(
    noise: Sequence[Noise],
    shapes: list[Shape],
    inputs: Sequence[Tensor],
    steps: Callable[[], Sequence[int]] | None,
    length: Any,
) -> list[Tensor]:
    """Random numbers, drawn in the order of a plain loop over `steps()`; without steps each is drawn once.

    Raises UnsupportedError within a recording if drawing for all steps at once, as a recording does, would give other
    numbers.
    """
    if not noise:
        return []
    lead = [] if steps is None and length is None else [length]
    if lead and _C.recording() and not _drawn_at_once(noise, steps):
        raise UnsupportedError(
            "random numbers in a scan within another function: drawn for all steps at once they would be others than "
            "the loop's for the same seed; draw them in front of the scan, and give them as xs"
        )
    stacks = [torch.empty([*lead, *one.shape(shapes)], dtype=one.dtype, device="cpu") for one in noise]
    traced = _C.recording() or len_torch_dispatch_stack() > 0
    if not lead or traced or not all(map(modes.is_plain, inputs)):
        return [one.draw(stack) for stack, one in zip(stacks, noise, strict=True)]
    for t in steps() if steps is not None else ():
        for stack, one in zip(stacks, noise, strict=True):
            one.draw(stack[t])
    return stacks


def _drawn_at_once(noise: Sequence[Noise], steps: Callable[[], Sequence[int]] | None) -> bool:
    """Whether PyTorch draws the same numbers for all steps at once as step by step. It does for methods that draw
    element by element on every CPU; other methods draw in pairs or in vectors."""
    if len(noise) > 1 or noise[0].method not in ("uniform_", "random_"):
        return False
    order = list(steps()) if steps is not None else []
    return order == sorted(order)


def kept() -> dict[str, int]:
    """The numbers of captured programs kept, of the most that are kept, of bytes of their records and texts, and of
    compiled programs kept."""
    most, executables = table.most, _C.kept_programs()[1]
    return {"programs": len(table), "most": most, "bytes": table.bytes, "executables": executables}


table = _C.CapturedTable()
