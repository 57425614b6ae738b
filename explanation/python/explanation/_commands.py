"""`weft explain`: the command."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.explanation import _from_trace
from weft.explanation._explain import report
from weft.explanation._lazy import trial_worker
from weft.explanation._report import conditions as _conditions
from weft.explanation._report import files as _files
from weft.explanation._report.conditions import Condition, ConditionError
from weft.explanation._report.files import ReportError
from weft.explanation._report.report import Report
from weft.explanation._script import Failed, explain_program
from weft.explanation._subject import Effort
from weft.explanation._watching.trace import TraceError

_DESCRIPTION = """\
Runs a program that uses torch.compile and says what each graph break costs and which to mend first: changes are
applied to a copy of the program in memory, and steps with and without them are timed in turns.
"""
_EPILOG = """\
A step is one call of a compiled function with the arguments of its last call. In the report a cost is what the step
gains by the change; where no change could be tried it is the time between two graphs, marked as an estimate.

exit status: 0 a report was made; 1 a condition of --fail-on holds; 2 the command line is wrong or a file can't be read;
3 the program failed; 4 it compiled nothing; 5 it compiled in forked processes only; 130 interrupted, with a report of
what was measured until then
"""

_BY_ENDING = {".html": "html", ".htm": "html", ".json": "json"}

Run = Callable[[list[str]], None]


def main(words: Sequence[str], run: Run) -> int:
    """Runs the command; returns the exit status. `run` runs a program as `weft run` does."""
    parser = _parser()
    try:
        arguments = parser.parse_args(words)
        if arguments.trial:
            return trial_worker.main(arguments.trial, run)
        conditions = _conditions.parse(arguments.fail_on) if arguments.fail_on else []
        if arguments.diff:
            return _diff(*arguments.diff)
        if arguments.trace:
            if arguments.program:
                parser.error("--trace takes no program")
            made, status = (
                report(f"weft explain --trace {arguments.trace}", _from_trace.subjects_of(arguments.trace), [], False),
                0,
            )
        else:
            made, status = _program(parser, arguments, run)
    except SystemExit as exit:  # argparse's
        return int(exit.code or 0)
    except (ConditionError, ReportError, TraceError, OSError) as error:
        return _say(2, str(error))
    except Failed as failure:
        return _say(failure.status, str(failure))
    _write(made, arguments)
    return status or _judge(made, conditions)


def _say(status: int, message: str) -> int:
    print(f"weft explain: {' '.join(message.split())}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "weft explain",
        usage="weft explain [OPTION ...] SCRIPT [ARGUMENT ...]\n"
        "       weft explain [OPTION ...] -m MODULE [ARGUMENT ...]\n"
        "       weft explain [OPTION ...] --trace DIRECTORY\n"
        "       weft explain --diff OLD.json NEW.json",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program and its arguments")
    parser.add_argument("--trace", metavar="DIRECTORY", help="a directory that TORCH_TRACE wrote: no costs")
    parser.add_argument("--trial", help=argparse.SUPPRESS)  # a plan of _lazy/trials.py's
    parser.add_argument("--diff", nargs=2, metavar=("OLD", "NEW"), help="compare two JSON reports")
    parser.add_argument("--train", action="store_true", help="a step has a backward (default: if the program's had)")
    parser.add_argument("--seconds", type=float, default=20.0, help="to measure each compiled function (20)")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each variant at most (40)")
    parser.add_argument(
        "--no-hlo", action="store_true", help="don't count what XLA makes of graphs, as is done with jax"
    )
    parser.add_argument("--format", choices=("text", "json", "html"), help="of the report (--output's ending, or text)")
    parser.add_argument("--output", metavar="FILE", help="write the report there, not to standard output")
    parser.add_argument("--fail-on", metavar="CONDITIONS", help="exit with 1 if one holds: breaks>0,cost>5%%")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _program(parser: argparse.ArgumentParser, arguments: argparse.Namespace, run: Run) -> tuple[Report, int]:
    if not arguments.program:
        parser.error("a program is missing")
    if arguments.seconds <= 0 or arguments.rounds < 1:
        parser.error("--seconds and --rounds should be positive")
    if not arguments.module and not os.path.exists(arguments.program[0]):
        raise FileNotFoundError(f"can't open the program {arguments.program[0]!r}")
    words = ["-m", *arguments.program] if arguments.module else arguments.program
    progress = Progress(not arguments.quiet and sys.stderr.isatty())
    effort = Effort(arguments.seconds, arguments.rounds, not arguments.no_hlo, progress)
    try:
        made = explain_program(words, run, arguments.train, effort)
    finally:
        progress.clear()
    return made, 130 if made.results.interrupted else 0


class Progress:
    """A line on standard error that is overwritten."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self._stream = sys.stderr  #: which is another while steps are measured
        self._last = 0.0
        self._width = 0

    def __call__(self, words: str, part: float) -> None:
        if not self.shown or (time.monotonic() - self._last < 0.1 and 0 < part < 1):
            return
        self._last = time.monotonic()
        full = round(20 * part)
        line = f"[{'#' * full}{'.' * (20 - full)}] {words}"[: os.get_terminal_size(2).columns - 1]
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def clear(self) -> None:
        if self.shown and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def _write(made: Report, arguments: argparse.Namespace) -> None:
    form = arguments.format or _BY_ENDING.get(Path(arguments.output or "").suffix, "text")
    if form == "text":
        text = made.text(color=arguments.output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    else:
        text = made.json() if form == "json" else made.html()
    if arguments.output:
        Path(arguments.output).write_text(text + "\n", encoding="utf-8")
    else:
        print(text, flush=True)


def _judge(made: Report, conditions: list[Condition]) -> int:
    held = [condition.text for condition in conditions if condition.holds(made.results)]
    return _say(1, f"failed on {', '.join(held)}") if held else 0


def _diff(old: str, new: str) -> int:
    text, worse = _files.difference(_files.read(old), _files.read(new))
    print(text)
    return 1 if worse else 0
