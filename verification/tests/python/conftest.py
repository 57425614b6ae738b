"""Fixtures of the tests here; shared_fixtures.py is in tests/python/shared."""

from __future__ import annotations

from shared_fixtures import (  # noqa: F401
    _fresh_state,
    pytest_collection_finish,
    pytest_runtest_teardown,
    run_python,
    run_warm_python,
)
