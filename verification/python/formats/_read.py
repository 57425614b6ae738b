"""`weft.formats.read`: which format a file is in, and its layers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from weft.formats._beside import unused_text
from weft.formats._files.sniff import CONTAINERS, container_of, first_line
from weft.formats._files.tensors import READERS, read_tensors
from weft.formats._layers import FormatError, Source
from weft.formats._options import Options
from weft.formats._registry import FORMATS, Format, by_name


def read(path: str | os.PathLike[str], format: str | None = None, options: Mapping[str, Any] | None = None) -> Source:
    """The recurrent layers of a file, or the trace that it holds. Nothing in it is executed.

    Args:
        path: the file. What it is is found from its content, and where that says nothing from its extension.
        format: pytorch, torch.export, onnx, keras, burn, flax or trace, where the content leaves several.
        options: what the file doesn't say: of a PyTorch state dict `reset_after`, `activation`, ... (docs/formats.md);
            values or their text ("false", "hard_sigmoid(0.2, 0.5)").

    Raises:
        FormatError: the file can't be read, is damaged or holds no recurrent layer; an option that its format doesn't
            have. One line.
    """
    path = Path(path)
    given = Options(dict(options or {}))
    try:
        return _read(path, None if format is None else by_name(format), given)
    except FormatError as error:
        text = _one_line(str(error))
        raise FormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except Exception as error:  # any exception that a damaged file raises in a library
        raise FormatError(f"{path}: can't be read: {type(error).__name__}: {first_line(error)}") from None


def _one_line(text: str) -> str:
    """Names in a file may hold any character, and end up in messages."""
    return "".join(letter if letter.isprintable() else " " if letter in "\n\t" else "?" for letter in text)


def _read(path: Path, wanted: Format | None, options: Options) -> Source:
    container = container_of(path)
    formats = [format for format in FORMATS if container in format.containers and wanted in (None, format)]
    if not formats:
        of = "no format here reads that" if wanted is None else f"{wanted.name} files aren't"
        raise FormatError(f"is {CONTAINERS[container]}; {of}")
    tensors = None
    options.container = container
    for format in formats:
        if format.read is not None:
            source = format.read(path, options)
        else:
            assert format.layers_of is not None
            tensors = read_tensors(path, container) if tensors is None else tensors
            source = format.layers_of(tensors, options)
        if source is None:
            continue
        options.check(format.name, format.options)
        if not source.layers and source.trace is None:
            raise FormatError("holds no recurrent layer")
        source.path = str(path)
        return _with_unused(source)
    assert container in READERS
    names = ", ".join(list(tensors or {})[:3])
    asked = " or ".join(format.name for format in formats)
    raise FormatError(f"holds no recurrent layer as {asked} names its parameters; it has {names or 'no tensors'}")


def _with_unused(source: Source) -> Source:
    if source.unused:
        source.notes.append(unused_text(source.unused))
    return source


def layers_of_tensors(
    tensors: Mapping[str, Tensor], format: str | None = None, options: Mapping[str, Any] | None = None
) -> Source:
    """`read` of named tensors in memory: a state dict, or a trace.

    Raises:
        FormatError: as `read`.
    """
    given = Options(dict(options or {}))
    wanted = None if format is None else by_name(format)
    for known in FORMATS:
        if known.layers_of is None or wanted not in (None, known):
            continue
        source = known.layers_of(dict(tensors), given)
        if source is not None:
            given.check(known.name, known.options)
            source.path = source.path or "a dict of tensors"
            return _with_unused(source)
    names = ", ".join(list(tensors)[:3]) or "no tensors"
    raise FormatError(
        f"a dict of tensors holds no recurrent layer as {format or 'any format here'} names them: {names}"
    )


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file of named tensors (.npz, .safetensors, .pt), by name.

    Raises:
        FormatError: it can't be read.
    """
    try:
        return read_tensors(Path(path))
    except FormatError as error:
        text = _one_line(str(error))
        raise FormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except Exception as error:  # any exception that a damaged file raises in a library
        raise FormatError(f"{path}: can't be read: {type(error).__name__}: {first_line(error)}") from None
