"""Checks whether a file is a shared library that this machine's loader can map. The loader reads missing pages of a
truncated file, which ends the process, so this is checked before."""

from __future__ import annotations

import platform
import struct

#: ELF's machine numbers: those that packages are for, and a few others.
_MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_OBJECT, _SHARED = 1, 3
#: The fields of a 64-bit header: type, machine, version, entry, the places of the program headers and of the section
#: headers, flags, the header's own size, the size and number of the program headers, the size and number of the section
#: headers, and the index of the section that has the names.
_HEADER = struct.Struct("<HHIQQQIHHHHHH")
#: The fields of a program header: type, flags, offset, two addresses, bytes in the file, bytes in memory, alignment.
_SEGMENT = struct.Struct("<IIQQQQQQ")


def fault_of(data: bytes) -> str | None:
    """Why an ELF file can't be loaded here, in words; None if nothing is found."""
    if (what := _other_kind(data)) is not None:
        return what
    if len(data) < 16 + _HEADER.size:
        return f"it is not whole: it has {len(data)} bytes, fewer than a library's header"
    if data[4:6] != b"\x02\x01":
        return "it is a library of 32 bits or of another byte order, and this process has 64 bits, the low byte first"
    kind, machine, _, _, segments, sections, _, _, segment_size, segment_count, section_size, section_count, _ = (
        _HEADER.unpack_from(data, 16)
    )
    name, here = _MACHINES.get(machine, f"machine {machine}"), platform.machine()
    if here in _MACHINES.values() and name != here:
        return f"it is for {name}, and this machine is {here}: package the model for a target of this one"
    if kind == _OBJECT:
        return "it is an object file, which a program is linked with: the library is the file that ends in .so"
    if kind != _SHARED:
        return "it is no shared library: the package's is the file that ends in .so"
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if segment_size == _SEGMENT.size and ends[0] <= len(data):
        for i in range(segment_count):
            _, _, offset, _, _, size, _, _ = _SEGMENT.unpack_from(data, segments + i * segment_size)
            ends.append(offset + size)
    if max(ends) > len(data):
        return f"it is not whole: it has {len(data)} bytes of {max(ends)}"
    return None


def _other_kind(data: bytes) -> str | None:
    if data.startswith(b"\x7fELF"):
        return None
    if data.startswith(b"!<arch>"):
        return "it is an archive, which a program is linked with: the library is the file that ends in .so"
    return "it is no shared library of this system" if data else "it is empty"
