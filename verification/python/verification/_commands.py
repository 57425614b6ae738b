"""`weft verify` and `weft convert`: the commands that read model files."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft import formats
from weft.formats import FormatError
from weft.formats._files.atomic import replacing
from weft.formats._options import named_values
from weft.formats._registry import FORMATS

_FORMATS = ", ".join(format.name for format in FORMATS)

_VERIFY = """\
Runs the recurrent layers of two files on the same input and says whether they agree within what rounding explains; if
not: from which step, in which layer, direction and gate, and which known difference between implementations explains
it. Files are PyTorch state dicts (.pt, .safetensors), torch.export programs (.pt2), ONNX, Keras (.keras, .weights.h5),
Burn (.safetensors), Flax (.msgpack, .safetensors), named arrays of Equinox, MLX or Haiku (.safetensors, .npz), or a
trace (.npz, .safetensors) with x [T,B,I] and y [T,B,H].
Nothing in a file is executed.
"""
_VERIFY_END = """\
exit status: 0 they agree, 1 they differ, 2 they differ in structure (the report says which layers fit which), a file
can't be read or the command line is wrong, 130 interrupted
"""
_FORMAT_OF = {".html": "html", ".htm": "html", ".json": "json"}
_CONVERT = """\
Writes the recurrent layers of one file in another framework's format, which the destination's name says: .pt,
.safetensors (PyTorch's names; --to burn, --to flax), .pt2, .onnx, .keras, .weights.h5, .msgpack. What the format can't
express is named, and nothing is written; what had to be merged or assumed is printed. To .npz a trace is written: a
random input and what the layers make of it.
"""


def main(command: str, words: Sequence[str]) -> int:
    """Runs the command; returns the exit status."""
    parser = _verify_parser() if command == "verify" else _convert_parser()
    try:
        arguments = parser.parse_args(words)
        return _verify(arguments) if command == "verify" else _convert(arguments)
    except SystemExit as exit:  # argparse has printed --help, or what is wrong with the command line
        return int(exit.code or 0)
    except (FormatError, OSError) as error:
        print(f"weft {command}: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"weft {command}: interrupted", file=sys.stderr)
        return 130


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _verify_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "weft verify", description=_VERIFY, epilog=_VERIFY_END, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", metavar="REFERENCE", help="the file that is right")
    parser.add_argument("candidate", metavar="CANDIDATE", help="the file that is to agree with it")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--input", metavar="FILE", help=".npz, .safetensors or .pt with x [T,B,I] and maybe h0, c0")
    source.add_argument(
        "--random", metavar="SEED", type=int, default=0, help="a random input of this seed (default: 0)"
    )
    parser.add_argument("--steps", metavar="T", type=int, default=16, help="of a random input (default: 16)")
    parser.add_argument("--batch", metavar="B", type=int, default=2, help="of a random input (default: 2)")
    parser.add_argument(
        "--format", choices=("text", "json", "html"), help="of the report (default: what --output's name says, or text)"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write the report there; standard output has the verdict, its first line"
    )
    parser.add_argument(
        "--budget",
        metavar="SECONDS",
        type=float,
        default=10.0,
        help="of the search for known differences; counted as work, which takes about as long (default: 10)",
    )
    for side in ("reference", "candidate"):
        parser.add_argument(f"--{side}-format", metavar="NAME", help=f"one of {_FORMATS} (default: found out)")
        parser.add_argument(
            f"--{side}-option",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="what the file doesn't say, such as reset_after=false (docs/formats.md); may be repeated",
        )
    return parser


def _convert_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "weft convert", description=_CONVERT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SOURCE", help="a file with recurrent layers")
    parser.add_argument("destination", metavar="DESTINATION", help="the file to write; one that is there is replaced")
    parser.add_argument("--from", dest="source_format", metavar="NAME", help=f"one of {_FORMATS} (default: found out)")
    parser.add_argument("--to", dest="format", metavar="NAME", help="likewise (default: by the destination's name)")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what the source doesn't say, such as reset_after=false (docs/formats.md); may be repeated",
    )
    parser.add_argument(
        "--allow-unused",
        action="store_true",
        help="convert what is read even if parameters beside a layer's own are not used",
    )
    parser.add_argument("--random", metavar="SEED", type=int, default=0, help="of a trace's input (default: 0)")
    parser.add_argument("--steps", metavar="T", type=int, default=16, help="of a trace (default: 16)")
    parser.add_argument("--batch", metavar="B", type=int, default=2, help="of a trace (default: 2)")
    return parser


def _verify(arguments: argparse.Namespace) -> int:
    from weft.verification import verify

    report = verify(
        arguments.reference,
        arguments.candidate,
        input=arguments.input,
        random=arguments.random,
        steps=arguments.steps,
        batch=arguments.batch,
        reference_format=arguments.reference_format,
        candidate_format=arguments.candidate_format,
        reference_options=named_values(arguments.reference_option, "--reference-option"),
        candidate_options=named_values(arguments.candidate_option, "--candidate-option"),
        budget=arguments.budget,
    )
    format = arguments.format or _FORMAT_OF.get(Path(arguments.output or "").suffix.lower(), "text")
    if format == "text":
        text = report.text(color=arguments.output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    else:
        text = report.json() if format == "json" else report.html()
    if _put(text.rstrip("\n") + "\n", arguments.output):
        print(f"{report.text().splitlines()[0]} ({arguments.output} says more)")
    return 2 if report.structure else 0 if report.agrees else 1


def _put(text: str, path: str | None) -> bool:
    """Writes to a file or to standard output. Returns whether a file was written; standard output then has nothing of
    the text."""
    if path is not None:
        return _put_file(text, Path(path))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return False


def _put_file(text: str, path: Path) -> bool:
    """Writes a file whole or not at all. False: the path is a device or a pipe, which may be standard output."""
    if path.exists() and not path.is_file():  # devices and pipes can't be replaced
        path.write_text(text, encoding="utf-8")
        return False
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
    return True


def _left_out(source: formats.Source) -> list[str]:
    """A note of the tensors that belong to no recurrent layer."""
    names = [name for name in source.ignored if name not in source.unused]
    if not names or source.trace is not None:
        return []
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return [f"not converted, as no recurrent layer has {'it' if len(names) == 1 else 'them'}: {shown}"]


def _convert(arguments: argparse.Namespace) -> int:
    source = formats.read(arguments.source, arguments.source_format, named_values(arguments.option, "--option"))
    notes = [*source.notes, *_left_out(source)]
    content: Any = source
    trace_wanted = arguments.format == "trace" or (arguments.format is None and arguments.destination.endswith(".npz"))
    if trace_wanted and source.trace is None and (arguments.allow_unused or not source.unused):
        from weft.verification._verify import trace_of

        content = trace_of(source.layers, arguments.random, arguments.steps, arguments.batch)
    target = "trace" if trace_wanted else arguments.format
    notes += formats.write(content, arguments.destination, target, arguments.allow_unused)
    kept = content is source and source.trace is None
    count = len(source.layers)
    layers = f"{count} layer{'' if count == 1 else 's'}"
    what = layers if kept else "a trace" + {0: "", 1: " of one layer"}.get(count, f" of the last of {layers}")
    print(f"{arguments.source} ({source.format}) -> {arguments.destination}: {what}")
    for note in notes:
        print(f"  note: {note}")
    return 0
