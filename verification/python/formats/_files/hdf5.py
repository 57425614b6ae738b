"""HDF5 files, read by a child process with limits, as libhdf5 can crash or claim all memory on a malformed file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from weft.formats._layers import FormatError

_CHILD = Path(__file__).with_name("hdf5_child.py")
_MEMORY = 1 << 30  # for the interpreter, NumPy and libhdf5, and its caches
_SECONDS = 2  # of processor time, and one more for each 10 MB
_PATIENCE = 10  # seconds of the clock for each second of processor time
_SLACK = 64 << 20
_RATIO = 16  # compressed weights shrink by less
_DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclasses.dataclass
class Hdf5:
    """The contents of an HDF5 file that may be weights."""

    tensors: dict[str, Tensor]  #: by path, as "layers/gru/cell/vars/0"
    addresses: dict[str, int]  #: the places of their headers in the file: the order in which they were written
    others: dict[str, str]  #: dtypes of datasets that aren't read, since they aren't floating
    attributes: dict[str, dict[str, Any]]  #: by path, "" for the root: attributes of text, a str or a list of them


def read_hdf5(path: Path, what: str) -> Hdf5:
    """All datasets of a floating dtype and all attributes of text.

    Args:
        path: the file.
        what: what a message calls it.

    Raises:
        FormatError: it is damaged, claims what it doesn't hold, refers to other files, or took libhdf5 too much memory
            or time, or crashed it.
    """
    size = path.stat().st_size
    output = _SLACK + _RATIO * size
    limits = {"memory": _MEMORY + output, "seconds": _SECONDS + size // 10_000_000, "output": output}
    # Only libhdf5's own code: filters can be plugins, which the environment can name.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HDF5_")}
    environment |= {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-I", str(_CHILD), str(path.absolute()), str(out.fileno()), json.dumps(limits)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(out.fileno(),),
                timeout=_PATIENCE * limits["seconds"],
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FormatError(f"{what}: libhdf5 took longer than {_PATIENCE * limits['seconds']} s over it") from None
        except OSError as error:
            raise FormatError(f"{what}: the process that reads HDF5 can't be started: {error}") from None
        _check(done.returncode, done.stderr, what)
        out.seek(0)
        try:
            return _take(out)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError):
            raise FormatError(f"{what}: what was read of it is incomplete") from None


def _check(status: int, stderr: bytes, what: str) -> None:
    if status == 0:
        return
    if status == 4:
        raise FormatError(f"{what}: reading it needs the package h5py: pip install 'weft[formats]'")
    if status == 3:
        raise FormatError(f"{what}: {stderr.decode('utf-8', 'replace')}")
    try:
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
    except ValueError:
        name = f"signal {-status}"
    if name == "SIGXCPU":
        raise FormatError(f"{what}: is damaged: libhdf5 doesn't come to an end with it")
    raise FormatError(f"{what}: is damaged: libhdf5 ended with {name} over it")


def _take(out: BinaryIO) -> Hdf5:
    header = json.loads(out.readline())
    tensors, addresses = {}, {}
    for path, entry in header["arrays"].items():
        dtype = _DTYPES[entry["dtype"]]
        count = math.prod(entry["shape"])
        data = bytearray(out.read(count * dtype.itemsize))
        flat = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        # Keras on Windows writes paths with backslashes.
        tensors[path.replace("\\", "/")] = flat.reshape(entry["shape"])
        addresses[path.replace("\\", "/")] = int(entry["address"])
    attributes = {path.replace("\\", "/"): found for path, found in header["attributes"].items()}
    return Hdf5(tensors, addresses, dict(header["others"]), attributes)
