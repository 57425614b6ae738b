"""`weft.formats.write`: layers or a trace to a file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from weft.formats._beside import unused_text
from weft.formats._files.atomic import replacing
from weft.formats._files.sniff import first_line
from weft.formats._layers import FormatError, Layer, Source, Trace
from weft.formats._registry import by_extension, by_name


def write(
    layers: Source | Trace | Layer | Sequence[Layer],
    path: str | os.PathLike[str],
    format: str | None = None,
    allow_unused: bool = False,
) -> list[str]:
    """Writes layers, or a trace, to a file.

    It is written to a temporary file and renamed, so that the path has either the whole new file or the old one.

    Args:
        layers: what `read` returned, or layers.
        path: the file; its extension says the format.
        format: pytorch, torch.export, onnx, keras, burn, flax or trace, where the extension leaves several
            (.safetensors is PyTorch's otherwise).
        allow_unused: write layers of a Source beside which there are parameters that no layer uses (`Source.unused`).

    Returns:
        Notes: what was merged, assumed or lost, a line each.

    Raises:
        FormatError: the format can't express the layers, with all that it can't; parameters beside a layer's own aren't
            used; nothing is written then. Or the file can't be written.
    """
    path = Path(path)
    content: list[Layer] | Trace
    if isinstance(layers, Source):
        if layers.unused and not allow_unused:
            raise FormatError(f"{path}: {unused_text(layers.unused)}; allow_unused (--allow-unused) converts the rest")
        content = layers.trace if layers.trace is not None else list(layers.layers)
    elif isinstance(layers, Trace):
        content = layers
    else:
        content = [layers] if isinstance(layers, Layer) else list(layers)
    if isinstance(content, Trace) and format is None:
        format = "trace"
    target = by_extension(path) if format is None else by_name(format)
    if target.write is None:
        raise FormatError(f"{path}: files of {target.name} can be read, but not written")
    if isinstance(content, Trace) != (target.name == "trace"):
        what = "a trace" if isinstance(content, Trace) else "layers"
        raise FormatError(f"{path}: format {target.name} can't hold {what}")
    if not content:
        raise FormatError(f"{path}: there are no layers to write")
    if not path.name.lower().endswith(target.extensions):
        raise FormatError(f"{path}: {target.name} files are named {', '.join(target.extensions)}")
    try:
        with replacing(path) as new:
            notes = target.write(content, new)  # type: ignore[arg-type]
    except OSError as error:
        raise FormatError(f"{path}: can't be written: {error.strerror or first_line(error)}") from None
    except FormatError as error:
        text = str(error).replace(str(new), str(path))
        raise FormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    return notes
