"""`weft package`: the recurrent layers of a file as object files with a C header."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import nn

from weft import _C, formats
from weft._packages.package import STORED, package
from weft.formats import FormatError
from weft.formats._beside import unused_text
from weft.formats._options import named_values
from weft.formats._stacks import stacks_of

_DESCRIPTION = """\
Writes one step of the recurrent layers of a file (PyTorch state dicts, torch.export programs, ONNX, Keras, Flax, Burn;
weft verify --help has all) as a folder of object files, libraries and a C header that need no Python and no PyTorch.
Nothing in the file is executed. What the file doesn't say and what was taken for it is printed.
"""


def main(words: Sequence[str]) -> int:
    """The exit status."""
    parser = _parser()
    try:
        arguments = parser.parse_args(words)
        _package(arguments)
    except SystemExit as exit:  # argparse's: --help, or a wrong command line, which it has printed
        return int(exit.code or 0)
    except (FormatError, RuntimeError, TypeError, ValueError, OSError) as error:
        print(f"weft package: {' '.join(str(error).removeprefix('weft.package: ').split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    known = ", ".join(name for name, _ in _C.package_targets())
    parser = argparse.ArgumentParser(
        "weft package", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SOURCE", help="a file with recurrent layers of one direction")
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="the folder to write")
    parser.add_argument("--name", help="the prefix of all names in C (default: the folder's name)")
    parser.add_argument(
        "--target", metavar="NAME", action="append", help=f"one of {known} (default: this machine); may be repeated"
    )
    parser.add_argument("--batch", metavar="B", type=int, help="rows of a step [B, I] (default: one, without the dim)")
    parser.add_argument("--from", dest="format", metavar="NAME", help="the source's format (default: found out)")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what the source doesn't say, such as reset_after=false (docs/formats.md); may be repeated",
    )
    parser.add_argument(
        "--allow-unused", action="store_true", help="even if parameters in a layer's module are not used"
    )
    parser.add_argument(
        "--quantize",
        metavar="TYPE",
        choices=list(STORED),
        help=f"store the weights of products as one of {', '.join(STORED)}; int8-dynamic multiplies bytes",
    )
    parser.add_argument("--assembly", action="store_true", help="write the machine code as text, too")
    return parser


def _package(arguments: argparse.Namespace) -> None:
    source = formats.read(arguments.source, arguments.format, named_values(arguments.option, "--option"))
    if not source.layers:
        raise FormatError(f"{arguments.source} is a trace, which has no layers")
    if source.unused and not arguments.allow_unused:
        raise FormatError(f"{unused_text(source.unused)}; --allow-unused packages the layers without them")
    stacks = stacks_of("package", source.layers)
    if len(stacks) > 1:
        names = ", ".join(stack.constructor() for stack in stacks)
        raise FormatError(
            f"{arguments.source} holds {len(stacks)} stacks of layers ({names}): what is between them isn't in "
            "the file; write a step in Python and give it to weft.package"
        )
    module = stacks[0].make()
    assert isinstance(module, nn.RNNBase)
    rows = () if arguments.batch is None else (arguments.batch,)
    example = torch.zeros(1, *rows, module.input_size, dtype=module.weight_ih_l0.dtype)
    folder = package(
        module,
        example,
        arguments.output,
        targets=arguments.target,
        name=arguments.name,
        assembly=arguments.assembly,
        quantize=arguments.quantize,
    )
    for note in source.notes:
        print(f"note: {note}")
    print(f"{folder}: a step of {stacks[0].constructor()}")
