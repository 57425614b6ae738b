"""The script that checks promised gains from outside: its judgement, without times."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from explain_cases import script


@pytest.fixture(scope="module")
def promised() -> ModuleType:
    return script("promised")


@pytest.mark.parametrize(
    ("own", "measured", "kept"),
    [
        ((5.0, 4.0, 6.0), (6.5, 5.5, 7.5), True),
        ((5.0, 4.9, 5.1), (5.5, 5.2, 5.8), True),  # within a fifth
        ((5.0, 4.9, 5.1), (9.0, 8.0, 10.0), False),
        ((5.0, 4.9, 5.1), (-5.0, -6.0, -4.0), False),
    ],
)
def test_a_promise_is_kept_if_the_intervals_meet(promised: ModuleType, own: Any, measured: Any, kept: bool) -> None:
    assert promised.is_kept(own, measured) is kept


@pytest.mark.usefixtures("warm_processes")
def test_a_program_says_how_long_a_step_takes(promised: ModuleType) -> None:
    lazy = [program for program in promised.PROGRAMS if program.name.startswith("lazy_")]
    assert len(lazy) > 3
    for program in lazy:
        assert 0 < promised.seconds_of_a_step(program, ["40"]) < 1, program
