"""Which release of PyTorch the extension module is built for. Importing this compares it with what is installed."""

from __future__ import annotations

import torch

#: PyTorch's C++ interface differs between releases, and so do the parts of its Python side that Weft changes.
SUPPORTED = "2.13"


def check(installed: str) -> None:
    """Compares PyTorch's version with what Weft is built for, before the loader finds out in its own way.

    Raises:
        ImportError: it is another release.
    """
    if installed.split(".")[:2] != SUPPORTED.split("."):
        raise ImportError(
            f"this weft is built for PyTorch {SUPPORTED}, and PyTorch {installed} is installed. PyTorch's C++ "
            f'interface differs between releases: install torch {SUPPORTED} (pip install "torch=={SUPPORTED}.*"), or '
            "a release of weft that is built for yours"
        )


check(torch.__version__)
