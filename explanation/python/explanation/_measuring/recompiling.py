"""The cost of a changing size: the program's own calls, compiled with and without that size marked as dynamic."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import inspect
import linecache
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from weft._base.torch_private import inductor_config, pytree, reset_code_state
from weft.explanation import _C
from weft.explanation._measuring.steps import Race, Step, Variant, compiled, run_once, same
from weft.explanation._report.records import Measured, Recompile, Subject
from weft.explanation._watching.collect import Collected, collect
from weft.explanation._watching.watch import Arguments, Watch, Watched

_ROUNDS = 5  #: times that compiling is measured, if there is time for it; twice in any case
_DYNAMIC = "torch.compile(..., dynamic=True)"


@dataclasses.dataclass
class Cycle(Step):
    """A step that contains every kind of call that the program made."""

    calls: list[Arguments] = dataclasses.field(default_factory=list)

    def run(self, function: Callable[..., Any]) -> Any:
        """The results of all calls."""
        results = []
        for args, kwargs in self.calls:
            self.args, self.kwargs = args, kwargs
            results.append(super().run(function))
        return results


@dataclasses.dataclass
class _Way:
    """A way to compile the calls."""

    options: dict[str, Any]
    step: Cycle
    change: str
    seconds: list[float] = dataclasses.field(default_factory=list)  #: that compiling took, by round
    found: Collected = dataclasses.field(default_factory=Collected)
    variant: Variant | None = None


def measure(
    subject: Subject, watch: Watch, watched: Watched, step: Step, copies: Any, seconds: float, compare: bool
) -> None:
    """Adds to the subject's recompilations what avoiding them saves. copies: makes code for a variant about which
    Dynamo knows nothing yet. compare: results are the same from run to run."""
    calls = list(watched.variety.values())
    again = [each for each in subject.recompiles if _is_about_a_size(each)]
    if not again or len(calls) < 2:
        return
    base = _Way(dict(watched.options), _cycle(step, calls), "")
    reference = run_once(Variant("eager", step.function), base.step) if compare else None
    marked = _marked(watched, calls)
    ways = [_Way(dict(watched.options), _cycle(step, marked[0]), marked[1])] if marked else []
    ways.append(_Way(dict(watched.options) | {"dynamic": True}, _cycle(step, calls), _DYNAMIC))
    begin = time.monotonic()
    try:
        _compile(watch, watched, base, copies, "eager")
        reason = ""
        for way in ways:
            reason = _refusal(watch, watched, way, base, copies, reference)
            if not reason:
                _compare(watch, watched, base, way, copies, begin + seconds, again)
                return
        for each in again:
            each.outcome = reason
    finally:
        _forget(base.step, *(way.step for way in ways))


def _is_about_a_size(again: Recompile) -> bool:
    text = " ".join(again.guards)
    return "size mismatch" in text or ".size()" in text or "shape" in text or "==" in text


def _cycle(step: Step, calls: list[Arguments]) -> Cycle:
    return Cycle(step.function, (), {}, step.train, step.grad, calls)


def _refusal(watch: Watch, watched: Watched, way: _Way, base: _Way, copies: Any, reference: Any) -> str:
    """Why this change isn't offered; empty if it avoids compilations and keeps all results."""
    name = way.change.splitlines()[0]
    try:
        result = _compile(watch, watched, way, copies, "eager")  # other backends draw other random numbers
    except Exception as error:  # whatever Dynamo has against it
        return f"{name}: tried, and it raised {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    if reference is not None and not same(result, reference):
        return f"{name}: tried, and the results are not the same"
    if len(way.found.graphs) >= len(base.found.graphs):
        return f"{name}: tried, and it is compiled as often"
    return ""


def _compile(watch: Watch, watched: Watched, way: _Way, copies: Any, backend: str | None = None) -> Any:
    """The results of the calls compiled anew, with nothing kept from before."""
    reset_code_state()
    events = watch.events
    watch.events, watch.subject = [], watched.number
    try:
        with inductor_config.patch(force_disable_caches=True):
            way.variant = Variant("recompiling", compiled(way.step, way.options, backend), copies(), step=way.step)
            result = run_once(way.variant, way.step)
        way.found = collect(watch.events)
        return result
    finally:
        watch.events, watch.subject = events, -1


def _compare(
    watch: Watch, watched: Watched, base: _Way, way: _Way, copies: Any, until: float, again: list[Recompile]
) -> None:
    """Both compiled in turns, and then run in turns."""
    while len(base.seconds) < 2 or (len(base.seconds) < _ROUNDS and time.monotonic() < until):
        for each in (base, way):
            _compile(watch, watched, each, copies)
            each.seconds.append(each.found.compile_seconds)
    count = len(base.seconds)
    saved = Measured(*_C.paired_difference(base.seconds, way.seconds))
    assert base.variant and way.variant
    Race(base.step, [base.variant, way.variant], max(1.0, (until - time.monotonic()) / 2), 15).run(lambda part: None)
    calls = len(base.step.calls)
    gain = Measured(*(value / calls for value in _C.paired_difference(base.variant.rounds, way.variant.rounds)))
    left = {guard for each in way.found.recompiles for guard in each.guards}
    for each in again:
        if not left & set(each.guards):
            each.change, each.tried, each.saved, each.gain = way.change, True, saved, gain
            each.outcome = (
                f"compiled {count} times: {len(way.found.graphs)} graphs instead of "
                f"{len(base.found.graphs)}, the results are the same"
            )


# Which sizes


def _marked(watched: Watched, calls: list[Arguments]) -> tuple[list[Arguments], str] | None:
    """The calls with the sizes marked that differ between them, and the change in words; None if none does."""
    flat = [pytree.tree_flatten_with_path(call) for call in calls]
    if len({str(spec) for _, spec in flat}) > 1:
        return None
    changing: dict[int, list[int]] = {}
    for index, leaves in enumerate(zip(*(leaves for leaves, _ in flat), strict=True)):
        values = [value for _, value in leaves]
        if all(isinstance(value, torch.Tensor) for value in values) and len({value.dim() for value in values}) == 1:
            dims = [dim for dim in range(values[0].dim()) if len({value.shape[dim] for value in values}) > 1]
            if dims:
                changing[index] = dims
    if not changing:
        return None
    marked: list[Arguments] = []
    for leaves, spec in flat:
        new = [value for _, value in leaves]
        for index, dims in changing.items():
            new[index] = new[index].detach().requires_grad_(new[index].requires_grad)
            torch._dynamo.mark_dynamic(new[index], dims)
        marked.append(pytree.tree_unflatten(new, spec))
    paths = [flat[0][0][index][0] for index in changing]
    return marked, _in_words(watched, list(zip(paths, changing.values(), strict=True)))


def _in_words(watched: Watched, marks: list[tuple[Any, list[int]]]) -> str:
    """The marks as a change of the call in the user's file; as lines where its arguments have no names there."""
    names = [_names(watched, path) for path, _ in marks]
    lines = [
        f"torch._dynamo.mark_dynamic({at_call or inside}, {dims[0] if len(dims) == 1 else dims})"
        for (at_call, inside), (_, dims) in zip(names, marks, strict=True)
    ]
    file, line = watched.place
    statement = _statement(file, line)
    if statement is None or not all(at_call for at_call, _ in names):
        return "\n".join([*lines, f"before the call at {file}:{line}"])
    text = "".join(linecache.getlines(file)).splitlines()
    first = text[statement.lineno - 1]
    margin = first[: len(first) - len(first.lstrip())]
    new = list(text)
    new[statement.lineno - 1 : statement.lineno - 1] = [margin + each for each in lines]
    return "\n".join(difflib.unified_diff(text, new, file, file, lineterm="", n=1))


def _names(watched: Watched, path: Any) -> tuple[str, str]:
    """The argument's name at the call, empty if it has none there; and its name in the function."""
    group, key = path[0].idx, path[1]
    rest = pytree.keystr(path[2:])
    function = watched.function.forward if isinstance(watched.function, torch.nn.Module) else watched.function
    position = getattr(key, "idx", None)
    keyword = key.key if group else ""
    with contextlib.suppress(TypeError, ValueError):
        if not group:
            keyword = list(inspect.signature(function).parameters)[position]
    call = _call(*watched.place)
    found: ast.expr | None = None
    if call is not None:
        if not group and len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args):
            found = call.args[position]
        found = found or next((each.value for each in call.keywords if each.arg == keyword), None)
    simple = isinstance(found, (ast.Name, ast.Attribute)) and not rest
    return ast.unparse(found) if found is not None and simple else "", f"{keyword}{rest}"


def _statement(file: str, line: int) -> ast.stmt | None:
    """The innermost statement at the line."""
    found: ast.stmt | None = None
    for node in _walk(file):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            found = node if found is None or node.lineno >= found.lineno else found
    return found


def _call(file: str, line: int) -> ast.Call | None:
    """The outermost call of a name at the line; None where there are several and none is known to be the one."""
    calls = [
        node for node in _walk(file) if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    named = [call for call in calls if isinstance(call.func, (ast.Name, ast.Attribute)) and call.args + call.keywords]
    inner = {id(node) for call in named for arg in [*call.args, *call.keywords] for node in ast.walk(arg)}
    outer = [call for call in named if id(call) not in inner]
    return outer[0] if len(outer) == 1 else None


def _walk(file: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse("".join(linecache.getlines(file))))
    except SyntaxError:
        return


def _forget(*cycles: Cycle) -> None:
    """The calls may hold much."""
    for cycle in cycles:
        cycle.calls = []
