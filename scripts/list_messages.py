#!/usr/bin/env python3
"""Lists the messages of errors and warnings that users may see, by file, for reading them in one go.

Usage: list_messages.py [FOLDER ...]      (src, pytorch, python, verification and explanation by default)

C++: texts in calls that make errors or warnings. Python: texts in `raise` and in calls of `warn`. Internal errors are
left out, and so are texts of fewer than three words.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ("src", "pytorch", "python", "verification", "explanation")
LITERAL = r'"(?:[^"\\]|\\.)*"'
LITERALS = re.compile(rf"{LITERAL}(?:\s*{LITERAL})*|'(?:[^'\\]|\\.)'")
FORMAT = re.compile(rf"fmt::format\(\s*({LITERALS.pattern})")
CALL = re.compile(
    r"\b(check|refuse|fail|user_error|report_fallback|warn_once|TORCH_CHECK\w*|TORCH_WARN\w*|Error|\w+Error|"
    r"unsupported)\s*\("
)


def split(text: str, separator: str) -> list[str]:
    """The parts of an expression in C++ between separators outside of brackets and literals."""
    parts, depth, at, begin = [], 0, 0, 0
    while at < len(text):
        if literal := LITERALS.match(text, at):
            at = literal.end()
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[at], 0)
        if text[at] == separator and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


def arguments(text: str, begin: int) -> list[str]:
    """The arguments of a call in C++ whose bracket opens before `begin`."""
    depth, at = 1, begin
    while depth and at < len(text):
        literal = LITERALS.match(text, at)
        depth += {"(": 1, ")": -1}.get(text[at], 0) if literal is None else 0
        at = literal.end() if literal else at + 1
    return [part.strip() for part in split(text[begin : at - 1], ",")]


def joined(parts: list[str]) -> str:
    """Neighbouring parts of a message in C++ as one text, with {...} for what is known only when the program runs."""
    found = ""
    for part in map(str.strip, parts):
        format = FORMAT.match(part)
        literals = format.group(1) if format else part if LITERALS.fullmatch(part) else ""
        found += "".join(each[1:-1] for each in re.findall(LITERAL, literals)) or f"{{{' '.join(part.split())}}}"
    return found


def in_cpp(text: str) -> list[tuple[int, str]]:
    """The line and the text of each message in C++."""
    found = []
    for call in CALL.finditer(text):
        line, given = text.count("\n", 0, call.start()) + 1, arguments(text, call.end())
        if call.group(1).startswith("TORCH_"):  # (condition, the message's parts ...)
            found.append((line, joined(given[1:])))
        else:
            found += [(line, joined(split(each, "+"))) for each in given if '"' in each]
    return [(line, message) for line, message in found if re.search(r"\w", re.sub(r"\{[^{}]*\}", "", message))]


def spelled(node: ast.expr) -> str:
    """An expression's text, with {...} for what is known only when the program runs."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(spelled(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return spelled(node.left) + spelled(node.right)
    return f"{{{ast.unparse(node)}}}"


def in_python(text: str) -> list[tuple[int, str]]:
    """The line and the text of each message in Python."""
    found = []
    for node in ast.walk(ast.parse(text)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        if call is not node or name in ("warn", "warn_once", "refused", "UnsupportedError"):
            found += [(call.lineno, spelled(argument)) for argument in call.args]
    return found


def main() -> None:
    folders = sys.argv[1:] or FOLDERS
    command = ["git", "ls-files", "--", *folders]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        path = Path(name)
        if "tests" in path.parts or path.suffix not in (".cpp", ".h", ".py"):
            continue
        find = in_python if path.suffix == ".py" else in_cpp
        for line, message in sorted(set(find(path.read_text(encoding="utf-8")))):
            if len(message.split()) > 2 and "internal error" not in message:
                print(f"{name}:{line}: {message}")


if __name__ == "__main__":
    main()
