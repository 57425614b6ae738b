"""Makes Python processes that were started under `weft run` run on Weft too.

Python reads weft-run.pth at its start. If WEFT_RUN is set, as `weft run` sets it, that file calls `wake`. Nothing else
is imported yet: Weft is imported right after PyTorch, in processes that import PyTorch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader
from types import ModuleType

_is_awake = False


def wake() -> None:
    """Has Weft imported after PyTorch, if the environment has both, and counters kept where WEFT_RUN_STATS says."""
    global _is_awake
    if _is_awake or "weft" in sys.modules:
        return
    _is_awake = True
    spec = importlib.util.find_spec("weft")
    if spec is None or spec.origin is None:
        return
    # The file alone: importing it from weft would import weft, and with it PyTorch.
    hooks = _module("_weft_import_hooks", os.path.join(os.path.dirname(spec.origin), "_base", "import_hooks.py"))
    # Apart from the import: a program may import weft first, which then imports PyTorch.
    hooks.when_imported("weft", _set_up)
    hooks.when_imported("torch", _import_weft)


def _module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and isinstance(spec.loader, Loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_weft(torch: ModuleType) -> None:
    _or_without(lambda: importlib.import_module("weft"))


def _set_up(weft: ModuleType) -> None:
    def begin() -> None:
        if stats := os.environ.get("WEFT_RUN_STATS"):
            importlib.import_module("weft._command_line.children").keep_stats(stats)
        importlib.import_module("weft.compat.keras").install_when_imported()
        if os.environ.get("WEFT_RUN_BACKEND"):
            importlib.import_module("weft._command_line.default_backend").install()

    _or_without(begin)


def _or_without(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:  # it is the child's program that matters
        print(f"weft: process {os.getpid()} runs without weft, since its import failed: {error}", file=sys.stderr)
