"""Damaged files for weft.formats.read, in a process whose memory is limited. Run by test_formats_fuzz.py.

GOOD is the table: of each format a function that writes a good file, and the extension.
"""

from __future__ import annotations

import io
import random
import resource
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from weft import formats

_MOST_MEMORY = 1 << 30  # beyond the process's memory when the libraries are loaded
_MOST_SECONDS = 30.0  # of CPU time for one file, which takes two at most: a slow core that is shared must not fail it
_NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 60, (1 << 63) - 1, (1 << 64) - 1]


def _model() -> list[formats.Layer]:
    torch.manual_seed(0)
    return list(formats.layers_of_module(nn.LSTM(3, 4, 2, bidirectional=True)).layers)


def _write_layers(path: Path) -> None:
    formats.write(_model(), path)


def _write_flax(path: Path) -> None:
    formats.write(_model(), path, format="flax")


def _write_burn(path: Path) -> None:
    formats.write(_model(), path, format="burn")


def _write_trace(path: Path) -> None:
    formats.write(formats.Trace(torch.randn(3, 2, 4), torch.randn(3, 2, 5), h0=torch.randn(2, 5)), path)


#: By format and container: the extension of its files, and a function that writes a valid one.
GOOD: dict[str, tuple[str, Callable[[Path], None]]] = {
    "pytorch-zip": (".pt", _write_layers),
    "pytorch-safetensors": (".safetensors", _write_layers),
    "onnx": (".onnx", _write_layers),
    "torch.export": (".pt2", _write_layers),
    "keras": (".keras", _write_layers),
    "keras-weights": (".weights.h5", _write_layers),
    "burn": (".safetensors", _write_burn),
    "flax": (".msgpack", _write_flax),
    "flax-safetensors": (".safetensors", _write_flax),
    "trace-npz": (".npz", _write_trace),
    "trace-safetensors": (".safetensors", _write_trace),
}


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The data with one to four changes: bits, numbers at their limits, parts left out, repeated, moved or cut off.
    Members of an archive are changed too, so that the damage isn't found by their checksums alone."""
    if data[:4] == b"PK\x03\x04" and rng.random() < 0.7:
        return _mutated_member(data, rng)
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_CHANGES)(data, rng) or data
    return data


def _mutated_member(data: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    chosen = rng.randrange(len(entries))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for i, (entry, content) in enumerate(entries):
            if i == chosen:
                if rng.random() < 0.1:
                    continue
                content = mutated(content, rng) if content else b"x"
            archive.writestr(zipfile.ZipInfo(entry.filename), content, entry.compress_type)
    return out.getvalue()


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _number(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 2, 4, 8])
    at = _place(data, rng)
    value = (rng.choice(_NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(["little", "big"]))
    return data[:at] + value + data[at + size :]


def _digit(data: bytes, rng: random.Random) -> bytes:
    """Puts another digit, for headers in text."""
    digits = [i for i, byte in enumerate(data[:4096]) if 48 <= byte < 58]
    if not digits:
        return _flip(data, rng)
    at = rng.choice(digits)
    return data[:at] + str(rng.choice([0, 9, -1, 10**18, rng.randrange(100)])).encode() + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _without(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.randint(1, 64) :]


def _spliced(data: bytes, rng: random.Random) -> bytes:
    source, target, size = _place(data, rng), _place(data, rng), rng.randint(1, 200)
    keep = target if rng.random() < 0.5 else target + size
    return data[:target] + data[source : source + size] + data[keep:]


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.randint(1, 32)) + data[at:]


def _place(data: bytes, rng: random.Random) -> int:
    """A place to change, mostly near either end, where headers are."""
    ends = min(512, len(data))
    kind = rng.random()
    if kind < 0.4:
        return rng.randrange(ends)
    return len(data) - 1 - rng.randrange(ends) if kind < 0.6 else rng.randrange(len(data))


_CHANGES = (_flip, _number, _digit, _cut, _without, _spliced, _noise)


def check(path: Path, what: str) -> str:
    """Reads a damaged file; "" if it is read, else the error's text.

    Raises:
        AssertionError: the error isn't a FormatError of one line, or it took too long.
    """

    def too_long(*_: object) -> None:
        raise SystemExit(f"{what}: takes longer than {_MOST_SECONDS} seconds")

    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS)
    start = time.process_time()
    try:
        formats.read(path)
        return ""
    except formats.FormatError as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 2000, f"{what}: {text!r}"
        assert "MemoryError" not in text, f"{what}: {text!r} allocates more than it should"
        return text
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        assert time.process_time() - start < _MOST_SECONDS, what


def limit_memory() -> None:
    """Limits the process to _MOST_MEMORY more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(name: str, first: int, count: int) -> None:
    """Reads `count` damaged files of GOOD[name]; the number of each is its seed."""
    suffix, write = GOOD[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        write(path)
        data = path.read_bytes()
        formats.read(path)  # the file is good, and reading it loads the libraries
        limit_memory()
        refused = 0
        for seed in range(first, first + count):
            path.write_bytes(mutated(data, random.Random(f"{name} {seed}")))
            print(f"\r{name} seed {seed}", end="", file=sys.stderr, flush=True)
            refused += bool(check(path, f"{name} seed {seed}"))
    assert refused > count // 4, f"only {refused} of {count} damaged files are refused: nothing was damaged"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
