"""weft.load: states, what is refused and in which words."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_python
from package_checks import assert_close
from torch import nn

import weft
from weft import _C


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(12)
    one = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "one") / "libone.so")
    two = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "two") / "libtwo.so")
    first = one.step(torch.ones(1))
    saved = one.save()
    assert not torch.equal(one.step(torch.ones(1)), first)
    one.reset()
    assert torch.equal(one.step(torch.ones(1)), first)
    with pytest.raises(RuntimeError, match="not one of this model"):
        two.restore(saved)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.restore(saved[:-1])
    one.restore(saved)
    assert list(one.state) == ["carry['h'][0]"]
    ctypes.memset(one._state, 0, 16)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.step(torch.ones(1))


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    model = weft.load(weft.package(nn.GRU(3, 8), torch.randn(3, 3), tmp_path / "fine") / "libfine.so")
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float32\[4\]"):
        model.step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float64\[3\]"):
        model.step(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"takes 1 inputs \(x: float32\[3\]\), but got 2"):
        model.step(torch.zeros(3), torch.zeros(3))
    with pytest.raises(RuntimeError, match="has no function other_model"):
        weft.load(tmp_path / "fine" / "libfine.so", "other")
    with pytest.raises(OSError, match=r"cannot open"):
        weft.load(tmp_path / "libnone.so")
    with pytest.raises(TypeError, match="a saved state is bytes, as save\\(\\) gives them, but got str"):
        model.restore("x" * 100)
    with pytest.raises(OSError, match=r"fine: it is no file, but a package's library is: libfine.so in its folder"):
        weft.load(tmp_path / "fine")


def test_restoring_anything(tmp_path: Path) -> None:
    """Bytes of any kind are another model's, or a state that goes on."""
    torch.manual_seed(20)
    model = weft.load(weft.package(nn.LSTM(1, 5), torch.randn(3, 1), tmp_path / "any") / "libany.so")
    saved = model.save()
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        size = int(torch.randint(0, 2 * len(saved), (), generator=generator))
        data = bytes(torch.randint(0, 256, (size,), generator=generator).tolist())
        with pytest.raises(RuntimeError, match="not one of this model"):
            model.restore(data)
        if size >= len(saved):
            model.restore(saved[:8] + data[8 : len(saved)])
            assert model.step(torch.ones(1)).shape == (5,)


def test_a_package_that_is_written_again_is_loaded_again(tmp_path: Path) -> None:
    for seed in (21, 22):
        torch.manual_seed(seed)
        module, x = nn.GRU(2, 5), torch.randn(4, 2)
        model = weft.load(weft.package(module, x, tmp_path / "again") / "libagain.so")
        assert_close(model.run(x), module(x)[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a package that also has another architecture's library, objects and archives."""
    torch.manual_seed(23)
    path = tmp_path_factory.mktemp("packages") / "model"
    weft.package(nn.GRU(2, 5), torch.randn(3, 2), path, targets=[_C.package_host(), OTHER])
    return path / "libmodel.so"


ARCHITECTURE = dict(_C.package_targets())[_C.package_host()]
OTHER = "aarch64" if ARCHITECTURE == "x86_64" else "x86-64"


def test_files_that_are_no_libraries(library: Path, tmp_path: Path) -> None:
    folder = library.parent
    cases = {
        "it is empty": b"",
        "it is no shared library of this system": b"no library",
        "it is an archive, which a program is linked with": (folder / "libmodel.a").read_bytes(),
        "it is an object file, which a program is linked with": (folder / f"model.{_C.package_host()}.o").read_bytes(),
        "it is a library of 32 bits": library.read_bytes()[:4] + b"\x01" + library.read_bytes()[5:],
    }
    if (other := folder / f"libmodel-{OTHER}.so").exists():  # where a linker makes it
        cases[f"it is for .*, and this machine is {ARCHITECTURE}: package the model for"] = other.read_bytes()
    for message, data in cases.items():
        (tmp_path / "libmodel.so").write_bytes(data)
        with pytest.raises(OSError, match=rf"weft\.load: {tmp_path / 'libmodel.so'}: {message}"):
            weft.load(tmp_path / "libmodel.so")


def test_libraries_that_end_too_early(library: Path, tmp_path: Path) -> None:
    """Of every length: the loader would end the process at a page that isn't in the file."""
    data = library.read_bytes()
    for size in [*range(1, 130), *range(130, len(data), 61), len(data) - 1]:
        (tmp_path / "libmodel.so").write_bytes(data[:size])
        with pytest.raises(OSError, match=r"it is not whole|it is no shared library"):
            weft.load(tmp_path / "libmodel.so")
    (tmp_path / "libmodel.so").write_bytes(data + b"more")  # as signatures are appended
    assert weft.load(tmp_path / "libmodel.so").step(torch.zeros(2)).shape == (5,)


def test_headers_of_random_bytes(library: Path, tmp_path: Path) -> None:
    """In a separate process, which must not crash: the loader accepts the headers, or there is an error."""
    (tmp_path / "library").write_bytes(library.read_bytes())
    done = subprocess.run([warm_python.command(), "-c", RANDOM_HEADERS, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100


RANDOM_HEADERS = """
import random, sys
from pathlib import Path
import weft

folder, seen = Path(sys.argv[1]), 0
whole, chance = (folder / "library").read_bytes(), random.Random(5)
for _ in range(300):
    data = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(64)] = chance.randrange(256)
    (folder / "libmodel.so").write_bytes(data)
    try:
        weft.load(folder / "libmodel.so")
    except (OSError, RuntimeError) as error:
        assert str(error).startswith("weft.load: "), error
        seen += 1
print(seen)
"""

OTHER_ABI = """
#include "weft_model.h"
static const weft_model model = {.abi = 2};
const weft_model* newer_model(void) { return &model; }
const weft_model* none_model(void) { return 0; }
"""


def test_another_abi(library: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    (tmp_path / "newer.c").write_text(OTHER_ABI)
    made = tmp_path / "libnewer.so"
    subprocess.run(["cc", f"-I{library.parent}", "-shared", "-fPIC", tmp_path / "newer.c", "-o", made], check=True)
    with pytest.raises(RuntimeError, match="is of ABI 2, and this Weft knows 1: package the model again"):
        weft.load(made)
    with pytest.raises(RuntimeError, match="none_model that gives nothing: it is no package"):
        weft.load(made, "none")


def test_instructions_that_the_processor_lacks(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if _C.package_host() == "x86-64" or ARCHITECTURE != "x86_64":
        pytest.skip("this processor has one set of instructions")
    monkeypatch.setattr(_C, "package_host", lambda: "x86-64")
    monkeypatch.setattr(_C, "package_runs", lambda target: target == "x86-64")
    with pytest.raises(RuntimeError, match=r"is for x86-64-v[34], and this processor has no more than x86-64: name"):
        weft.load(library)


def test_states_of_anything(library: Path) -> None:
    """Bytes of other models, parts and random ones change nothing; buffers of the right ones are taken."""
    model = weft.load(library)
    model.step(torch.ones(2))
    saved = model.save()
    other = weft.load(weft.package(nn.GRU(2, 5), torch.randn(3, 2), library.parent / "other") / "libother.so").save()
    generator = torch.Generator().manual_seed(6)
    wrong = [other, b"", saved[:-1], saved + b"x", saved[1:] + b"x", *(saved[:size] for size in range(len(saved)))]
    wrong += [bytes(torch.randint(0, 256, (len(saved),), generator=generator).tolist()) for _ in range(50)]
    for each in wrong:
        with pytest.raises(RuntimeError, match="not one of this model"):
            model.restore(each)
    assert model.save() == saved
    for kind in (bytearray, memoryview):
        model.reset()
        model.restore(kind(saved))
        assert model.save() == saved
