"""With another release of PyTorch than weft is built for, `import weft` says so, before anything of it is loaded."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import torch
import warm_python

import weft
from weft._base import torch_release

ROOT = Path(__file__).resolve().parents[3]
SUPPORTED = torch_release.SUPPORTED
BUILT = {release: Path(f"/weft/{release}.so") for release in SUPPORTED}
HERE = ".".join(torch.__version__.split(".")[:2])


def imported_with(version: str, statement: str = "import weft") -> subprocess.CompletedProcess[str]:
    code = f"import sys, torch; torch.__version__ = {version!r}\n{statement}\nprint('imported')"
    return subprocess.run([warm_python.command(), "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("version", ["2.12.1", "2.16.0+cpu", "3.0.0", "2.130.0", "1.13.1"])
def test_another_release_is_an_error_that_names_all(version: str) -> None:
    message = (
        rf"built for PyTorch 2\.13, 2\.14 and 2\.15, and PyTorch {re.escape(version)} is installed.*"
        r'pip install "torch>=2\.13,<2\.16"'
    )
    with pytest.raises(ImportError, match=message):
        torch_release.module_for(version, BUILT)


def test_a_weft_for_one_release_names_that() -> None:
    with pytest.raises(ImportError, match=r'built for PyTorch 2\.14, and .* "torch>=2\.14,<2\.15"'):
        torch_release.module_for("2.13.0", {"2.14": Path("/weft/2.14.so")})


def test_a_source_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="no extension module here"):
        torch_release.module_for("2.13.0", torch_release.modules(tmp_path))


@pytest.mark.parametrize("suffix", [".0", ".0+cpu", ".1+cu130", ".0a0+git1234567"])
@pytest.mark.parametrize("release", SUPPORTED)
def test_any_build_of_a_release_has_its_module(release: str, suffix: str) -> None:
    assert torch_release.module_for(release + suffix, BUILT) == BUILT[release]


@pytest.mark.parametrize(
    "statement",
    ["import weft", "torch.compile(torch.nn.Linear(2, 2), backend='weft')(torch.ones(1, 2))"],
)
@pytest.mark.parametrize("version", ["2.12.1", "2.99.0"])
def test_the_error_comes_before_the_extension_module(statement: str, version: str) -> None:
    """From `import weft`, and from torch.compile, which finds the backend by its entry point."""
    code = (
        f"try:\n    {statement}\nexcept ImportError as error:\n"
        "    print('error:', error, '; loaded:', 'weft._C' in sys.modules)\n    sys.exit()"
    )
    done = imported_with(version, code)
    assert done.returncode == 0, done.stderr
    assert f"PyTorch {version} is installed" in done.stdout and "loaded: False" in done.stdout


def test_a_module_refuses_another_release_itself(tmp_path: Path) -> None:
    """Loaded under another file's name, and in another way than ours."""
    folder = Path(weft.__file__).parent
    other = "2.14" if HERE != "2.14" else "2.13"
    code = f"""
import importlib.util, torch
torch.__version__ = {other + ".0"!r}
file = importlib.util.spec_from_file_location("_C", {str(torch_release.modules(folder)[HERE])!r})
try:
    file.loader.exec_module(importlib.util.module_from_spec(file))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([warm_python.command(), "-c", code], capture_output=True, text=True, timeout=120)
    assert f"is built for PyTorch {HERE}, and PyTorch {other}.0 is installed" in done.stdout, done.stderr


def test_a_module_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    package = tmp_path / "weft"
    shutil.copytree(Path(weft.__file__).parent / "_base", package / "_base", symlinks=False)
    (package / "__init__.py").write_text("from weft._base import torch_release\n")
    (package / f"_C_torch{HERE.replace('.', '')}.so").write_text("no library")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "for _ in range(2):\n    try:\n        import weft\n"
        "    except ImportError:\n        print('weft._C' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_the_releases_are_the_same_everywhere() -> None:
    first, last = SUPPORTED[0], SUPPORTED[-1]
    major, minor = last.split(".")
    wanted = f"torch>={first},<{major}.{int(minor) + 1}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert wanted in project["project"]["dependencies"] and wanted in project["build-system"]["requires"]
    assert f"set(weft_supported_torch {' '.join(SUPPORTED)})" in (ROOT / "cmake/torch.cmake").read_text()
    wheel = re.search(r"WEFT_RELEASES:-([^}]+)}", (ROOT / "scripts/wheel.sh").read_text())
    assert wheel is not None
    assert [release.rsplit(".", 1)[0] for release in wheel[1].split()] == list(SUPPORTED)
