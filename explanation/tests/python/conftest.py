"""Fixtures for the tests here; shared_fixtures.py is in tests/python."""

from __future__ import annotations

from shared_fixtures import _fresh_state, pytest_collection_finish, run_python  # noqa: F401
