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
CALL = re.compile(
    r"\b(?:check|refuse|fail|user_error|report_fallback|warn_once|TORCH_CHECK\w*|Error|\w+Error|unsupported)\s*\("
)


def in_cpp(text: str) -> list[tuple[int, str]]:
    """The line and the text of each message in C++: neighbouring literals are one text."""
    found = []
    for call in CALL.finditer(text):
        depth, end = 1, call.end()
        while depth and end < len(text):
            literal = re.compile(LITERAL).match(text, end)
            depth += {"(": 1, ")": -1}.get(text[end], 0) if literal is None else 0
            end = literal.end() if literal else end + 1
        for literals in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", text[call.end() : end]):
            parts = re.findall(LITERAL, literals.group())
            found.append((text.count("\n", 0, call.start()) + 1, "".join(part[1:-1] for part in parts)))
    return found


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
