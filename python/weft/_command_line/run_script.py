"""`weft run`: a Python program with Weft imported before its first line."""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import pkgutil
import runpy
import shutil
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from weft._base.import_hooks import when_imported
from weft._base.words import did_you_mean
from weft._capture.stats import NOTHING_MET, Stats, stats
from weft._command_line.children import added_up, keep_stats
from weft._command_line.usage import wrong


def run(words: list[str]) -> None:
    """Runs `[options] SCRIPT` or `[options] -m MODULE`; what follows belongs to the program."""
    reaches_children = True
    counts = False
    backend = ""
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--stats":
            counts = True
        elif option == "--no-children":
            reaches_children = False
        elif option == "--backend":
            backend = words.pop(0) if words else ""
            if backend != "weft":
                wrong("--backend takes weft; without it torch.compile keeps its own default")
        elif option == "-m":
            if not words:
                wrong("-m needs the name of a module")
            _prepare(counts, reaches_children, backend)
            return _run_module(words)
        elif option == "--":
            break
        else:
            hint = did_you_mean(option, ("--stats", "--no-children", "--backend", "-m"))
            wrong(f"run has no option {option!r}{hint} (what follows the script's name is the script's own)")
    if not words:
        wrong("run needs a script, or -m and a module")
    _prepare(counts, reaches_children, backend)
    _run_script(words)


def _prepare(counts: bool, reaches_children: bool, backend: str) -> None:
    """Sets environment variables, which python/start/_weft_run.py reads, for the program's children."""
    for name in ("WEFT_RUN", "WEFT_RUN_BACKEND", "WEFT_RUN_STATS"):
        os.environ.pop(name, None)
    importlib.import_module("weft.compat.keras").install_when_imported()
    if backend:
        importlib.import_module("weft._command_line.default_backend").install()
    if reaches_children:
        os.environ["WEFT_RUN_BACKEND"] = backend
        os.environ["WEFT_RUN"] = "1"
        when_imported("multiprocessing.spawn", _import_weft_in_children)
    if counts:
        folder = tempfile.mkdtemp(prefix="weft-run-")
        os.environ["WEFT_RUN_STATS"] = folder
        atexit.register(_print_stats, os.getpid(), folder)
        keep_stats(folder, os.getpid())


def _print_stats(process: int, folder: str) -> None:
    if os.getpid() != process:  # a child forked from it
        return
    sys.stdout.flush()
    found = added_up(stats(), folder)
    shutil.rmtree(folder, ignore_errors=True)
    if Stats(found).is_empty:
        found["note"] = NOTHING_MET
    print(json.dumps(found, indent=2), file=sys.stderr)


def _run_module(words: list[str]) -> None:
    _fresh_main()
    _set_first_path(os.getcwd())
    sys.argv[:] = words
    _run_as_main(words[0], alter_argv=True)


def _run_script(words: list[str]) -> None:
    main_module = _fresh_main()
    sys.argv[:] = words
    path = os.path.join(os.getcwd(), words[0])
    if pkgutil.get_importer(path) is not None:  # a folder or an archive
        _set_first_path(path)
        return _run_as_main("__main__", alter_argv=False)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main_module.__file__ = path
    main_module.__loader__ = SourceFileLoader("__main__", path)
    main_module.__dict__["__cached__"] = None
    try:
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)  # the file may be compiled
        if code is None:
            with io.open_code(path) as file:
                source = file.read()
    except OSError as error:
        print(f"weft: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        _execute(code or compile(source, path, "exec", dont_inherit=True), main_module.__dict__)
    except SystemExit:
        raise
    except BaseException:
        _hide_own_frames()
        raise


def _execute(code: CodeType, names: dict[str, Any]) -> None:
    exec(code, names)


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    """Runs as the interpreter itself runs `-m name`."""
    try:
        runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]
    except SystemExit:
        raise
    except BaseException:
        _hide_own_frames()
        raise


def _fresh_main() -> ModuleType:
    """An empty module `__main__`, which replaces the one that the interpreter started with."""
    fresh = ModuleType("__main__")
    names = fresh.__dict__
    names["__builtins__"] = sys.modules["builtins"]
    if "__annotations__" in sys.modules["__main__"].__dict__:  # not every version of Python has it
        names["__annotations__"] = {}
    sys.modules["__main__"] = fresh
    return fresh


def _set_first_path(folder: str) -> None:
    """Replaces the first path: the interpreter put the folder of the command `weft` there, or the current one for
    `python -m weft`."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = folder


class _WeftImported:
    """Imports Weft when it is unpickled."""

    def __reduce__(self) -> Any:
        if os.environ.get("WEFT_RUN_BACKEND"):
            return importlib.import_module("weft._command_line.default_backend").install, ()
        return importlib.import_module, ("weft",)


def _import_weft_in_children(spawn: ModuleType) -> None:
    """Makes processes that multiprocessing spawns import Weft before they unpickle their work."""
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"weft": _WeftImported(), **prepare(name)}

    spawn.get_preparation_data = get_preparation_data


def _hide_own_frames() -> None:
    """Makes the traceback that is about to be printed begin at the user's script, as under `python`, not in this
    file."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        ours = traceback
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == __file__:
                ours = traceback.tb_next
            traceback = traceback.tb_next
        hook(kind, error.with_traceback(ours), ours)

    sys.excepthook = show
