"""The help text of the command `weft`."""

from __future__ import annotations

import sys
from typing import NoReturn

USAGE = """\
usage: weft run [OPTION ...] SCRIPT [ARGUMENT ...]
       weft run [OPTION ...] -m MODULE [ARGUMENT ...]
       weft explain [OPTION ...] SCRIPT [ARGUMENT ...]
       weft survey [OPTION ...]
       weft verify [OPTION ...] REFERENCE CANDIDATE
       weft convert [OPTION ...] SOURCE DESTINATION
       weft package [OPTION ...] SOURCE -o FOLDER
       weft --version | --help

`weft explain --help` says how a program that uses torch.compile is run to find what its graph breaks cost,
`weft survey --help` how a zoo of models is.
`weft verify --help` and `weft convert --help` say how two implementations of a recurrence are compared, and how a model
moves from one framework's files to another's, `weft package --help` how its steps become object files for C.

`weft run` runs a Python program with Weft imported before its first line: nn.RNN, nn.GRU and nn.LSTM on the CPU then
run on Weft. Everything else is as under `python SCRIPT ARGUMENT ...`. Python processes that the program starts, however
it does so (torchrun, subprocess, multiprocessing, joblib), run on Weft too if they are of this environment: they find
WEFT_RUN=1 among their variables, and import Weft when they import PyTorch.

  SCRIPT     a Python file, or a folder or archive that has a __main__.py
  -m MODULE  a module to run as a program, as `python -m MODULE` would
  --stats    when the program ends, print weft.stats() to standard error, as JSON, added up over this process and those
             that it started and that have ended by then ("processes" says how many)
  --backend weft
             torch.compile compiles with the backend weft where the program names none and gives no options of
             Inductor's; loops in Python become scans so
  --no-children
             leave the processes that the program starts alone
  --version  print Weft's version and PyTorch's
  --help     print this text
"""


def wrong(message: str) -> NoReturn:
    print(f"weft: {message}\n\n{USAGE}", end="", file=sys.stderr)
    raise SystemExit(2)
