"""The kind of a file, by its first bytes, for an archive by its members, and only then by its extension."""

from __future__ import annotations

import zipfile
from pathlib import Path

from weft.formats._layers import FormatError

#: Kinds of files by their content, and their words in messages.
CONTAINERS = {
    "torch": "a PyTorch file",
    "export": "a torch.export program",
    "keras": "a .keras archive",
    "npz": "a NumPy .npz archive",
    "npy": "a single NumPy array",
    "hdf5": "an HDF5 file",
    "safetensors": "a safetensors file",
    "msgpack": "a MessagePack file",
    "onnx": "an ONNX model",
}
#: Kinds that have no magic number in their content.
_BY_EXTENSION = {".onnx": "onnx", ".msgpack": "msgpack", ".mpk": "msgpack", ".safetensors": "safetensors"}

_DEFLATE = 1032  # DEFLATE makes at most so many bytes from one
_SLACK = 64 << 20
_RATIO = 100


def container_of(path: Path) -> str:
    """A key of CONTAINERS.

    Raises:
        FormatError: the file is of no known kind, or can't be opened; the message says which kind it might be.
    """
    try:
        if path.is_dir():
            raise FormatError(f"{path}: is a folder; give a file")
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise FormatError(f"{path}: can't be read: {error.strerror or error}") from None
    if size == 0:
        raise FormatError(f"{path}: is empty")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(path)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hdf5"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head[0] == 0x80 and head[1:2] in (b"\2", b"\3", b"\4", b"\5") and path.suffix.lower() not in _BY_EXTENSION:
        raise FormatError(
            f"{path}: is a pickle, maybe of PyTorch's format before 1.6, which isn't read, as it can claim any size; "
            "torch.save(model.state_dict(), path) with a newer PyTorch writes one that is"
        )
    if path.suffix.lower() in _BY_EXTENSION:
        return _BY_EXTENSION[path.suffix.lower()]
    if head[0] == 0x08 and size > 2:  # field 1 of a protobuf message, a number: ir_version
        return "onnx"
    known = ", ".join(CONTAINERS.values())
    raise FormatError(f"{path}: starts like none of the files that are read: {known}")


def _archive(path: Path) -> str:
    names = [member.filename for member in members(path)]
    if any(name.endswith(".npy") for name in names) and all(name.endswith(".npy") for name in names):
        return "npz"
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return "keras"
    if any(name.split("/")[-1] in ("archive_format", "serialized_exported_program.json") for name in names):
        return "export"
    if any(name.endswith("/constants.pkl") for name in names):
        raise FormatError(
            f"{path}: is a TorchScript archive, which is code; torch.save(module.state_dict(), path) writes its weights"
        )
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        return "torch"
    raise FormatError(
        f"{path}: is a zip archive of neither PyTorch, torch.export, Keras nor NumPy; it holds "
        f"{', '.join(repr(name) for name in names[:3]) or 'nothing'}"
    )


def members(path: Path) -> list[zipfile.ZipInfo]:
    """The members of a zip archive, whose sizes are possible.

    Raises:
        FormatError: it is damaged, or claims sizes that its own can't hold: a member more than DEFLATE could make of
            its bytes, or all together more than 64 MiB and a hundred times the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
        size = path.stat().st_size
    except OSError as error:
        raise FormatError(f"{path}: can't be read: {error.strerror or error}") from None
    except Exception as error:  # zipfile has several of its own, and struct's, for damaged directories
        raise FormatError(f"{path}: is a damaged zip archive: {first_line(error)}") from None
    seen: set[str] = set()
    for member in found:
        stored = member.compress_type == zipfile.ZIP_STORED
        most = member.compress_size * (1 if stored else _DEFLATE)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
            raise FormatError(
                f"{path}: {member.filename!r} is packed in a way that isn't read (stored and deflated are)"
            )
        if member.compress_size > size or member.file_size > most:
            raise FormatError(
                f"{path}: {member.filename!r} claims {member.file_size} bytes, which {member.compress_size} bytes of a "
                f"file of {size} can't hold"
            )
        if member.filename in seen:
            raise FormatError(f"{path}: holds two members named {member.filename!r}")
        seen.add(member.filename)
    total = sum(member.file_size for member in found)
    if total > _SLACK + _RATIO * size:
        raise FormatError(f"{path}: claims {total} bytes of a file of {size}, as no weights do")
    return found


def read_member(path: Path, name: str, most: int | None = None) -> bytes:
    """A member's bytes, at most as many as its entry claims (and `most`).

    Raises:
        FormatError: there is none, it is larger than `most`, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(name)
            if most is not None and entry.file_size > most:
                raise FormatError(
                    f"{path}: {name!r} has {entry.file_size} bytes, more than the {most} that it could need"
                )
            with archive.open(entry) as file:
                data = file.read(entry.file_size)
    except FormatError:
        raise
    except KeyError:
        raise FormatError(f"{path}: has no member {name!r}") from None
    except Exception as error:
        raise FormatError(f"{path}: {name!r} is damaged: {first_line(error)}") from None
    if len(data) != entry.file_size:
        raise FormatError(f"{path}: {name!r} has {len(data)} bytes where the archive says {entry.file_size}")
    return data


def first_line(error: BaseException) -> str:
    """The first line of another library's exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
