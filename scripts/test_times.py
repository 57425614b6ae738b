"""Where the time of the tests goes: a table by suite and folder, and the slowest tests, from JUnit reports.

pytest writes one by --junitxml=FILE, ctest by --output-junit FILE, lit by --xunit-xml-output=FILE. pytest's has the CPU
time of each test, its processes included, which a busy machine doesn't change; of the others the time on the clock is
taken.
Usage: test_times.py [--slowest N] FILE...
"""

from __future__ import annotations

import argparse
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from typing import NamedTuple


class Test(NamedTuple):
    suite: str
    name: str
    seconds: float


def suite_of(classname: str, name: str) -> str:
    """The folder of a test of pytest's; of ctest's tests, what stands before their number."""
    if classname.startswith("weft."):
        return "tests/golden"
    parts = classname.split(".")
    for end, part in enumerate(parts):
        if part.startswith("test_"):
            return "/".join(parts[:end])
    return "ctest " + re.sub(r"_[0-9]+$", "", name)


def tests_of(file: str) -> list[Test]:
    found = []
    for case in ET.parse(file).iter("testcase"):
        seconds = case.get("time", "0")
        for each in case.iter("property"):
            if each.get("name") == "cpu_seconds":
                seconds = each.get("value", "0")
        classname, name = case.get("classname", ""), case.get("name", "")
        found.append(Test(suite_of(classname, name), f"{classname.split('.')[-1]}::{name}", float(seconds)))
    return found


def table(tests: list[Test]) -> str:
    """Seconds and share by suite, the longest first, as Markdown."""
    suites: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        suites[test.suite].append(test.seconds)
    total = sum(test.seconds for test in tests) or 1.0
    lines = ["| suite | tests | seconds | share |", "|---|--:|--:|--:|"]
    for suite, each in sorted(suites.items(), key=lambda item: -sum(item[1])):
        lines.append(f"| {suite} | {len(each)} | {sum(each):.0f} | {100 * sum(each) / total:.0f}% |")
    return "\n".join([*lines, f"| all | {len(tests)} | {total:.0f} | |"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of the tests goes.")
    parser.add_argument("--slowest", type=int, default=0, help="the slowest tests too")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    tests = [test for file in arguments.files for test in tests_of(file)]
    print(table(tests))
    for test in sorted(tests, key=lambda test: -test.seconds)[: arguments.slowest]:
        print(f"{test.seconds:8.1f} s  {test.suite}/{test.name}")


if __name__ == "__main__":
    main()
