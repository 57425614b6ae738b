"""The table of formats: each one's name, kinds of files, reader and writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path

from torch import Tensor

from weft.formats import _burn, _export, _keras, _onnx, _pytorch, _trace
from weft.formats._arrays import equinox, flax, flax_write, haiku, mlx
from weft.formats._layers import FormatError, Layer, Source, Trace
from weft.formats._options import Options


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files. It has a reader of its own, or, where files of named tensors hold it, `layers_of`.

    read: of a path and options to a Source.
    write: of layers (a Trace for format trace) to a new file at the path, with notes of what was merged, assumed or
        lost; raises FormatError, naming all that the format can't express, before it writes. None: it is only read.
    layers_of: of a file's tensors by name to a Source; None if the names aren't of this framework.
    """

    name: str
    extensions: tuple[str, ...]  #: by which `write` knows the format; the first format with an extension has it
    containers: tuple[str, ...]  #: keys of _files.sniff.CONTAINERS in which the format may be
    options: Collection[str]  #: names that `options` may have for the format
    write: Callable[[list[Layer], Path], list[str]] | Callable[[Trace, Path], list[str]] | None = None
    read: Callable[[Path, Options], Source] | None = None
    layers_of: Callable[[dict[str, Tensor], Options], Source | None] | None = None


_TENSORS = ("torch", "safetensors", "npz", "npy")
_ARRAYS = ("torch", "safetensors", "npz", "msgpack")  # files of frameworks without a format of their own

#: In the order in which they are asked whether a file's names are theirs.
FORMATS: tuple[Format, ...] = (
    Format("equinox", (), _ARRAYS, equinox.OPTIONS, layers_of=equinox.layers_of),
    Format(
        "pytorch",
        (".pt", ".pth", ".safetensors"),
        _TENSORS,
        _pytorch.OPTIONS,
        _pytorch.write,
        layers_of=_pytorch.layers_of,
    ),
    Format("mlx", (), _ARRAYS, mlx.OPTIONS, layers_of=mlx.layers_of),
    Format("haiku", (), _ARRAYS, haiku.OPTIONS, layers_of=haiku.layers_of),
    Format(
        "burn",
        (".safetensors", ".pt", ".pth"),
        _TENSORS,
        _burn.OPTIONS,
        _burn.write,
        layers_of=_burn.layers_of,
    ),
    Format(
        "flax",
        (".msgpack", ".safetensors", ".npz"),
        ("msgpack", "safetensors", "npz"),
        flax.OPTIONS,
        flax_write.write,
        layers_of=flax.layers_of,
    ),
    Format(
        "keras",
        (".keras", ".weights.h5"),
        ("keras", "hdf5"),
        _keras.OPTIONS,
        _keras.write,
        read=_keras.read,
    ),
    Format("torch.export", (".pt2",), ("export",), _export.OPTIONS, _export.write, read=_export.read),
    Format("onnx", (".onnx",), ("onnx",), _onnx.OPTIONS, _onnx.write, read=_onnx.read),
    Format(
        "trace",
        (".npz", ".safetensors", ".pt", ".pth"),
        _TENSORS,
        _trace.OPTIONS,
        _trace.write,
        layers_of=_trace.layers_of,
    ),
)


def by_name(name: str) -> Format:
    """Raises FormatError, with all names, if there is none such."""
    for format in FORMATS:
        if format.name == name:
            return format
    raise FormatError(f"there is no format {name!r}; there are {', '.join(format.name for format in FORMATS)}")


def by_extension(path: Path) -> Format:
    """The first format whose files have such an extension. Raises FormatError, with all extensions, if there is
    none."""
    for format in FORMATS:
        if path.name.lower().endswith(format.extensions):
            return format
    known = ", ".join(dict.fromkeys(extension for format in FORMATS for extension in format.extensions))
    raise FormatError(f"{path}: no format is written to such a name; give format=, or one of the extensions {known}")
