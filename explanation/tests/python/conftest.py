"""What the tests here have; shared_fixtures.py is in tests/python/shared."""

from __future__ import annotations

import sys

import pytest
from explain_cases import warm
from shared_fixtures import (  # noqa: F401
    _fresh_state,
    pytest_collection_finish,
    pytest_runtest_teardown,
    run_python,
    run_warm_python,
)


@pytest.fixture
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start Python as `sys.executable` find the compilers loaded."""
    monkeypatch.setattr(sys, "executable", warm())
