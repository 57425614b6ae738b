"""The wheel in dist/: what it asks of a system, and that it runs where there is nothing more."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_root import bare_root
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

ROOT = Path(__file__).resolve().parents[2]
RELEASES = [f"weft/_C_torch{release.replace('.', '')}.so" for release in ("2.13", "2.14", "2.15")]
EXTENSIONS = [*RELEASES, "weft/verification/_C.so", "weft/explanation/_C.so"]
ENGINE = "weft/libweft_engine.so"
#: What manylinux wheels may take from the system, and what PyTorch brings.
ALLOWED = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d|ld-linux-x86-64\.so\.2|lib(torch|torch_cpu|torch_python|c10)\.so|libweft_engine\.so"
)
#: What the build machine has and the bare root must lack.
ABSENT = [
    "libLLVM.so.19.1",
    "libLLVM-19.so",
    "libfmt.so.9",
    "libz3.so.4",
    "libedit.so.2",
    "libxml2.so.2",
    "libicuuc.so.72",
]


@pytest.fixture(scope="session")
def wheel() -> Path:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted((ROOT / "dist").glob(f"weft-*-{tag}-{tag}-*.whl"), key=lambda file: file.stat().st_mtime)
    assert found, "there is no wheel in dist/ for this Python: `make wheel` makes one"
    return found[-1]


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel") / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", folder, wheel]
    subprocess.run(install, check=True)
    return folder


def run(command: list[str], code: str) -> str:
    done = subprocess.run([*command, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def first_program() -> str:
    """The README's first program, as a reader would paste it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return next(block for block in blocks if "import weft" in block)


TRAINING = """
import torch, weft
from torch import nn
torch.manual_seed(0)
model, head = nn.GRU(8, 32), nn.Linear(32, 1)
x = torch.randn(40, 16, 8)
target = x.sum(2, keepdim=True).cumsum(0).tanh()
optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
losses = []
for _ in range(60):
    loss = (head(model(x)[0]) - target).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
assert losses[-1] < 0.5 * losses[0], losses
with weft.disabled():
    reference = model(x)[0]
torch.testing.assert_close(model(x)[0], reference)
stats = weft.stats()
assert stats["compiled"] >= 2 and stats["calls"] >= 120 and not stats["fallbacks"], stats
"""


@pytest.mark.parametrize("extension", [*EXTENSIONS, ENGINE])
def test_it_needs_the_systems_c_and_cxx_libraries_and_pytorch_alone(wheel: Path, extension: str) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(extension) as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    assert needed and not [name for name in needed if not ALLOWED.fullmatch(name)]


def exported(wheel: Path, extension: str) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive, archive.open(extension) as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        for symbol in symbols.iter_symbols():
            if symbol.entry["st_shndx"] != "SHN_UNDEF" and symbol.entry["st_other"]["visibility"] == "STV_DEFAULT":
                yield symbol.name


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_what_is_linked_into_it_stays_inside(wheel: Path, extension: str) -> None:
    names = set(exported(wheel, extension))
    assert "PyInit__C" in names
    assert not [name for name in names if re.search(r"llvm|LLVM|3fmt|ZSTD|inflate|_ZNSt18condition_variable", name)]


def test_what_the_engine_shows_is_wefts_own(wheel: Path) -> None:
    names = list(exported(wheel, ENGINE))
    assert names and not [name for name in names if not re.match(r"_Z(TI|TS|TV|N|NK)(N)?4weft", name)]


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 30e6


def test_its_tag_is_that_of_pytorchs_wheels(wheel: Path) -> None:
    assert wheel.name.endswith("-manylinux_2_28_x86_64.whl")


def test_the_bare_root_lacks_what_the_build_machine_has(unpacked: Path) -> None:
    code = f"""
import ctypes, pathlib, shutil
for name in {ABSENT}:
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    raise SystemExit(name + " is there")
assert not any(shutil.which(program) for program in ("cc", "c++", "g++", "gcc", "clang", "ld", "sh"))
print(sorted(str(path) for path in pathlib.Path("/").iterdir()))
"""
    assert "/wheel" in run(bare_root(unpacked), code)


def test_the_readmes_first_program_runs_and_a_model_trains_in_the_bare_root(unpacked: Path) -> None:
    code = "\n".join([first_program(), TRAINING, "print(weft.__file__, stats)"])
    assert run(bare_root(unpacked), code).startswith("/wheel/weft/__init__.py")


def test_the_backend_and_the_other_products_run_in_the_bare_root(unpacked: Path) -> None:
    code = """
import torch, weft
from torch import nn
x = torch.randn(12, 4, 8)
layer = nn.LSTM(8, 16)
compiled = torch.compile(layer, backend="weft", fullgraph=True)
torch.testing.assert_close(compiled(x)[0], layer(x)[0])
total = weft.scan(lambda c, a: (torch.tanh(c + a), c), torch.zeros(4, 8), x)[0]
total.sum().item()
reference, candidate = nn.GRU(2, 8), weft.nn.GRU(2, 8, reset_after=False)
candidate.load_state_dict(reference.state_dict())
print(weft.verify(reference, candidate))
import weft.explanation, weft.formats
"""
    assert "reset gate" in run(bare_root(unpacked), code)


def test_errors_of_cxx_are_python_s_in_the_bare_root(unpacked: Path) -> None:
    """They cross modules by std::exception_ptr, whose functions the wheel supplies itself."""
    code = """
import numpy, torch, weft
from weft.verification import _C
wrong = {
    RuntimeError: lambda: weft.call("no program", []),
    KeyError: lambda: _C.record_layers([{}], numpy.zeros((2, 1, 3))),
}
for _ in range(200):
    for kind, call in wrong.items():
        try:
            call()
        except kind as error:
            said = str(error)
            continue
        raise SystemExit("no error")
print(said)
"""
    assert run(bare_root(unpacked), code)


OTHERS = {
    "inductor": """
import torch
pointwise = torch.compile(lambda a: torch.nn.functional.gelu(a) * a.amax(), backend="inductor")
torch.testing.assert_close(pointwise(x), torch.nn.functional.gelu(x) * x.amax())
""",
    "jax": """
import jax, jax.numpy as jnp, numpy
sums = jax.jit(lambda a: jax.lax.scan(lambda c, b: (jnp.tanh(c + b), c), jnp.zeros(a.shape[1:]), a)[0])
expected = x[0] * 0
for row in x:
    expected = torch.tanh(expected + row)
numpy.testing.assert_allclose(numpy.asarray(sums(x.numpy())), expected.numpy(), rtol=1e-4, atol=1e-5)
""",
}


@pytest.mark.parametrize("order", [["weft", "inductor", "jax"], ["jax", "inductor", "weft"]], ids=" ".join)
def test_other_compilers_in_one_process_do_not_clash(unpacked: Path, order: list[str]) -> None:
    """jaxlib has an LLVM of its own, Inductor loads what g++ made; each is used before and after Weft's is."""
    parts = {"weft": TRAINING, **OTHERS}
    order = [name for name in order if name != "jax" or importlib.util.find_spec("jax")]
    head = f"import sys; sys.path.insert(0, {str(unpacked)!r})\nimport torch\nx = torch.randn(40, 16, 8)\n"
    code = head + "\n".join(parts[name] for name in [*order, *order])
    place = run([sys.executable], code + "\nprint(weft.__file__)")
    assert place.startswith(str(unpacked))
