"""scripts/list_messages.py lists whole messages, however the code puts them together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import list_messages  # noqa: E402


@pytest.mark.parametrize(
    ("code", "messages"),
    [
        ('check(a < b, "dim {} is outside {}", a, "(b)");', ["dim {} is outside {}", "(b)"]),
        ('refuse(op,\n       "reads "\n       "all steps");', ["reads all steps"]),
        ('TORCH_CHECK(f(x, ")") == 1, op, ": size ", g(a, b), " is not 1");', ["{op}: size {g(a, b)} is not 1"]),
        ('throw UnsupportedError(op.name() + ": a tensor of layout " + c10::str(x));',
         ["{op.name()}: a tensor of layout {c10::str(x)}"]),
        ('user_error("it is a \\"{}\\"", what);', ['it is a \\"{}\\"']),
        ('fail(name, fmt::format("{} is defined " "twice", name.text));', ["{} is defined twice"]),
        ("fail(',', x);", []),
        ("TORCH_CHECK(a.is_cpu(), message_of(a));", []),
    ],
)  # fmt: skip
def test_messages_in_cpp(code: str, messages: list[str]) -> None:
    assert [text for _, text in list_messages.in_cpp(f"\n{code}\n")] == messages
    assert all(line == 2 for line, _ in list_messages.in_cpp(f"\n{code}\n"))


@pytest.mark.parametrize(
    ("code", "messages"),
    [
        ('raise ValueError(f"{what}: no dim {dim!r}" + hint)', ["{what}: no dim {dim}{hint}"]),
        ('warnings.warn("it is slow", stacklevel=2)', ["it is slow"]),
        ('print("not a message")', []),
        ("raise", []),
    ],
)
def test_messages_in_python(code: str, messages: list[str]) -> None:
    assert [text for _, text in list_messages.in_python(code)] == messages


def test_this_trees_messages_are_listed() -> None:
    command = [sys.executable, str(ROOT / "scripts/list_messages.py")]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for message in (
        "{op}: {what} must have {dims} dims, but has {tensor.dim()}",  # TORCH_CHECK
        "concat: {} and {} differ in more than dim {}",  # check
        "reverses the steps, which needs the sequence's end first",  # refuse
        "{what}: step must be callable, but is {type(step).__name__}",  # raise
    ):
        assert [line for line in printed if line.endswith(": " + message)], message
    assert not [line for line in printed if "internal error" in line or "/tests/" in line]
