"""Writes files that exist as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path of the same name beside `path` to write the new file to. It takes the place of `path` when the block ends,
    with the permissions of the file that it replaces, or of any new file: some libraries write theirs for the owner
    alone. If the block raises, what was there stays.

    Raises:
        OSError: the folder can't be written to.
    """
    with tempfile.TemporaryDirectory(prefix=".weft-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        yield new
        os.chmod(new, _mode(path, Path(folder)))
        os.replace(new, path)


def _mode(path: Path, folder: Path) -> int:
    if path.exists():
        return path.stat().st_mode & 0o777
    plain = folder / "new"
    plain.touch()
    return plain.stat().st_mode & 0o777
