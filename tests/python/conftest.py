"""Fixtures of the tests here. Modules that tests of several folders import are in the folder shared."""

from __future__ import annotations

import sys

from shared_fixtures import (  # noqa: F401
    _fresh_state,
    pytest_collection_finish,
    pytest_runtest_teardown,
    run_python,
    run_warm_python,
)


def pytest_terminal_summary(terminalreporter):
    """The largest errors that test_random_modules.py met."""
    module = sys.modules.get("test_random_modules")
    if module is None or not module.worst:
        return
    terminalreporter.section("random modules: largest error in units in the last place")
    for (dtype, what), (ours, pytorchs) in sorted(module.worst.items()):
        terminalreporter.line(f"{dtype:18} {what:10} weft {ours:9.1f}   pytorch {pytorchs:9.1f}")
