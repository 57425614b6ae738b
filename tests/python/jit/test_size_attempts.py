"""The order of the attempts at a program for all sizes (pytorch/programs/generaliser.h)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from weft import _C

Sizes = list[list[int | None]]


def attempts(
    leaves: list[tuple[list[Any], list[int], list[int]]],
    succeeds: Callable[[Sizes, bool], bool] = lambda *_: False,
    does_same: Callable[[Sizes], bool] = lambda _: False,
    *,
    has_more: bool = False,
    samples: list[tuple[int, int]] | None = None,
    follow: Callable[[list[list[int]]], list[list[int]]] | None = None,
) -> list[tuple[bool, Sizes]]:
    """Whether each attempt is beyond the dims that are symbols by default, and the leaves' sizes in its first run."""
    seen = []

    def first(sizes: _C.SizeAttempt) -> Sizes:
        return [sizes.sizes(leaf, 0) for leaf in range(len(leaves))]

    def attempt(sizes: _C.SizeAttempt, is_beyond: bool) -> _C.Outcome:
        seen.append((is_beyond, first(sizes)))
        return _C.Outcome.MADE if succeeds(first(sizes), is_beyond) else _C.Outcome.FAILED

    def same(sizes: _C.SizeAttempt) -> bool:
        return does_same(first(sizes))

    with contextlib.suppress(_C.MismatchError):
        _C.generalise(leaves, has_more, True, [], None, samples or [], follow, attempt, same)
    return seen


def is_symbol(sizes: Sizes, leaf: int, dim: int, at_hand: int) -> bool:
    return sizes[leaf][dim] != at_hand


def test_all_then_all_but_one_then_none() -> None:
    seen = attempts([([8, 6, 64], [0, 1], [0, 1]), ([8, 9], [0, 1], [0, 1])])
    assert not any(beyond for beyond, _ in seen)
    shown = [[is_symbol(s, 0, 0, 8), is_symbol(s, 0, 1, 6), is_symbol(s, 1, 1, 9)] for _, s in seen]
    assert shown == [
        [True, True, True],
        [False, True, True],
        [True, False, True],
        [True, True, False],
        [False, False, False],
    ]
    assert all(s[0][2] == 64 and s[0][0] == s[1][0] for _, s in seen)  # no dim of these; equal sizes are one symbol


def test_more_dims_come_first_and_those_that_can_be_are_found() -> None:
    leaf = ([6, 7, 10], [0], [0, 1, 2])
    seen = attempts(
        [leaf],
        lambda s, beyond: beyond and not is_symbol(s, 0, 1, 7),
        lambda s: not is_symbol(s, 0, 1, 7),
        has_more=True,
    )
    assert all(beyond for beyond, _ in seen)
    assert [is_symbol(seen[-1][1], 0, dim, size) for dim, size in enumerate(leaf[0])] == [True, False, True]


def test_a_single_symbol_has_samples_of_its_own() -> None:
    seen = attempts([([6], [0], [0])], has_more=True, samples=[(61, 62)])
    assert (True, [[61]]) in seen


def test_an_outer_traces_size_is_its_symbol() -> None:
    values = []

    def attempt(sizes: _C.SizeAttempt, _: bool) -> _C.Outcome:
        values.append([sizes.outer((12, "s7"), run) for run in sizes.runs])
        assert sizes.sizes(0, 0) == [None, 4] and sizes.outer((None, "u0"), 0) is None
        return _C.Outcome.MADE

    _C.generalise([([[(12, "s7")], 4], [], [])], False, False, [], None, [], None, attempt, lambda _: False)
    ((first, second, at_hand),) = values
    assert at_hand == 12 and len({first, second, at_hand}) == 3


def test_sizes_that_follow_from_others() -> None:
    def follow(shapes: list[list[int]]) -> list[list[int]]:
        return [[shapes[0][0] // 2, 3]]

    seen = attempts([([8, 3], [0], [0]), ([4, 3], [0], [0])], follow=follow)
    ((beyond, (given, followed)),) = seen
    assert not beyond and given[0] not in (8, None) and followed == [given[0] // 2, 3]


def test_an_error_of_an_attempt_is_the_callers() -> None:
    def attempt(_: _C.SizeAttempt, __: bool) -> _C.Outcome:
        raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        _C.generalise([([4], [0], [0])], False, True, [], None, [], None, attempt, lambda _: False)
