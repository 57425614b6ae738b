"""The command `weft`, which is also `python -m weft`.

`weft run script.py arguments` does what `python script.py arguments` does, with Weft imported before the script's first
line; so for a script that knows nothing of Weft. `weft verify` and `weft convert` are in `weft.verification`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from weft import _C
from weft._base.words import did_you_mean
from weft._command_line.run_script import run
from weft._command_line.usage import USAGE, wrong

_COMMANDS = ("run", "explain", "survey", "verify", "convert", "package")
_KNOWN = ", ".join(_COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status; 2 for a wrong command line. What the program raises, SystemExit included, is raised here."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    match words:
        case ["--help" | "-h"] | ["run", "--help" | "-h"]:
            print(USAGE, end="")
        case ["--version" | "-V"]:
            print(f"weft {_C.__version__}, PyTorch {importlib.import_module('torch').__version__}")
        case ["run", *rest]:
            run(rest)
        case ["verify" | "convert" as command, *rest]:
            return importlib.import_module("weft.verification._commands").main(command, rest)
        case ["package", *rest]:
            return importlib.import_module("weft._packages.command").main(rest)
        case ["explain", *rest]:
            return importlib.import_module("weft.explanation._commands").main(rest, run)
        case ["survey", *rest]:
            return importlib.import_module("weft.explanation._survey.survey").main(rest)
        case []:
            wrong(f"a command is missing: {_KNOWN}, --version or --help")
        case [word, *_]:
            hint = did_you_mean(word, _COMMANDS) or f"; there are {_KNOWN}, --version and --help"
            print(f"weft: there is no command {word!r}{hint}", file=sys.stderr)
            return 2
    return 0
