"""The documents agree with the tree: folders, files, settings, passes, make targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import weft

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
PAGES = [path for folder in ("docs", "docs/engine", "docs/figures") for path in (ROOT / folder).glob("*.md")]
DOCUMENTS += sorted(str(path.relative_to(ROOT)) for path in PAGES)


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(line) for line in done.stdout.splitlines() if (ROOT / line).exists()]


def test_the_folder_list_of_the_architecture_is_the_tree() -> None:
    """The list has the folders at the root and the folders in these; of python/weft also the folders one level
    deeper."""
    listed = re.findall(r"^\| `([a-z_/]+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    present = {
        Path(*file.parts[:depth])
        for file in tracked_files()
        for depth in ((1, 2, 3) if file.parts[:2] == ("python", "weft") else (1, 2))
        if len(file.parts) > depth and not file.parts[0].startswith(".")
    }
    assert sorted(listed) == sorted(str(folder) for folder in present)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_in_the_text_exist(document: str) -> None:
    named = re.findall(
        r"(?<![\w/.-])((?:src|pytorch|python|verification|tests|tools|benchmarks|examples|scripts|docs)/[\w/.*-]*[\w/])",
        (ROOT / document).read_text(),
    )
    for name in named:
        assert (ROOT / name).exists() or list(ROOT.glob(name)), name


#: Pages for those who change the engine: their names are those of the code.
ENGINE_PAGES = ["docs/engine/add-a-pass.md", "docs/engine/add-an-op.md", "docs/engine/execution.md", "docs/ir.md"]


@pytest.fixture(scope="module")
def words_of_the_code() -> set[str]:
    folders = ("src", "pytorch", "python", "tools", "tests")
    texts = [(ROOT / file).read_text(errors="ignore") for file in tracked_files() if file.parts[0] in folders]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("document", ENGINE_PAGES)
def test_names_of_the_code_exist(document: str, words_of_the_code: set[str]) -> None:
    """Names in backticks, as `name`, `Type` or `space::name`."""
    prose = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.S)
    named = re.findall(r"`(?:[\w]+::)*(\w+)`", prose)
    assert len(named) > 5
    assert not {name for name in named if not name.isdigit()} - words_of_the_code


@pytest.mark.parametrize("document", ENGINE_PAGES)
def test_names_are_in_the_files_that_they_are_said_to_be_in(document: str) -> None:
    """`name` (src/file.h) and `name` in src/file.h."""
    said = re.findall(r"`(?:[\w]+::)*(\w+)` (?:in |\()((?:src|pytorch)/[\w/.]+\.\w+)", (ROOT / document).read_text())
    for name, file in said:
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{name} is not in {file}"


def test_every_setting_is_documented() -> None:
    source = (ROOT / "src/base/settings.cpp").read_text() + (ROOT / "python/weft/device.py").read_text()
    documented = set(re.findall(r"\bWEFT[A-Z_]*\b", (ROOT / "docs/debugging.md").read_text()))
    read = set(re.findall(r'"(WEFT[A-Z_]*)"', source))
    assert read == documented


def test_passes_named_in_the_documents_exist() -> None:
    listed_in = [ROOT / "src/passes/pipeline.cpp", *ROOT.glob("src/planning/*/*_target.cpp")]
    known = {name for file in listed_in for name in re.findall(r'\{"(\w+)", ', file.read_text())}
    for document in DOCUMENTS:
        for listed in re.findall(r"(?:--passes=|WEFT_DISABLE=)([\w,]+)", (ROOT / document).read_text()):
            assert set(listed.split(",")) <= known | {"name"}, f"{document}: {listed}"


def test_make_targets_named_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in DOCUMENTS:
        named = re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / document).read_text(), re.M)
        assert set(named) <= targets, document


#: Pages whose programs run in another test, which looks at their results.
RUN_ELSEWHERE = {
    "docs/device.md": "tests/python/device/test_device.py",
    "docs/from-torch-xla.md": "tests/python/device/test_device_compat.py",
    "docs/explain.md": "explanation/tests/python/test_explain_reports.py",
}


def test_pages_that_run_elsewhere_do() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()
        assert "```python" in (ROOT / page).read_text()


RUN_PAGES = """
import contextlib, io, re, sys, traceback
from pathlib import Path

pages = []  # kept: a DistributedDataParallel that is freed right after its backward may wait for a thread of gloo's
for page in sys.argv[1:]:
    pages.append({"__name__": "__main__"})
    names = pages[-1]
    for number, block in enumerate(re.findall(r"```python\\n(.*?)```", Path(page).read_text(), re.S)):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, f"{page}, block {number}", "exec"), names)
        except BaseException:
            traceback.print_exc()
            sys.exit(f"{page}, block {number}:\\n{block}")
    print(page, number + 1)
"""


def test_the_code_in_the_pages_runs(tmp_path: Path) -> None:
    """Block after block of a page, as a reader would try them; all pages in one process, which is started once."""
    pages = [page for page in [*DOCUMENTS, "examples/cells/README.md"] if page not in RUN_ELSEWHERE]
    pages = [page for page in pages if "```python\n" in (ROOT / page).read_text()]
    assert len(pages) >= 8
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(weft.__file__).parents[1]), str(ROOT / "examples")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN_PAGES, *(str(ROOT / page) for page in pages)],
        capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = [line.rpartition(" ") for line in done.stdout.splitlines()]
    assert [page for page, *_ in counts] == [str(ROOT / page) for page in pages]
    assert all(int(count) > 0 for *_, count in counts)


def test_the_operation_of_the_pages_associative_scan_is_associative() -> None:
    (source,) = re.findall(r"^def then\(.*?(?=\n\n)", (ROOT / "docs/scan.md").read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(source, names)
    then = names["then"]
    a, b, c = ((torch.rand(5), torch.randn(5)) for _ in range(3))
    torch.testing.assert_close(then(then(a, b), c), then(a, then(b, c)))


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {weft.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {weft.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_indented_code_is_no_python() -> None:
    """Python stands between fences, where it is run."""
    for document in DOCUMENTS:
        prose = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.S)
        found = re.findall(r"^    (?:import|from|with|def) .*$", prose, re.M)
        assert all("weft.compat.torch_xla" in line for line in found), (document, found)
