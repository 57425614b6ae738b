"""Why a lazily traced step was cut, and what to do about it, in plain words."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from weft._capture.stats import stats
from weft.explanation._changes.code import Source
from weft.explanation._changes.rewrites import branch_at, statement_at
from weft.explanation._lazy.cuts import Cut
from weft.explanation._report.text import shown

BRANCH, PRINTED, NUMBER, COPY = "Branch on a tensor", "Printed tensor", "Number asked for", "Copy to the CPU"
SHAPE, AT_ONCE, LONG, SYNC = "Shape that depends on values", "Operation that runs at once", "Long record", "Sync"

_WORDS = {
    BRANCH: (
        "which branch runs is known only when the values are, so what was recorded runs first",
        "compute both branches and choose with torch.where",
    ),
    PRINTED: (
        "what is printed or logged needs values, so what was recorded runs first",
        "print behind the end of the step (weft.sync(), xm.add_step_closure), or every hundredth step",
    ),
    NUMBER: (
        "a tensor's value is asked for as a Python number, so what was recorded runs first",
        "keep it as a tensor (total += loss.detach()), and ask for the number behind the loop",
    ),
    COPY: (
        "a tensor is copied to the CPU, so what was recorded runs first",
        "keep it on the device, and copy behind the end of the step",
    ),
    SHAPE: (
        "the size of the result depends on values, so the operation runs at once",
        "use one of fixed size: a mask with torch.where, topk, index_add with weights of 0",
    ),
    AT_ONCE: (
        "the device can't record the operation, so it runs at once on PyTorch's kernel",
        "move it out of the step, or write it with other operations",
    ),
    LONG: (
        "more was recorded than a record may hold, so it ran without being asked",
        "end steps more often with weft.sync()",
    ),
    SYNC: ("the program ends the record itself in the middle of a step", "leave out all but one sync of a step"),
}

_SHAPES = ("nonzero", "masked_select", "unique", "index", "repeat_interleave", "bincount", "where")
_PRINTS = ("print", "log", "debug", "info", "warning", "error", "write", "set_postfix", "add_scalar")


def type_of(cut: Cut, source: Source) -> str:
    """The kind of the reason."""
    operation = cut.asked_by.removeprefix("aten::")
    if cut.asked_by in ("long", "sync"):
        return LONG if cut.asked_by == "long" else SYNC
    if operation.startswith(("_local_scalar_dense", "copy_", "is_nonzero", "equal")):
        if source.tree is not None and branch_at(source.tree, cut.line) is not None:
            return BRANCH
        if _prints(source, cut.line):
            return PRINTED
        return COPY if operation == "copy_" else NUMBER
    return SHAPE if operation.lstrip("_").startswith(_SHAPES) and not _refused(cut.asked_by) else AT_ONCE


def explanation_of(cut: Cut) -> str:
    """The device's explanation for an operation that it can't record."""
    return _refused(cut.asked_by) or f"{cut.asked_by} asked for values"


def causes(cuts: Sequence[Cut]) -> list[str]:
    """The reason of each line that cuts a step."""
    sources: dict[str, Source] = {}
    found: dict[str, int] = {}
    for cut in cuts:
        source = sources.setdefault(cut.file, Source(cut.file))
        reason = in_words(type_of(cut, source))
        words = f"{shown(cut.file)}:{cut.line}: {reason}" if cut.file else f"{cut.asked_by}: {reason}"
        found[words] = found.get(words, 0) + 1
    return [words + (f" ({count} times a step)" if count > 1 else "") for words, count in found.items()]


def _refused(operation: str) -> str:
    """The reason of a fallback, which begins with the operation's name."""
    reasons = [reason.removeprefix("device weft: ") for reason in stats()["fallbacks"]]
    return next((reason for reason in reasons if reason.startswith(f"{operation}:")), "")


def in_words(type_: str) -> str:
    """The meaning of the reason."""
    return _WORDS[type_][0]


def advice(type_: str) -> str:
    """What to do, in words."""
    return _WORDS[type_][1]


def advice_for_record(differs: str) -> str:
    """How to keep a step from having a new record for this reason."""
    if "of an input" in differs:
        return "a size changed: pad batches to a few sizes, or leave the last one out (drop_last=True)"
    if "the argument" in differs or "number" in differs:
        return "a Python number changed: give it as a tensor on the device"
    return "the step did other operations: keep what it does the same from step to step"


def _prints(source: Source, line: int) -> bool:
    """Whether the statement at the line prints or logs."""
    place = statement_at(source.tree, line) if source.tree is not None else None
    if place is None:
        return False
    calls = [node for node in ast.walk(place[0][place[1]]) if isinstance(node, ast.Call)]
    names = [node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "") for node in calls]
    return any(name in _PRINTS for name in names)
