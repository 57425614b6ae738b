"""Checks that includes follow the arrows between folders: a folder is a phase, and arrows point one way.

Prints each include that points the wrong way and exits with 1 when there is one.
Usage: check_includes.py [ROOT]
"""

import re
import sys
from pathlib import Path

# What a folder of src may include beside itself.
ARROWS: dict[str, set[str]] = {
    "base": set(),
    "ir": {"base"},
    "passes": {"base", "ir"},
    "streaming": {"base", "ir", "passes"},
    "interpreter": {"base", "ir"},
    "stablehlo": {"base", "ir"},
    "runtime": {"base"},
    "planning": {"base", "ir", "passes", "runtime"},
    "codegen": {"base", "ir", "passes", "runtime", "planning"},
    "jit": {"base", "ir", "passes", "runtime", "planning", "codegen"},
    "packages": {"base", "ir", "passes", "interpreter", "codegen"},
    "engine": {"base", "ir", "passes", "interpreter", "runtime", "planning", "jit"},
    "resident": {"base", "ir", "interpreter", "runtime", "jit", "packages"},
}
ENGINE = {"base", "ir", "passes", "runtime", "engine"}
PYTORCH = {"operator", "record", "override", "decompose", "importer", "programs", "device"}
# What the folders around src may use of it, and of each other.
AROUND: dict[str, set[str]] = {
    "pytorch/operator": ENGINE,
    "pytorch/record": ENGINE | {"operator"},
    "pytorch/override": ENGINE | {"operator", "record"},
    "pytorch/decompose": ENGINE | {"operator", "record"},
    "pytorch/importer": ENGINE,
    "pytorch/programs": ENGINE | {"operator", "record", "decompose", "importer"},
    "pytorch/device": ENGINE | {"operator", "record", "override", "importer", "programs"},
    "python/bindings": ENGINE | PYTORCH | {"stablehlo", "streaming", "packages", "interpreter", "resident"},
    "verification/verify": {"base"},
    "verification/bindings": {"base", "verify"},
    "explanation/explain": {"base"},
    "explanation/bindings": {"base", "explain"},
}
KNOWN = {*ARROWS, *PYTORCH, "verify", "explain"}
WITHOUT_TORCH = {*ARROWS, "verification/verify", "explanation/explain"}
SUFFIXES = {".h", ".hpp", ".cpp", ".def", ".inc"}
TORCH = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^Python\.h$")
LLVM = re.compile(r"^(llvm|llvm-c|clang)/")
LLVM_FOLDERS = {"codegen", "jit", "packages"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def fault(folder: str, header: str) -> str | None:
    """What is wrong with `folder` (of ARROWS or AROUND) including `header`; None when nothing is."""
    allowed = ARROWS[folder] if folder in ARROWS else AROUND[folder]
    if folder in WITHOUT_TORCH and TORCH.search(header):
        return f"{folder} never includes torch"
    if LLVM.search(header) and folder not in LLVM_FOLDERS:
        return "only codegen, jit and packages see LLVM"
    target = header.split("/")[0]
    if target in KNOWN and target != folder.split("/")[-1] and target not in allowed:
        return f"{folder} may only use {', '.join(sorted(allowed)) or 'nothing'}"
    return None


def faults(root: Path) -> list[str]:
    """One line for each include under `root` that points the wrong way."""
    owners = [(folder, root / "src" / folder) for folder in ARROWS]
    owners += [(folder, root / folder) for folder in AROUND]
    found = [
        f"src/{folder.name}: not in the list of phases (scripts/check_includes.py)"
        for folder in sorted((root / "src").iterdir())
        if folder.is_dir() and folder.name not in ARROWS
    ]
    for folder, path in owners:
        for file in sorted(path.rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                why = fault(folder, match.group(1)) if match else None
                if why:
                    found.append(f"{file.relative_to(root)}:{number}: includes {match.group(1)}: {why}")
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = faults(root)
    print("\n".join(found) if found else "includes: all arrows point the right way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
