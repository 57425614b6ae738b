"""Reads one HDF5 file, in a process of its own: libhdf5 can crash, hang or claim all memory on a malformed file.

Run as `python -I hdf5_child.py PATH OUT_FD LIMITS`; imports neither weft nor torch. Writes a line of JSON, which says
what lies where, and then the arrays, one after the other. Exit status 3 and a line on stderr: the file is refused.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, BinaryIO

MOST_OBJECTS = 200_000
MOST_DEPTH = 40
MOST_RANK = 8
MOST_TEXT = 64 << 20  # characters of all attributes together
#: Filters that libhdf5 and h5py have built in: deflate, shuffle, fletcher32, szip, lzf. Others are loaded from plugins.
FILTERS = {1, 2, 3, 4, 32000}
#: torch's dtypes by NumPy's kind and size.
DTYPES = {("f", 2): "float16", ("f", 4): "float32", ("f", 8): "float64"}


class Refused(Exception):
    """Why the file is refused, in one line."""


def limit(limits: dict[str, int]) -> None:
    for name, most in (("AS", limits["memory"]), ("CPU", limits["seconds"]), ("FSIZE", limits["output"]), ("CORE", 0)):
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        bound = sys.maxsize if hard == resource.RLIM_INFINITY else hard
        # The first limit of processor time sends a signal whose name says what happened; the second limit kills.
        resource.setrlimit(kind, (min(most, bound), min(most + (name == "CPU"), bound)))


class Walk:
    """Groups, datasets and text attributes below the root, within bounds.

    `claimed` sums what the datasets would take: files can have many datasets over the same bytes.
    """

    def __init__(self, file: Any, size: int, most_bytes: int) -> None:
        import h5py

        self.h5py = h5py
        self.size = size
        self.most_bytes = most_bytes
        self.claimed = 0
        self.text = 0
        self.attributes: dict[str, dict[str, Any]] = {}
        self.arrays: dict[str, dict[str, Any]] = {}
        self.others: dict[str, str] = {}
        self.datasets: dict[str, Any] = {}
        self.group(file)

    def group(self, root: Any) -> None:
        stack = [("", root, 0)]
        count = 0
        while stack:
            path, item, depth = stack.pop()
            if (count := count + 1) > MOST_OBJECTS or depth > MOST_DEPTH:
                raise Refused("is nested deeper, or has more objects, than any model")
            self.take_attributes(path, item)
            if isinstance(item, self.h5py.Dataset):
                self.take_dataset(path, item)
            elif isinstance(item, self.h5py.Group):
                for name in list(item)[:MOST_OBJECTS]:
                    below = f"{path}/{name}" if path else name
                    if not isinstance(item.get(name, getlink=True), self.h5py.HardLink):
                        raise Refused(f"{below!r} is a link to another place or file, which isn't followed")
                    stack.append((below, item[name], depth + 1))

    def take_attributes(self, path: str, item: Any) -> None:
        found = {}
        for name in list(item.attrs):
            attribute = item.attrs.get_id(name)
            if self.h5py.check_string_dtype(attribute.dtype) is None and attribute.dtype.kind != "S":
                continue
            if attribute.get_storage_size() > min(self.size, MOST_TEXT):
                raise Refused(f"attribute {name!r} claims {attribute.get_storage_size()} bytes")
            value = item.attrs[name]
            values = [value] if isinstance(value, str | bytes) else list(getattr(value, "flat", []))
            texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in values]
            if (text := self.text + sum(map(len, texts)) + len(texts)) > MOST_TEXT:
                raise Refused("has more text in its attributes than any model")
            self.text = text
            found[name] = texts[0] if isinstance(value, str | bytes) else texts
        if found:
            self.attributes[path] = found

    def take_dataset(self, path: str, item: Any) -> None:
        kind = item.dtype.kind, item.dtype.itemsize
        dtype = DTYPES.get(kind)
        if kind == ("V", 2) and self.attributes.get(path, {}).get("dtype") == "bfloat16":
            dtype = "bfloat16"
        if dtype is None or item.shape is None:
            self.others[path] = str(item.dtype)
            return
        count = 1
        for extent in item.shape:
            count *= int(extent)
        claimed = count * kind[1]
        self.check_storage(path, item, claimed)
        self.claimed += claimed
        if self.claimed > self.most_bytes:
            raise Refused(f"claims more than {self.most_bytes} bytes of a file of {self.size}")
        place = self.h5py.h5o.get_info(item.id).addr
        self.arrays[path] = {"dtype": dtype, "shape": [int(extent) for extent in item.shape], "address": int(place)}
        self.datasets[path] = item

    def check_storage(self, path: str, item: Any, claimed: int) -> None:
        if len(item.shape) > MOST_RANK:
            raise Refused(f"{path!r} has {len(item.shape)} dimensions")
        plan = item.id.get_create_plist()
        if plan.get_layout() == self.h5py.h5d.VIRTUAL or plan.get_external_count():
            raise Refused(f"{path!r} is stored in other files, which aren't read")
        filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        for number in filters:
            if number not in FILTERS:
                raise Refused(f"{path!r} is compressed by filter {number}, which isn't built into HDF5")
        stored = item.id.get_storage_size()
        if stored > self.size or (not filters and claimed > self.size):
            raise Refused(f"{path!r} claims {max(stored, claimed)} bytes of a file of {self.size}")


def dump(walk: Walk, out: BinaryIO) -> None:
    import numpy

    header = {"arrays": walk.arrays, "others": walk.others, "attributes": walk.attributes}
    out.write(json.dumps(header).encode() + b"\n")
    for item in walk.datasets.values():
        array = item[()]
        order = array.dtype.newbyteorder("<") if array.dtype.kind == "f" else array.dtype
        out.write(memoryview(numpy.ascontiguousarray(array, order)).cast("B") if array.size else b"")
    out.flush()


def main() -> int:
    path, descriptor, limits = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    limit(limits)
    try:
        import h5py
    except ImportError:
        sys.stderr.write("no h5py")
        return 4
    try:
        with h5py.File(path, "r", locking=False) as file, os.fdopen(descriptor, "wb", closefd=False) as out:
            dump(Walk(file, os.path.getsize(path), limits["output"]), out)
    except Refused as error:
        sys.stderr.write(str(error))
        return 3
    except MemoryError:
        sys.stderr.write("needs more memory than its size explains")
        return 3
    except Exception as error:
        sys.stderr.write(
            "is damaged: " + " ".join(str(error.args[0] if error.args else type(error).__name__).split())[:300]
        )
        return 3
    return 0


if __name__ == "__main__":
    # Skips the teardown of libhdf5, which can crash after a malformed file.
    status = main()
    sys.stderr.flush()
    os._exit(status)
