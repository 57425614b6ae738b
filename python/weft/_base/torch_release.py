"""The releases of PyTorch for which weft has an extension module. Importing this file loads the module for the
installed release."""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

#: The releases that one source supports. PyTorch's C++ interface differs between releases, and so do the parts of its
#: Python side that Weft changes.
SUPPORTED = ("2.13", "2.14", "2.15")

_NAME = "weft._C"


def modules(folder: Path = Path(__file__).parent.parent) -> dict[str, Path]:
    """The extension modules in the package's folder, by the release that each is built for."""
    files = {release: folder / f"_C_torch{release.replace('.', '')}.so" for release in SUPPORTED}
    return {release: file for release, file in files.items() if file.exists()}


def module_for(installed: str, built: dict[str, Path]) -> Path:
    """The extension module for PyTorch's version, chosen before Python's loader fails in its own words.

    Args:
        installed: the version: 2.13.0+cpu.
        built: the extension modules by their release.

    Raises:
        ImportError: there is none.
    """
    module = built.get(".".join(installed.split(".")[:2]))
    if module is not None:
        return module
    if not built:
        raise ImportError("weft has no extension module here: this is its source; `make` builds the package to import")
    *others, last = built
    names = f"{', '.join(others)} and {last}" if others else last
    wanted = f"torch>={next(iter(built))},<{last.split('.')[0]}.{int(last.split('.')[1]) + 1}"
    raise ImportError(
        f"this weft is built for PyTorch {names}, and PyTorch {installed} is installed. PyTorch's C++ interface "
        f'differs between releases: install one of these (pip install "{wanted}"), or a release of weft that is built '
        "for yours"
    )


def load(file: Path) -> None:
    """Makes the file the module weft._C."""
    loader = ExtensionFileLoader(_NAME, str(file))
    spec = spec_from_file_location(_NAME, file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
    sys.modules["weft"].__dict__["_C"] = module


if _NAME not in sys.modules:
    load(module_for(torch.__version__, modules()))
