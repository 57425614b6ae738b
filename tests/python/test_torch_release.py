"""With another release of PyTorch, `import weft` says so, before anything of it is loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft._base import torch_release

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = torch_release.SUPPORTED


def imported_with(version: str, statement: str = "import weft") -> subprocess.CompletedProcess[str]:
    code = f"import sys, torch; torch.__version__ = {version!r}\n{statement}\nprint('imported')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0+cpu", "3.0.0", "2.130.0", "1.13.1"])
def test_another_release_is_an_error_that_names_both(version: str) -> None:
    message = rf"built for PyTorch {re.escape(SUPPORTED)}, and PyTorch {re.escape(version)} is installed"
    with pytest.raises(ImportError, match=message):
        torch_release.check(version)


@pytest.mark.parametrize("suffix", [".0", ".0+cpu", ".1+cu130", ".0a0+git1234567"])
def test_any_build_of_this_release_will_do(suffix: str) -> None:
    torch_release.check(SUPPORTED + suffix)


@pytest.mark.parametrize(
    "statement",
    ["import weft", "torch.compile(torch.nn.Linear(2, 2), backend='weft')(torch.ones(1, 2))"],
)
def test_the_error_comes_before_the_extension_module(statement: str) -> None:
    """From `import weft`, and from torch.compile, which finds the backend by its entry point."""
    code = (
        f"try:\n    {statement}\nexcept ImportError as error:\n"
        "    print('error:', error, '; loaded:', 'weft._C' in sys.modules)\n    sys.exit()"
    )
    done = imported_with("2.99.0", code)
    assert done.returncode == 0, done.stderr
    assert "PyTorch 2.99.0 is installed" in done.stdout and "loaded: False" in done.stdout


def test_the_release_is_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert set(re.findall(r"torch==(\d+\.\d+)", project)) == {SUPPORTED}
    cmake = (ROOT / "pytorch/CMakeLists.txt").read_text()
    major, minor = SUPPORTED.split(".")
    assert rf'MATCHES "^{major}\\.{minor}\\."' in cmake and f"built against PyTorch {SUPPORTED}" in cmake
