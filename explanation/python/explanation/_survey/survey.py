"""`weft survey`: explains a collection of models, one after the other, and writes a study."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from weft.explanation._survey.models import GROUPS
from weft.explanation._survey.study import to_markdown
from weft.explanation._survey.study_rows import Row, Study, StudyError, new_study, read, row_from, write

_LIMIT = 240.0  #: seconds for one model

_DESCRIPTION = """\
Runs small models, eager, compiled and on the lazy device, and writes what Dynamo, AOTAutograd, the backend, Weft and
the device make of each. Each model runs in a process of its own, so one that fails or hangs is a line in the table.
"""


def main(words: Sequence[str]) -> int:
    """The exit status: 0, 2 for a wrong command line, 130 interrupted with what was run until then."""
    parser = _parser()
    try:
        arguments = parser.parse_args(words)
        groups = arguments.models.split(",")
        if unknown := set(groups) - set(GROUPS):
            parser.error(f"--models: there is no {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
        studies = [study for path in arguments.read or () for study in read(path)]
    except SystemExit as exit:
        return int(exit.code or 0)
    except StudyError as error:
        print(f"weft survey: {error}", file=sys.stderr)
        return 2
    interrupted = False
    try:
        for train in [] if arguments.read else [False, True] if arguments.both else [arguments.train]:
            studies.append(new_study(train, arguments.backend))
            for group in groups:
                _group(group, arguments, studies)
    except KeyboardInterrupt:
        interrupted = True
    text = to_markdown(studies)
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 130 if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("weft survey", description=_DESCRIPTION)
    parser.add_argument("--models", default=",".join(GROUPS), help="groups (all): " + ", ".join(GROUPS))
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--train", action="store_true", help="a step has a backward")
    mode.add_argument("--both", action="store_true", help="two studies on one page: inference, then training")
    mode.add_argument("--read", metavar="FILE", nargs="+", help="run nothing: write the page of what --json kept")
    parser.add_argument("--backend", default="inductor", help="torch.compile's (inductor)")
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure each model (2)")
    parser.add_argument("--cells", metavar="FOLDER", default="examples", help="where the package `cells` is (examples)")
    parser.add_argument("--output", metavar="FILE", help="write the page there, as Markdown")
    parser.add_argument("--json", metavar="FILE", help="keep the rows there too, after each model")
    return parser


def _group(group: str, arguments: argparse.Namespace, studies: Sequence[Study]) -> None:
    """Adds the group's rows to the last study."""
    study = studies[-1]
    command = [sys.executable, "-m", "weft.explanation._survey.survey_worker", group, arguments.cells]
    done = subprocess.run([*command, "--list"], capture_output=True, text=True)
    if done.returncode != 0:
        study.missing.append(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{group}: failed")
        return
    for name in json.loads(done.stdout.splitlines()[-1]):
        begin = time.monotonic()
        options = json.dumps({"backend": study.backend, "train": study.train, "seconds": arguments.seconds})
        row = _one([*command, name, options], group, name)
        study.rows.append(row)
        if arguments.json:
            write(studies, arguments.json)
        what = row.error or f"{row.breaks} breaks, {row.fx} graphs"
        mode = ", training" if study.train else ""
        print(f"{group} {name}{mode}: {what} ({time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)


def _reason(stderr: str) -> str:
    """Why a process failed: its exception, without the less telling lines of the message, or the last thing that it
    printed."""
    lines = stderr.strip().splitlines()
    words = {line.strip().partition(": ")[2]: line for line in lines if line.lstrip().startswith("Explanation: ")}
    raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Unsupported|Interrupt)\b", line)]
    return next(iter(words), raised[-1] if raised else lines[-1] if lines else "")[:300]


def _one(command: list[str], group: str, name: str) -> Row:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return Row(group, name, error=f"took longer than {_LIMIT:.0f} s")
    if done.returncode != 0:
        return Row(group, name, error=_reason(done.stderr) or f"ended with {done.returncode}")
    return row_from({"group": group, "name": name} | json.loads(done.stdout.splitlines()[-1]))
