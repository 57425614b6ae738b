"""A root with nothing in it but glibc, libstdc++, what Python's own modules load, Python, PyTorch and one wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

#: Modules of the standard library whose libraries belong to a desktop or a terminal.
_LEFT_OUT = re.compile(r"_tkinter|_curses|readline|nis\.")
_PACKAGES = Path(sysconfig.get_path("purelib"))


def _libraries_of(files: Iterable[Path]) -> set[str]:
    """The paths of the shared libraries that the loader finds for the files, the loader's own among them."""
    found: set[str] = set()
    for file in files:
        listed = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        found.update(re.findall(r"(?:=> |^\s+)(/\S+) \(", listed, re.M))
    return {path for path in found if not path.startswith(str(_PACKAGES))}


def bare_root(unpacked: Path) -> list[str]:
    """The command to put before one that shall run in the bare root, where `unpacked` is first on Python's path.

    Args:
        unpacked: the folder into which the wheel was installed.
    """
    interpreter = Path(os.path.realpath(sys.executable))
    standard = Path(sysconfig.get_path("stdlib"))
    modules = [file for file in (standard / "lib-dynload").glob("*.so") if not _LEFT_OUT.match(file.name)]
    needed = _libraries_of([interpreter, *modules, *(_PACKAGES / "torch" / "lib").glob("*.so")])
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv"]
    for path in sorted({*needed, str(interpreter), str(standard)}):
        command += ["--ro-bind", path, path]
    command += ["--ro-bind", str(unpacked), "/wheel", "--ro-bind", str(_PACKAGES), "/packages"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    command += ["--setenv", "HOME", "/tmp", "--setenv", "PYTHONPATH", "/wheel:/packages"]
    return [*command, str(interpreter), "-s"]
