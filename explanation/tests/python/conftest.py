"""What the tests here have; shared_fixtures.py is in tests/python/shared."""

from __future__ import annotations

from shared_fixtures import _fresh_state, pytest_collection_finish, run_python  # noqa: F401
